"""Artifacts in the store, over the link by which tool workers reach it."""

import asyncio
from datetime import timedelta

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.quota import Quotas
from owlclaw_ray.errors import ArtifactTooLargeError, NotFoundError, QuotaReachedError, StoreUnavailableError
from owlclaw_ray.store.artifacts import ArtifactPart
from owlclaw_ray.store.command_link import answered, apply_now
from owlclaw_ray.store.commands import PutArtifact, PutArtifactPart
from owlclaw_ray.store.group_commit import GroupCommit
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.artifact_home import PART_BYTES, STORING_SECONDS, StoredArtifacts
from tests.contracts.artifact_home_contract import NOW, TRADER, ArtifactHomeContract, artifact
from tests.contracts.store_quota_contract import ACME, tenant

LIMIT = 4_000_000


class Keeper:
    """A store in a loop that runs while it is asked, and what it was sent."""

    def __init__(self, runner, store):
        self.store, self.parcels, self.seconds = store, [], 0.0
        self.clock = ManualClock()
        self._run, self._commits = runner.run, GroupCommit(store, linger=0)

    def commit(self, commands):
        return apply_now(commands, self._send)

    def read(self, query):
        return self._run(self.store.read(query))

    def _send(self, parcels):
        self.parcels.append(parcels)
        self._run(self.clock.advance(self.seconds))
        return self._run(answered(self._commits, parcels))


@pytest.fixture
def keeper(store_url):
    with asyncio.Runner() as runner:
        opened = runner.run(open_store(store_url, writer="keeper-1"))
        yield Keeper(runner, opened)
        runner.run(opened.close())


@pytest.fixture
def home(keeper):
    return StoredArtifacts(keeper.commit, keeper.read, keeper.clock, limit=LIMIT)


class At(ManualClock):
    """A clock that stands."""

    def __init__(self, at):
        super().__init__()
        self._at = at

    def now(self):
        return self._at


@pytest.fixture
def put(keeper):
    def store(agent, stored, hours):
        clock = At(NOW - timedelta(hours=hours))
        StoredArtifacts(keeper.commit, keeper.read, clock, limit=LIMIT).put(agent, stored)

    return store


class TestStoredArtifacts(ArtifactHomeContract):
    pass


def test_a_large_one_travels_in_messages_of_one_part_each_and_is_found_with_the_last(keeper, home):
    home.put(TRADER, artifact(1, content=b"x" * (3 * PART_BYTES + 1)))

    assert len(keeper.parcels) == 4
    assert all(sum(map(len, parcels)) < PART_BYTES + 1_000 for parcels in keeper.parcels)
    assert [len(parcels) for parcels in keeper.parcels] == [1, 1, 1, 2]


def test_one_over_the_limit_is_refused_with_the_setting_that_says_so_and_nothing_is_sent(keeper, home):
    with pytest.raises(ArtifactTooLargeError, match=r"4,000,001 bytes.*4,000,000.*artifacts\.limit_bytes"):
        home.put(TRADER, artifact(1, content=b"x" * (LIMIT + 1)))

    assert keeper.parcels == []


def test_one_that_takes_too_long_is_given_up_and_its_parts_expire(keeper, home):
    keeper.seconds = STORING_SECONDS

    with pytest.raises(StoreUnavailableError, match="was not stored within 5 s"):
        home.put(TRADER, artifact(1, content=b"x" * (3 * PART_BYTES)))

    with pytest.raises(NotFoundError):
        home.get(TRADER, artifact(1).artifact_id)
    assert home.expire(TRADER.tenant, keeper.clock.now() + timedelta(days=1)) == 1
    assert home.expire(TRADER.tenant, keeper.clock.now() + timedelta(days=1)) == 0


def test_parts_that_are_not_those_of_the_artifact_are_never_given_out(keeper, home):
    home.put(TRADER, artifact(1, content=b"right"))
    keeper.commit([PutArtifactPart(TRADER, artifact(1).artifact_id, 0, b"wrong", NOW)])

    with pytest.raises(StoreUnavailableError, match="do not make up"):
        home.get(TRADER, artifact(1).artifact_id)


def test_the_head_of_one_names_its_parts_in_the_commit_of_the_last(keeper, home):
    commands = []
    StoredArtifacts(lambda each: commands.append(each) or [], keeper.read, keeper.clock, limit=LIMIT, part_bytes=2).put(
        TRADER, artifact(1, content=b"abc")
    )

    assert [[type(each) for each in message] for message in commands] == [
        [PutArtifactPart],
        [PutArtifactPart, PutArtifact],
    ]


def test_an_artifact_for_which_another_took_the_room_meanwhile_leaves_nothing_behind(keeper, monkeypatch):
    home = StoredArtifacts(keeper.commit, keeper.read, keeper.clock, limit=LIMIT, part_bytes=100)
    clerk, large, small = (
        AgentRef.parse("clerk", ACME),
        artifact(1, content=b"x" * 250),
        artifact(2, content=b"y" * 100),
    )
    keeper.commit([tenant(Quotas(artifact_bytes=300))])
    commit, sent = keeper.commit, []

    def raced(commands):
        sent.append(commands)
        if len(sent) == 2:
            home._commit = commit
            home.put(clerk, small)
        return commit(commands)

    home._commit = raced
    with pytest.raises(QuotaReachedError, match="the tenant may have 300 bytes of artifacts"):
        home.put(clerk, large)

    assert [each.artifact_id for each in home.listing(clerk, 9)] == [small.artifact_id]
    assert keeper.read(ArtifactPart(clerk, large.artifact_id, 0)) is None
    home.remove(clerk, small.artifact_id)
    home.put(clerk, large)
    assert home.get(clerk, large.artifact_id) == large
