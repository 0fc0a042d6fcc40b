"""The pool of hosts over the roots of nodes, without Ray."""

from __future__ import annotations

import asyncio

import pytest

from actors.hosts import ActorHost, RootedPool
from actors.nodes import Node, node_of
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.placement.host import HostStatus
from owlclaw_ray.placement.host_pool import HostGoneError
from owlclaw_ray.placement.lease import SupersededError
from owlclaw_ray.placement.node_fence import NodeCutError
from owlclaw_ray.testing.clock import ManualClock

NODES = ("one", "two")


class Root:
    """Has one host; raises `trouble`, if there is any, instead of an answer."""

    def __init__(self, node_id):
        self.call, self.node_id, self.trouble = self, node_id, None
        self.terms = []

    async def end_host(self, host_id, term):
        self.terms.append(("end", term))
        if self.trouble is not None:
            raise self.trouble

    async def hosts(self, term):
        self.terms.append(("hosts", term))
        if self.trouble is not None:
            raise self.trouble
        return ((f"host of {self.node_id}", None),)

    async def spawn_host(self, term):
        self.terms.append(("spawn", term))
        if self.trouble is not None:
            raise self.trouble
        return f"new host of {self.node_id}", None


@pytest.fixture
def roots(monkeypatch):
    roots = {node_id: Root(node_id) for node_id in NODES}
    monkeypatch.setattr("actors.hosts.NamedActor", lambda _part, _namespace, node_id: roots[node_id])
    monkeypatch.setattr("actors.hosts.named", lambda _: [{f"root@{node_id}" for node_id in NODES}])
    monkeypatch.setattr("actors.hosts.living_nodes", lambda: tuple(Node(each, each, frozenset()) for each in NODES))
    return roots


@pytest.fixture
async def pool(roots):
    pool = RootedPool("owlclaw", 1.0)
    await pool.living()
    return pool


async def names(pool):
    return {host.host_id for host in await pool.living()}


async def test_a_node_that_refuses_a_host_because_it_does_not_reach_the_store_is_left_out_until_it_tells_of_its_hosts(
    pool, roots
):
    roots["two"].trouble = NodeCutError("cut")
    with pytest.raises(NodeCutError):
        await pool.spawn("two")
    assert pool.nodes.keys() == {"one"}
    assert await names(pool) == {"host of one"}
    assert pool.nodes.keys() == {"one"}

    roots["two"].trouble = None
    assert await names(pool) == {"host of one", "host of two"}

    assert pool.nodes.keys() == {"one", "two"}


async def test_a_node_that_says_of_its_hosts_that_it_does_not_reach_the_store_is_left_out(pool, roots):
    roots["two"].trouble = NodeCutError("cut")

    assert await names(pool) == {"host of one"}

    assert pool.nodes.keys() == {"one"}


async def test_a_node_whose_root_is_being_restarted_stays_among_the_nodes(pool, roots):
    roots["two"].trouble = RuntimeUnavailableError("being restarted")

    assert await names(pool) == {"host of one"}
    assert pool.silent == {"two"}
    with pytest.raises(RuntimeUnavailableError):
        await pool.spawn("two")

    assert pool.nodes.keys() == {"one", "two"}


async def test_a_node_that_offers_no_cpus_counts_as_one_and_is_told_apart(monkeypatch, roots):
    def told(node_id, **resources):
        return node_of({"NodeID": node_id, "NodeManagerHostname": node_id, "Resources": resources})

    nodes = told("one", tool_slots=2.0), told("two", CPU=4.0)
    monkeypatch.setattr("actors.hosts.living_nodes", lambda: nodes)
    pool = RootedPool("owlclaw", 1.0)
    await pool.living()

    assert pool.nodes == {"one": 1.0, "two": 4.0}
    assert pool.bare == {"one"}


async def test_roots_are_told_the_term_of_the_directory_whose_orders_they_get(pool, roots):
    pool.term = 7
    del roots["one"].terms[:]

    [host, _] = await pool.living()
    await pool.spawn("one")
    await pool.kill(host)

    assert roots["one"].terms == [("hosts", 7), ("spawn", 7), ("end", 7)]


async def test_a_root_that_refuses_the_order_of_a_superseded_directory_keeps_its_host(pool, roots):
    [host, _] = await pool.living()
    roots["one"].trouble = SupersededError("term 1")

    await pool.kill(host)

    assert await names(pool) == {"host of two"}


CROWD = [AgentRef.parse(f"watch:{number}") for number in range(390)]


class Agents:
    """An agent actor that answers as soon as it `may`, and its host."""

    def __init__(self):
        self.busy, self.running, self.may, self.clock = False, 0, asyncio.Event(), ManualClock()
        self.host = ActorHost("host-1", "one", self, 6.0, self.clock)

    async def adopt(self, agents, term):
        pass

    async def wake(self, agents):
        return ()

    async def status(self, most):
        await self.may.wait()
        return HostStatus(0, running=self.running, busy=self.busy)

    async def say(self, *, busy=False, running=0):
        """Have the host ask, and be told this at once."""
        self.busy, self.running = busy, running
        self.may.set()
        await self.host.status(0)
        self.may.clear()

    async def answer_after(self, seconds):
        """Have the host ask, and be answered so many seconds later; return what it makes of that."""
        asked = asyncio.create_task(self.host.status(0))
        await self.clock.wait_for_sleepers()
        await self.clock.advance(seconds)
        self.may.set()
        [answer] = await asyncio.gather(asked, return_exceptions=True)
        return answer


async def nothing(agents):
    pass


async def idle(agents):
    await agents.host.adopt(CROWD, 1)
    await agents.say()


async def busy_machine(agents):
    await agents.say(busy=True)


async def adopted(agents):
    await agents.host.adopt(CROWD, 1)


async def woken(agents):
    await agents.host.wake(CROWD)


async def at_work(agents):
    await agents.say(running=len(CROWD))


async def at_work_and_woken_again(agents):
    await agents.say(running=len(CROWD))
    await agents.host.wake(CROWD)
    await agents.host.wake(CROWD)


async def at_work_and_others_adopted(agents):
    await agents.say(running=len(CROWD))
    await agents.host.adopt([AgentRef.parse(f"other:{number}") for number in range(len(CROWD))], 1)


async def woken_while_asked(agents):
    asked = asyncio.create_task(agents.host.status(0))
    await agents.clock.wait_for_sleepers()
    await agents.host.wake(CROWD)
    agents.may.set()
    await asked
    agents.may.clear()


@pytest.mark.parametrize(
    ("before", "in_time", "too_late"),
    [
        (nothing, 5, 7),
        (idle, 5, 7),
        (busy_machine, 20, 22),
        (adopted, 29, 30),
        (woken, 29, 30),
        (at_work, 29, 30),
        (at_work_and_woken_again, 29, 30),
        (at_work_and_others_adopted, 52, 54),
        (woken_while_asked, 29, 30),
    ],
)
async def test_a_host_may_answer_later_where_its_machine_is_busy_or_many_agents_begin_or_are_at_work_and_not_for_ever(
    monkeypatch, before, in_time, too_late
):
    monkeypatch.setattr("actors.hosts.calls", lambda actor: actor)
    answers = []
    for seconds in (in_time, too_late):
        agents = Agents()
        await before(agents)
        answers.append(await agents.answer_after(seconds))

    assert list(map(type, answers)) == [HostStatus, HostGoneError]
