"""Artifacts as files: what is listed, what expires, and whose they are."""

import os
from datetime import UTC, datetime, timedelta

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import JSON, TEXT, Artifact
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import ArtifactId, TenantId
from owlclaw_ray.tools.artifacts import ArtifactFolder

TRADER, OTHER = AgentRef.parse("trader:AAPL"), AgentRef.parse("trader:MSFT")
NEIGHBOUR = AgentRef.parse("trader:AAPL", TenantId("neighbour"))
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def artifact(number, media_type=TEXT, content=b"long"):
    return Artifact(ArtifactId(f"art_{number:026x}"), media_type, content)


@pytest.fixture
def folder(tmp_path):
    return ArtifactFolder(tmp_path)


@pytest.fixture
def put(folder, tmp_path):
    """Store an artifact as of some hours before NOW."""

    def store(agent, stored, hours=0.0):
        folder.put(agent, stored)
        [path] = (tmp_path / "agents" / agent.folder / "artifacts").glob(f"{stored.artifact_id}.*")
        at = (NOW - timedelta(hours=hours)).timestamp()
        os.utime(path, (at, at))
        return path

    return store


def ids(found):
    return [each.artifact_id for each in found]


def test_the_newest_are_listed_first_with_what_is_known_of_them(folder, put):
    put(TRADER, artifact(1, content="很长".encode()), hours=2)
    put(TRADER, artifact(2, JSON, b"[1]"), hours=1)
    put(TRADER, artifact(3), hours=3)

    newest, *_ = found = folder.listing(TRADER, 2)

    assert ids(found) == [artifact(2).artifact_id, artifact(1).artifact_id]
    assert (newest.media_type, newest.size_bytes, newest.stored_at) == (JSON, 3, NOW - timedelta(hours=1))
    assert found[1].size_bytes == 6


def test_other_agents_and_tenants_see_nothing_of_them(folder, put):
    put(TRADER, artifact(1))

    for other in (OTHER, NEIGHBOUR, AgentRef.parse("trader")):
        assert folder.listing(other, 10) == []
        with pytest.raises(NotFoundError):
            folder.get(other, artifact(1).artifact_id)


def test_what_is_no_artifact_is_neither_listed_nor_removed(folder, put, tmp_path):
    path = put(TRADER, artifact(1), hours=9)
    others = [path.with_name(name) for name in ("notes.txt", f"{path.stem}.exe", f"{path.stem}.txt.new", "art_1.txt")]
    for each in others:
        each.write_text("mine")
        os.utime(each, (0, 0))
    secret = tmp_path / "secret"
    secret.write_text("s")
    link = path.with_name(f"art_{7:026x}.txt")
    link.symlink_to(secret)
    os.utime(link, (0, 0), follow_symlinks=False)

    assert ids(folder.listing(TRADER, 10)) == [artifact(1).artifact_id]
    assert folder.expire(NOW) == 1
    assert all(each.exists() for each in (*others, secret, link))


def test_what_is_older_expires_for_all_agents(folder, put):
    put(TRADER, artifact(1), hours=2)
    put(OTHER, artifact(2), hours=5)
    put(NEIGHBOUR, artifact(3), hours=5)

    assert folder.expire(NOW - timedelta(hours=3)) == 2
    assert folder.expire(NOW - timedelta(hours=3)) == 0
    assert [len(folder.listing(agent, 10)) for agent in (TRADER, OTHER, NEIGHBOUR)] == [1, 0, 0]


def test_without_a_folder_nothing_expires(folder):
    assert folder.expire(NOW) == 0
    assert folder.listing(TRADER, 10) == []


def test_what_cannot_be_removed_does_not_keep_the_rest(folder, put, monkeypatch, caplog):
    stuck = put(TRADER, artifact(1), hours=5)
    put(TRADER, artifact(2), hours=5)
    real = type(stuck).unlink

    def unlink(path, *, missing_ok):
        if path.name == stuck.name:
            raise PermissionError("no")
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(type(stuck), "unlink", unlink)

    assert folder.expire(NOW) == 1
    assert str(stuck) in caplog.text
