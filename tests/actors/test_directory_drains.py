"""Draining as the Directory's actor does it, over a pool that a test steers and a store in a file."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest
from msgspec.structs import replace

from actors.directory import DirectoryActor
from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.errors import RuntimeUnavailableError, StoreUnavailableError, UserError
from owlclaw_ray.placement.drained_nodes import DrainedNodes
from owlclaw_ray.placement.host_pool import HostGoneError
from owlclaw_ray.store.commands import (
    EndHandover,
    HoldLease,
    JoinNode,
    LeaseHeld,
    MarkNode,
    NodeState,
    ReleaseAgent,
    ReleaseLease,
)
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock
from tests.actors.plans import plan_in
from tests.contracts.store_commands import NOW, activation, submission
from tests.definitions.writing import write_definition
from tests.placement.test_directory import SteeredPool, first_of

AGENT = AgentRef.parse("watch:1")
A_LATE_TERM = 1_000
"""Later than any that comes to be in a test."""


@pytest.fixture
async def store(tmp_path):
    store = await open_store(f"sqlite:///{tmp_path / 'owlclaw.db'}", writer="keeper")
    yield store
    await store.close()


@pytest.fixture
def pool():
    return SteeredPool(nodes={"one": 1.0, "two": 1.0})


@pytest.fixture
async def directory(tmp_path, store, pool, monkeypatch):
    """Makes the actor, as often as it is called; the one before ends as its process would."""
    monkeypatch.setattr("actors.directory.RootedPool", lambda *_: pool)
    monkeypatch.setattr("actors.directory.KeeperClient", lambda *_, **__: store)
    monkeypatch.setattr("actors.directory.here", lambda: "one")
    monkeypatch.setattr("actors.directory.configure", lambda _: None)
    monkeypatch.setattr("actors.directory.RENEW_SECONDS", 0.01)
    monkeypatch.setattr("actors.directory.cluster_name", lambda url: "" if url.startswith("sqlite") else "east")
    write_definition(tmp_path / "watch", agent="isolation: shared\n")
    plan = plan_in()
    worker = replace(plan.worker, agents_dir=str(tmp_path), data_dir=str(tmp_path / "data"))
    plan = replace(
        plan, worker=worker, store_url="postgresql://x", placement=Placement(warm=1, heartbeat=0.01, sweep=0.01)
    )
    made = []

    async def make(**changes):
        if made:
            await made[-1]._looking.stop()
            await made[-1]._holding.stop()
            made[-1]._directory._closed = True
            for task in (*made[-1]._draining, *made[-1]._directory._tasks):
                task.cancel()
        made.append(DirectoryActor(replace(plan, **changes)))
        return made[-1]

    yield make
    for host in pool.hosts.values():
        host.dead.set()
    for each in made:
        await each.stop(0)


async def until(condition):
    """Let things go on until the condition, which may have to be awaited, holds."""
    async with asyncio.timeout(60):
        while not (await found if asyncio.iscoroutine(found := condition()) else found):
            await asyncio.sleep(0.01)


def nodes_with_hosts(pool):
    return {host.node_id for host in pool.hosts.values()}


async def seated(directory, agent=AGENT):
    return bool(await directory.wake([agent]))


async def lease_of(store, cluster):
    """Ask for the lease as another cluster does; as `nobody`, only what it says."""
    term = 0 if cluster == "nobody" else A_LATE_TERM
    [outcome] = await store.apply([HoldLease(cluster, f"dir-{cluster}", term)])
    return outcome


async def take_over(store, cluster):
    """Take the lease from whoever has it, as if it had stood still."""
    taken = None
    while not isinstance(taken, LeaseHeld):  # it may be renewed between the two
        seen = (await lease_of(store, "nobody")).lease
        [taken] = await store.apply([HoldLease(cluster, f"dir-{cluster}", A_LATE_TERM, seen)])
    return taken.lease


async def test_a_drained_node_stays_empty_when_the_directory_is_another_and_is_used_again_when_taken_back(
    directory, pool
):
    first = await directory()
    await until(lambda: nodes_with_hosts(pool) == {"one", "two"})

    await first.drain(["one"])
    await until(lambda: nodes_with_hosts(pool) == {"two"})
    second = await directory(placement=Placement(agents_per_actor=1, sweep=600.0))
    await until(second.active)
    await until(lambda: seated(second))
    await until(lambda: seated(second, AgentRef.parse("watch:2")))
    assert await second.drained() == ("one",)
    assert nodes_with_hosts(pool) == {"two"}

    await second.undrain(["one"])
    await until(lambda: seated(second, AgentRef.parse("watch:3")))
    await until(lambda: nodes_with_hosts(pool) == {"one", "two"})


async def test_the_rows_of_the_store_are_done_by_whoever_wrote_them(directory, pool, store):
    await directory()
    await until(lambda: nodes_with_hosts(pool) == {"one", "two"})
    elsewhere = DrainedNodes(store, "west", "far", ManualClock(), present=lambda: ())

    await elsewhere.drain(["two"])
    await until(lambda: nodes_with_hosts(pool) == {"one"})
    await elsewhere.undrain(["two"])
    await until(lambda: nodes_with_hosts(pool) == {"one", "two"})


async def busy_host(actor, pool):
    """Return the host of the agent, which is at work until `run_ends` is set."""
    await until(actor.active)
    await until(lambda: seated(actor))
    [host] = [host for host in pool.hosts.values() if AGENT in host.agents]
    host.run_ends.clear()
    return host


async def test_a_drained_node_waits_for_its_own_agents_and_the_directorys_for_all_if_all_are_drained(directory, pool):
    actor = await directory()
    await busy_host(actor, pool)

    await actor.drain(["one"])
    assert await actor.to_empty("one") == ["one"]
    await actor.drain(["two"])
    assert set(await actor.to_empty("one")) == {"one", "two"}
    assert await actor.to_empty("two") == ["two"]
    await actor.undrain(["one", "two"])


async def test_a_directory_that_does_not_know_yet_which_nodes_are_drained_says_so(directory, store, monkeypatch):
    actor = await directory()
    await until(actor.active)
    actor._looked = False
    monkeypatch.setattr(actor, "_look_for_drained", None)

    with pytest.raises(RuntimeUnavailableError):
        await actor.to_empty("one")


def draining(host):
    """Return what says that the host is being drained, and what lets its run end."""
    begun, run_ends = asyncio.Event(), asyncio.Event()

    async def drain(grace):
        begun.set()
        await first_of(run_ends, host.dead)

    host.drain = drain
    return begun, run_ends


async def leaver(store):
    """Return the cluster that hands its agents over."""
    return (await lease_of(store, "nobody")).lease.leaving


async def test_a_directory_that_begins_while_its_cluster_is_leaving_ends_the_hosts_that_it_finds_and_says_when_they_have_ended(
    directory, pool, store
):
    first = await directory()
    host = await busy_host(first, pool)
    await first.drain(["one", "two"])
    await until(lambda: nodes_with_hosts(pool) == {host.node_id})

    async def is_taken():
        return isinstance(await lease_of(store, "west"), LeaseHeld)

    await until(is_taken)
    begun, run_ends = draining(host)
    await directory()
    await begun.wait()
    assert await leaver(store) == "east"

    run_ends.set()
    await until(lambda: not pool.hosts)
    await until(lambda: has_left(store))
    assert isinstance(await lease_of(store, "west"), LeaseHeld)


async def has_left(store):
    """Return whether no cluster is leaving."""
    return not await leaver(store)


async def test_a_host_that_hears_nothing_is_killed_when_the_lease_is_lost_and_agents_run_again_when_it_is_back(
    directory, pool, store, monkeypatch
):
    monkeypatch.setattr("actors.directory._LEAVE_SECONDS", 0.01)
    actor = await directory()
    host = await busy_host(actor, pool)
    host.frozen = True

    await take_over(store, "west")
    await until(lambda: host.host_id not in pool.hosts)
    assert not await actor.active()

    await store.apply([ReleaseLease("west", "dir-west")])
    await until(actor.active)
    await until(lambda: seated(actor))


async def test_a_standby_makes_no_host_ahead_on_a_drained_node(directory, pool, store):
    await lease_of(store, "west")
    await DrainedNodes(store, "west", "far", ManualClock(), present=lambda: ()).drain(["two"])

    await directory()

    await until(lambda: nodes_with_hosts(pool))
    assert nodes_with_hosts(pool) == {"one"}


async def test_a_standby_has_as_many_hosts_ready_on_each_node_as_are_to_be_warm_and_replaces_those_that_die(
    directory, pool, store, monkeypatch
):
    monkeypatch.setattr("actors.directory._PREPARE_SECONDS", 0.01)
    await lease_of(store, "west")
    actor = await directory(placement=Placement(warm=3, heartbeat=0.01, sweep=0.01))

    async def ready():
        assert not await actor.active()  # who runs the agents has warm ones for another reason
        return Counter(host.node_id for host in pool.hosts.values()) == {"one": 3, "two": 3}

    await until(ready)
    lost = next(host for host in pool.hosts.values() if host.node_id == "two")
    hangs(lost)
    await until(lambda: lost.host_id not in pool.hosts)
    await until(ready)
    for _ in range(20):
        await asyncio.sleep(0.01)
        assert await ready()


async def test_a_standby_asks_a_root_for_no_hosts_that_does_not_say_which_it_has(directory, pool, store, monkeypatch):
    monkeypatch.setattr("actors.directory._PREPARE_SECONDS", 0.01)
    await standby(directory, pool, store)
    pool.silent = {"two"}
    for host in [*pool.hosts.values()]:
        await pool.kill(host)

    await until(lambda: nodes_with_hosts(pool))
    for _ in range(20):
        await asyncio.sleep(0.01)
        assert nodes_with_hosts(pool) == {"one"}


async def test_a_host_that_a_standby_took_for_dead_stays_once_the_cluster_runs_the_agents(
    directory, pool, store, monkeypatch
):
    monkeypatch.setattr("actors.directory._PREPARE_SECONDS", 0.01)
    actor = await standby(directory, pool, store)
    host = next(iter(pool.hosts.values()))
    asked, late, in_time = asyncio.Event(), asyncio.Event(), host.status

    async def status(most):
        host.status = in_time
        asked.set()
        await late.wait()
        raise HostGoneError(host.host_id)

    host.status = status
    await asked.wait()
    await store.apply([ReleaseLease("west", "dir-west")])
    await until(actor.active)
    late.set()

    for _ in range(20):
        await asyncio.sleep(0.01)
        assert len(pool.hosts) == 2
        assert host.host_id in pool.hosts


async def test_a_standby_that_was_drained_has_hosts_ready_again(directory, pool, store, monkeypatch):
    monkeypatch.setattr("actors.directory._PREPARE_SECONDS", 0.01)
    actor = await standby(directory, pool, store)
    await actor.drain(["one", "two"])
    await until(lambda: not pool.hosts)

    await actor.undrain(["one", "two"])

    await until(lambda: nodes_with_hosts(pool) == {"one", "two"})


async def test_when_all_nodes_are_drained_the_lease_is_handed_over_while_the_last_agent_stays_and_taken_when_one_is_back(
    directory, pool, store
):
    actor = await directory()
    host = await busy_host(actor, pool)

    await actor.drain(["one", "two"])
    await until(lambda: nodes_with_hosts(pool) == {host.node_id})
    await until(lambda: _is_free(store))
    assert not await actor.active()
    assert await leaver(store) == "east"

    pool.exclude(frozenset({"two"}))
    host.run_ends.set()
    await until(lambda: not pool.hosts)
    await until(lambda: has_left(store))
    await until(lambda: pool.excluded == frozenset())  # who was lost then is judged anew later

    await store.apply([ReleaseLease("west", "dir-west")])
    await actor.undrain(["two"])
    await until(actor.active)
    await until(lambda: seated(actor))
    assert nodes_with_hosts(pool) == {"two"}


async def test_a_drain_that_is_taken_back_too_late_cuts_no_call_that_is_under_way(directory, pool, store):
    actor = await directory()
    host = await busy_host(actor, pool)
    await actor.drain(["one", "two"])
    await until(lambda: _is_free(store))

    await actor.undrain(["one", "two"])
    for _ in range(20):
        await asyncio.sleep(0.01)
        assert (host.host_id in pool.hosts, await actor.active()) == (True, False)

    host.run_ends.set()
    await until(actor.active)
    assert host.host_id not in pool.hosts


async def test_a_standby_that_is_drained_ends_its_hosts_and_takes_no_lease_that_it_would_only_hand_over(
    directory, pool, store
):
    await lease_of(store, "west")
    actor = await directory()
    await until(lambda: nodes_with_hosts(pool) == {"one", "two"})

    await actor.drain(["one", "two"])
    await until(lambda: not pool.hosts)
    await store.apply([ReleaseLease("west", "dir-west")])

    for _ in range(20):
        await asyncio.sleep(0.01)
        assert not (await actor.lease()).held


async def test_a_drained_cluster_whose_directory_and_hosts_died_while_it_left_says_that_it_has_left(
    directory, pool, store
):
    actor = await directory()
    host = await busy_host(actor, pool)
    await actor.drain(["one", "two"])
    await until(lambda: nodes_with_hosts(pool) == {host.node_id})
    await until(lambda: _is_free(store))
    await store.apply([ReleaseLease("west", "dir-west")])
    pool.hosts.clear()

    await directory()

    await until(lambda: has_left(store))


async def test_a_cluster_that_is_drained_again_and_never_hears_that_it_hands_over_says_that_it_has_left(
    directory, pool, store, monkeypatch
):
    monkeypatch.setattr("owlclaw_ray.placement.lease.GIVE_UP_SECONDS", 0.5)

    async def apply(commands):
        outcomes = await store_apply(commands)
        if any(isinstance(each, ReleaseLease) and each.leaving for each in commands):
            raise StoreUnavailableError("the answer was lost")
        return outcomes

    store_apply = store.apply
    monkeypatch.setattr(store, "apply", apply)
    await lease_of(store, "west")
    actor = await directory()
    await until(lambda: nodes_with_hosts(pool) == {"one", "two"})
    await actor.drain(["one", "two"])
    await until(lambda: not pool.hosts)
    await store.apply([ReleaseLease("west", "dir-west")])
    await actor.undrain(["one", "two"])
    await busy_host(actor, pool)

    await actor.drain(["one", "two"])
    await until(lambda: is_leaving(store))

    await until(lambda: has_left(store))
    assert not pool.hosts


async def is_leaving(store):
    return await leaver(store) == "east"


@pytest.fixture
def said(store, monkeypatch):
    """What the store is told of handovers that are over."""
    found, store_apply = [], store.apply

    async def apply(commands):
        found.extend(each for each in commands if isinstance(each, EndHandover))
        return await store_apply(commands)

    monkeypatch.setattr(store, "apply", apply)
    return found


async def standby(directory, pool, store):
    """Return the Directory of a cluster that has hosts ready while another one has the lease."""
    await lease_of(store, "west")
    actor = await directory()
    await until(lambda: nodes_with_hosts(pool) == {"one", "two"})
    return actor


async def test_a_superseded_directory_says_nothing_of_its_clusters_hosts(directory, pool, store, said):
    actor = await standby(directory, pool, store)
    actor._lease._on_superseded = partial(asyncio.sleep, 0)  # or else its process would end
    actor._lease._superseded = True
    pool.hosts.clear()  # as the roots refuse it

    await actor.drain(["one", "two"])

    for _ in range(20):
        await asyncio.sleep(0.01)
        assert said == []


async def test_a_drained_cluster_does_not_say_that_it_has_left_while_a_root_does_not_answer(
    directory, pool, store, said
):
    actor = await standby(directory, pool, store)
    await actor.drain(["one", "two"])
    pool.silent = {"two"}
    pool.hosts.clear()
    said.clear()
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert said == []

    pool.silent = set()
    await until(lambda: said)


async def test_a_drained_cluster_says_once_that_it_has_left(directory, pool, store, said):
    actor = await standby(directory, pool, store)
    await actor.drain(["one", "two"])
    await until(lambda: said)
    for _ in range(20):
        await asyncio.sleep(0.01)

    assert said == [EndHandover("east")]


def hangs(host):
    """Have the host answer nothing any more; that is noticed when it is asked how it is."""

    async def status(most):
        raise HostGoneError(host.host_id)

    host.frozen, host.status = True, status


async def test_a_host_that_hangs_while_its_cluster_leaves_is_killed_and_the_handover_ends(directory, pool, store):
    actor = await directory()
    host = await busy_host(actor, pool)
    await actor.drain(["one", "two"])
    await until(lambda: nodes_with_hosts(pool) == {host.node_id})
    await until(lambda: _is_free(store))

    hangs(host)

    await until(lambda: has_left(store))
    assert not pool.hosts


async def test_a_host_that_a_directory_finds_hanging_while_its_cluster_leaves_is_killed_behind_the_grace(
    directory, pool, store, monkeypatch
):
    monkeypatch.setattr("actors.directory._KILL_SECONDS", 0.01)
    first = await directory(drain_seconds=0.01)
    host = await busy_host(first, pool)
    await first.drain(["one", "two"])
    await until(lambda: nodes_with_hosts(pool) == {host.node_id})
    await until(lambda: _is_free(store))
    begun, run_ends = draining(host)

    await directory(drain_seconds=0.01)

    await begun.wait()
    await until(lambda: has_left(store))
    assert not pool.hosts
    run_ends.set()


@pytest.fixture
async def far(store, tmp_path):
    """The store of a cluster that is leaving, on whose one node the agent has a run."""
    far = await open_store(f"sqlite:///{tmp_path / 'owlclaw.db'}", writer="far", cluster="west")
    [_, held, _] = await far.apply(
        [JoinNode("far", "west", "machine"), HoldLease("west", "dir-west", 1), submission("run_1", AGENT)]
    )
    assert isinstance(held, LeaseHeld)
    far.serve_node("far", 1)
    await far.apply([activation("act_1", AGENT), ReleaseLease("west", "dir-west", leaving=True)])
    yield far
    await far.close()


async def test_the_cluster_that_has_the_lease_now_takes_over_what_the_one_that_leaves_releases_until_its_nodes_are_gone(
    directory, pool, store, far
):
    actor = await directory(placement=Placement(warm=1, heartbeat=0.01, sweep=600.0))
    await until(actor.active)
    for _ in range(20):
        await asyncio.sleep(0.01)
        assert not pool.hosts

    await far.apply([ReleaseAgent(AGENT, 1, AgentState(), NOW)])
    await until(lambda: any(AGENT in host.agents for host in pool.hosts.values()))

    assert await leaver(store) == "west"
    await store.apply([MarkNode("far", NodeState.LOST)])
    await until(lambda: has_left(store))


async def test_a_cluster_that_is_drained_while_another_is_leaving_hands_over_once_that_is_lost(
    directory, pool, store, far
):
    actor = await directory()
    await busy_host(actor, pool)
    await actor.drain(["one", "two"])
    for _ in range(20):
        await asyncio.sleep(0.01)
        assert (await actor.lease()).held

    await store.apply([MarkNode("far", NodeState.LOST)])

    await until(lambda: _is_free(store))
    assert await leaver(store) == "east"


async def test_a_drained_cluster_without_hosts_keeps_no_other_from_the_lease_while_a_third_one_leaves(
    directory, pool, store, far
):
    actor = await directory(placement=Placement(warm=0, heartbeat=0.01, sweep=600.0))
    await until(actor.active)
    assert not pool.hosts

    await actor.drain(["one", "two"])

    async def is_free():
        return isinstance(await lease_of(store, "north"), LeaseHeld)

    await until(is_free)
    assert await leaver(store) == "west"


async def test_a_handover_is_not_ended_by_what_was_seen_of_the_nodes_in_an_earlier_term(
    directory, pool, store, tmp_path
):
    actor = await directory(placement=Placement(warm=0, heartbeat=0.01, sweep=600.0))
    await until(actor.active)

    async def looked():
        return actor._watch is not None and actor._watch.clusters is not None

    await until(looked)
    await take_over(store, "west")

    async def stands_by():
        return actor._directory is None

    await until(stands_by)
    assert actor._watch is None
    await store.apply([JoinNode("far", "west", "machine"), ReleaseLease("west", "dir-west", leaving=True)])

    await until(actor.active)
    for _ in range(20):
        await asyncio.sleep(0.01)
        assert await leaver(store) == "west"


async def _is_free(store):
    """Return whether another cluster gets the lease, which it has then."""
    return isinstance(await lease_of(store, "west"), LeaseHeld)


async def test_a_cluster_that_is_stopped_hands_its_lease_over_and_says_when_the_last_run_has_ended(
    directory, pool, store
):
    actor = await directory()
    await until(actor.active)
    await until(lambda: seated(actor))
    [host] = [host for host in pool.hosts.values() if AGENT in host.agents]
    begun, run_ends = draining(host)
    stopping = asyncio.create_task(actor.stop(60.0))
    await begun.wait()
    await until(lambda: _is_free(store))
    assert await leaver(store) == "east"

    run_ends.set()
    await stopping
    assert await leaver(store) == ""


async def test_a_store_with_one_node_says_what_to_do_instead(directory):
    actor = await directory(store_url="sqlite:///x")

    with pytest.raises(UserError, match="owlclaw down"):
        await actor.drain(["one"])
