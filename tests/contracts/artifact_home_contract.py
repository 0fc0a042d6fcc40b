"""What every home of artifacts promises, as tests: fixtures `home`, and `put`, which stores one as of some hours before NOW."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import BINARY, JSON, TEXT, Artifact, StoredArtifact
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import ArtifactId, TenantId
from owlclaw_ray.tools.artifact_home import ArtifactHome

TRADER, OTHER = AgentRef.parse("trader:AAPL"), AgentRef.parse("trader:MSFT")
NEIGHBOUR = AgentRef.parse("trader:AAPL", TenantId("neighbour"))
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
Put = Callable[[AgentRef, Artifact, float], object]


def artifact(number: int, media_type: str = TEXT, content: bytes = b"long") -> Artifact:
    """Return an artifact with that number in its id."""
    return Artifact(ArtifactId(f"art_{number:026x}"), media_type, content)


def ids(found: list[StoredArtifact]) -> list[str]:
    """Return their ids."""
    return [each.artifact_id for each in found]


class ArtifactHomeContract:
    """All that a home of artifacts promises."""

    @pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 5_000])
    def test_what_was_stored_is_there_byte_by_byte(self, home: ArtifactHome, content: bytes) -> None:
        home.put(TRADER, artifact(1, BINARY, content))

        assert home.get(TRADER, artifact(1).artifact_id) == artifact(1, BINARY, content)

    def test_of_one_that_is_stored_again_the_last_is_there(self, home: ArtifactHome) -> None:
        for content in (b"x" * 1_500_000, b"short"):
            home.put(TRADER, artifact(1, content=content))

        assert home.get(TRADER, artifact(1).artifact_id).content == b"short"
        assert [each.size_bytes for each in home.listing(TRADER, 10)] == [5]

    def test_the_newest_are_listed_first_with_what_is_known_of_them(self, home: ArtifactHome, put: Put) -> None:
        put(TRADER, artifact(1, content="很长".encode()), 2)
        put(TRADER, artifact(2, JSON, b"[1]"), 1)
        put(TRADER, artifact(3), 3)

        newest, *_ = found = list(home.listing(TRADER, 2))

        assert ids(found) == [artifact(2).artifact_id, artifact(1).artifact_id]
        assert (newest.media_type, newest.size_bytes, newest.stored_at) == (JSON, 3, NOW - timedelta(hours=1))
        assert found[1].size_bytes == 6

    def test_other_agents_and_tenants_see_nothing_of_them(self, home: ArtifactHome) -> None:
        home.put(TRADER, artifact(1))

        for other in (OTHER, NEIGHBOUR, AgentRef.parse("trader")):
            assert list(home.listing(other, 10)) == []
            with pytest.raises(NotFoundError):
                home.get(other, artifact(1).artifact_id)

    def test_any_part_of_it_can_be_read(self, home: ArtifactHome) -> None:
        content = bytes(range(256)) * 5_000
        home.put(TRADER, artifact(1, BINARY, content))

        found = home.open(TRADER, artifact(1).artifact_id)

        assert (found.artifact_id, found.media_type, found.size_bytes) == (
            artifact(1).artifact_id,
            BINARY,
            len(content),
        )
        for start, end in (
            (0, 10),
            (600_000, 1_200_001),
            (len(content) - 1, len(content) + 5),
            (len(content), len(content) + 9),
        ):
            assert found.read(start, end) == content[start:end]

    @pytest.mark.parametrize("content", [b"short", b"x" * 1_500_000])
    def test_one_that_is_removed_is_gone_and_may_be_removed_again(self, home: ArtifactHome, content: bytes) -> None:
        home.put(TRADER, artifact(1, content=content))
        home.put(TRADER, artifact(2))

        for _ in range(2):
            home.remove(TRADER, artifact(1).artifact_id)

        assert ids(list(home.listing(TRADER, 10))) == [artifact(2).artifact_id]
        with pytest.raises(NotFoundError):
            home.open(TRADER, artifact(1).artifact_id)

    def test_of_one_that_is_stored_again_as_something_else_the_last_is_there(self, home: ArtifactHome) -> None:
        for content in (b"[1]", b"x" * 1_500_000, b"[2]", b"y" * 1_500_000):
            home.put(TRADER, artifact(1, JSON, content))
            assert home.get(TRADER, artifact(1).artifact_id).content == content

        assert [each.size_bytes for each in home.listing(TRADER, 10)] == [1_500_000]

    @pytest.mark.parametrize(
        "asked", ["", "art_1", "../secret", f"art_{1:026x}/../x", f"art_{1:026X} ", "art_" + "%" * 26]
    )
    def test_what_is_no_id_leads_nowhere(self, home: ArtifactHome, asked: str) -> None:
        home.put(TRADER, artifact(1))

        with pytest.raises(NotFoundError):
            home.get(TRADER, ArtifactId(asked))

    def test_what_is_older_expires_for_all_agents_of_a_tenant_and_for_no_other_tenant(
        self, home: ArtifactHome, put: Put
    ) -> None:
        put(TRADER, artifact(1), 2)
        put(OTHER, artifact(2), 5)
        put(NEIGHBOUR, artifact(3), 5)

        assert home.expire(TRADER.tenant, NOW - timedelta(hours=3)) == 1
        assert home.expire(TRADER.tenant, NOW - timedelta(hours=3)) == 0
        assert [len(home.listing(agent, 10)) for agent in (TRADER, OTHER, NEIGHBOUR)] == [1, 0, 1]
        assert home.expire(NEIGHBOUR.tenant, NOW - timedelta(hours=3)) == 1
        with pytest.raises(NotFoundError):
            home.get(OTHER, artifact(2).artifact_id)

    def test_one_that_was_stored_again_is_as_old_as_the_last_time(self, home: ArtifactHome, put: Put) -> None:
        put(TRADER, artifact(1, content=b"x" * 1_500_000), 5)
        put(TRADER, artifact(1, content=b"short"), 1)

        home.expire(TRADER.tenant, NOW - timedelta(hours=3))

        assert home.get(TRADER, artifact(1).artifact_id).content == b"short"

    def test_with_none_there_is_nothing_to_list_or_expire(self, home: ArtifactHome) -> None:
        assert home.expire(TRADER.tenant, NOW) == 0
        assert list(home.listing(TRADER, 10)) == []
