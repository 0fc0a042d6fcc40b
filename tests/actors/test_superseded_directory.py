"""A Directory's actor that another one of its cluster supersedes, over a pool that a test steers and a store in a file."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from actors.directory import DirectoryActor
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.store.commands import HoldLease, LeaseHeld, ReleaseLease
from owlclaw_ray.store.sql.factory import open_store
from tests.actors.plans import plan_in
from tests.actors.test_directory_drains import A_LATE_TERM, nodes_with_hosts, seated, until
from tests.definitions.writing import write_definition
from tests.placement.test_directory import SteeredPool

AGENTS = [AgentRef.parse(f"watch:{number}") for number in range(4)]


class CutPool(SteeredPool):
    """Of the nodes `one`, where the Directory is, and `two`. When it is cut, Ray does not answer, and neither do hosts of `two`."""

    def __init__(self):
        super().__init__(nodes={"one": 1.0, "two": 1.0})
        self.ended, self.is_cut, self.has_root = [], False, True

    def cut(self):
        self.is_cut = True
        for host in self.hosts.values():
            host.frozen = host.node_id == "two"

    async def living(self):
        if self.is_cut:
            await asyncio.Event().wait()
        return await super().living()

    async def end_hosts(self, node_id):
        self.ended.append(node_id)
        if not self.has_root:
            raise RuntimeUnavailableError("the root is not there")
        for host in [host for host in self.hosts.values() if host.node_id == node_id]:
            del self.hosts[host.host_id]
            host.dead.set()


@pytest.fixture
async def store(tmp_path):
    store = await open_store(f"sqlite:///{tmp_path / 'owlclaw.db'}", writer="keeper")
    yield store
    await store.close()


class Way:
    """A way to the store that notes what goes over it."""

    def __init__(self, store):
        self._store, self.asked = store, set()

    async def apply(self, commands):
        self.asked |= {type(each) for each in commands}
        return await self._store.apply(commands)

    async def read(self, query):
        self.asked.add(type(query))
        return await self._store.read(query)


@pytest.fixture
def ways(store, monkeypatch):
    """All that a Directory made."""
    made = []

    def way(*_, **__):
        made.append(Way(store))
        return made[-1]

    monkeypatch.setattr("actors.directory.KeeperClient", way)
    return made


@pytest.fixture
def pool():
    return CutPool()


@pytest.fixture
def exits(monkeypatch):
    """The codes with which the process was ended."""
    codes = []
    monkeypatch.setattr("actors.directory.end_process", codes.append)
    return codes


@pytest.fixture
async def actor(tmp_path, ways, pool, exits, monkeypatch):
    """A Directory that runs agents on both nodes."""
    monkeypatch.setattr("actors.directory.RootedPool", lambda *_: pool)
    monkeypatch.setattr("actors.directory.here", lambda: "one")
    monkeypatch.setattr("actors.directory.configure", lambda _: None)
    monkeypatch.setattr("actors.directory.RENEW_SECONDS", 0.01)
    monkeypatch.setattr("actors.directory._LEAVE_SECONDS", 0.05)
    monkeypatch.setattr("actors.directory._LINGER_SECONDS", 0.05)
    monkeypatch.setattr("actors.directory.cluster_name", lambda _: "east")
    write_definition(tmp_path / "watch", agent="isolation: shared\n")
    plan = plan_in()
    worker = replace(plan.worker, agents_dir=str(tmp_path), data_dir=str(tmp_path / "data"))
    placement = Placement(warm=1, agents_per_actor=2, heartbeat=0.01, sweep=0.01)
    actor = DirectoryActor(replace(plan, worker=worker, store_url="postgresql://x", placement=placement))
    await until(actor.active)
    for agent in AGENTS:
        await until(lambda agent=agent: seated(actor, agent))
    await until(lambda: nodes_with_hosts(pool) == {"one", "two"})
    yield actor
    await actor.stop(0)


async def superseded_by(store, directory="dir-successor", term=A_LATE_TERM):
    [outcome] = await store.apply([HoldLease("east", directory, term)])
    assert isinstance(outcome, LeaseHeld)


async def test_its_agents_are_placed_under_the_term_of_its_lease(actor, pool):
    placed = [host.terms for host in pool.hosts.values() if host.agents]

    assert placed
    assert all(terms == {1} for terms in placed)
    assert pool.term == 1


async def test_its_lease_is_renewed_over_a_way_of_its_own(actor, ways):
    over = [way.asked for way in ways if HoldLease in way.asked]

    assert over == [{HoldLease}]
    assert any(way.asked - {HoldLease} for way in ways)


@pytest.mark.parametrize("is_cut", [True, False])
async def test_it_ends_the_hosts_of_its_own_node_alone_and_then_itself_also_if_ray_does_not_answer(
    actor, pool, store, exits, is_cut
):
    hosts = list(pool.hosts.values())
    if is_cut:
        pool.cut()

    await superseded_by(store)
    await until(lambda: exits)

    assert pool.ended == ["one"]
    for host in hosts:
        assert host.dead.is_set() == host.told_to_drain == (host.node_id == "one")


async def test_it_says_that_it_runs_no_agents_before_it_ends_and_places_none(actor, pool, store, exits, monkeypatch):
    lingers = asyncio.Event()

    class Clock(type(actor._clock)):
        async def sleep(self, seconds):
            await (lingers.wait() if seconds == 0.05 else super().sleep(seconds))

    monkeypatch.setattr(actor, "_clock", Clock())
    await superseded_by(store)

    await until(lambda: pool.ended)
    assert not await actor.active()
    assert await actor.wake(AGENTS) == {}
    assert not (await actor.lease()).held
    assert exits == []
    lingers.set()
    await until(lambda: exits)


async def test_a_root_that_is_not_there_does_not_keep_it(actor, pool, store, exits):
    pool.has_root = False

    await superseded_by(store)

    await until(lambda: exits)


async def test_it_does_not_come_back_when_the_lease_is_free_again(actor, store, exits):
    await superseded_by(store)
    await store.apply([ReleaseLease("east", "dir-successor")])

    await until(lambda: exits)

    assert not await actor.active()
    assert isinstance((await store.apply([HoldLease("west", "dir-west", A_LATE_TERM + 1)]))[0], LeaseHeld)


async def test_when_it_is_stopped_it_leaves_the_lease_to_its_successor(actor, store):
    await superseded_by(store)
    await actor.stop(0)

    [renewed] = await store.apply([HoldLease("east", "dir-successor", A_LATE_TERM)])

    assert isinstance(renewed, LeaseHeld)
    assert renewed.lease.term == A_LATE_TERM
