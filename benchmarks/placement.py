"""What the Directory costs with a hundred machines and a million agents: the real one, over hosts that only keep lists.

No time is waited for: heartbeats are begun here, one after the other. Messages are counted where a host gets them, and their
bytes are those of the pickled arguments and answers. How placing grows is measured with few machines and with many in the same
process.
"""

from __future__ import annotations

import asyncio
import pickle
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from benchmarks.question import Answer, Figure, Say, Size
from owlclaw_ray.domain.agent import AgentRef, Isolation
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.ids import RunId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.placement.balance import TOLERANCE
from owlclaw_ray.placement.directory import Directory
from owlclaw_ray.placement.host import HostStatus
from owlclaw_ray.placement.host_pool import Host, HostGoneError
from owlclaw_ray.store.queries import AgentsWithWork, Query

T = TypeVar("T")

TITLE = "placement of agents on many machines"
FLEETS = {Size.SMOKE: (20, 20_000, 100), Size.FULL: (100, 1_000_000, 1_000)}
"""Machines, agents, and how many of them share a host."""
FEW = 10
"""How many times fewer the small fleet has of both, for the baseline."""
JOINING = 0.1
IDLE_SHARE = 0.2
"""Of the agents of a host, when heartbeats are measured."""
_BATCH = 1_000
"""Agents woken at once."""
_TURNS_TO_NOTICE = 5
_GOAL_GROWTH = 2.0
_GOAL_REPLACING = 5.0
_SPREAD = 1.1


@dataclass
class Traffic:
    """Messages to hosts and their bytes, by kind."""

    messages: Counter[str] = field(default_factory=Counter)
    size: Counter[str] = field(default_factory=Counter)
    weigh: bool = False

    def note(self, kind: str, *parts: object) -> None:
        """Count one message."""
        self.messages[kind] += 1
        if self.weigh:
            self.size[kind] += len(pickle.dumps(parts))


class ListedHost:
    """Implements Host with a list of agents, of which a share is idle."""

    def __init__(self, host_id: str, node_id: str, traffic: Traffic) -> None:
        self._host_id, self._node_id, self._traffic = host_id, node_id, traffic
        self.agents: dict[AgentRef, None] = {}
        self.idle_share = 0.0
        self._dead = asyncio.Event()

    @property
    def host_id(self) -> str:
        """See Host.host_id."""
        return self._host_id

    @property
    def node_id(self) -> str:
        """See Host.node_id."""
        return self._node_id

    def die(self) -> None:
        """End as a lost machine's host does."""
        self._dead.set()

    async def adopt(self, agents: Sequence[AgentRef], term: int) -> None:
        """See Host.adopt."""
        del term
        self._note("adopt", agents)
        self.agents.update(dict.fromkeys(agents))

    async def wake(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See Host.wake."""
        self._note("wake", agents)
        return tuple(agent for agent in agents if agent not in self.agents)

    async def cancel(self, agent: AgentRef, run_id: RunId) -> bool:
        """See Host.cancel."""
        self._note("cancel", agent, run_id)
        return agent in self.agents

    async def release(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See Host.release."""
        return self._leave("release", agents)

    async def hand_over(self, agents: Sequence[AgentRef], grace: float | None = None) -> tuple[AgentRef, ...]:
        """See Host.hand_over."""
        del grace
        return self._leave("hand_over", agents)

    async def status(self, most: int) -> HostStatus:
        """See Host.status."""
        number = min(most, int(len(self.agents) * self.idle_share))
        idle = tuple((agent, 1.0) for agent, _ in zip(self.agents, range(number), strict=False))
        status = HostStatus(len(self.agents), idle, 0.1)
        self._note("status", status)
        return status

    async def hosted(self) -> tuple[AgentRef, ...]:
        """See Host.hosted."""
        self._note("hosted", self.agents)
        return tuple(self.agents)

    async def ended(self) -> None:
        """See Host.ended."""
        await self._dead.wait()

    async def drain(self, grace: float) -> None:
        """See Host.drain."""
        self._note("drain", grace)

    def _leave(self, kind: str, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        self._note(kind, agents)
        for agent in agents:
            self.agents.pop(agent, None)
        return tuple(agents)

    def _note(self, kind: str, *parts: object) -> None:
        if self._dead.is_set():
            raise HostGoneError(self._host_id)
        self._traffic.note(kind, *parts)


class ListedPool:
    """Implements HostPool; machines come and go as the measurement says."""

    def __init__(self, cpus: Mapping[str, float], traffic: Traffic) -> None:
        self.cpus, self.hosts, self._traffic = dict(cpus), dict[str, ListedHost](), traffic
        self._made = 0

    @property
    def nodes(self) -> Mapping[str, float]:
        """See HostPool.nodes."""
        return self.cpus

    @property
    def bare(self) -> frozenset[str]:
        """See HostPool.bare."""
        return frozenset()

    async def spawn(self, node_id: str) -> Host:
        """See HostPool.spawn."""
        self._made += 1
        host = ListedHost(f"host-{self._made}", node_id, self._traffic)
        self.hosts[host.host_id] = host
        return host

    async def living(self) -> Sequence[Host]:
        """See HostPool.living."""
        return tuple(self.hosts.values())

    async def kill(self, host: Host) -> None:
        """See HostPool.kill."""
        gone = self.hosts.pop(host.host_id, None)
        if gone is not None:
            gone.die()

    def lose(self, node_id: str) -> int:
        """Have a machine vanish; return how many agents it had."""
        del self.cpus[node_id]
        lost = [host for host in self.hosts.values() if host.node_id == node_id]
        for host in lost:
            del self.hosts[host.host_id]
            host.die()
        return sum(len(host.agents) for host in lost)

    def loads(self) -> dict[str, float]:
        """Return the agents of each machine for each of its CPUs."""
        agents = Counter(dict.fromkeys(self.cpus, 0))
        for host in self.hosts.values():
            agents[host.node_id] += len(host.agents)
        return {node_id: agents[node_id] / cpus for node_id, cpus in self.cpus.items()}


class AllWork:
    """Implements QueryStore: every agent has work."""

    def __init__(self, agents: Sequence[AgentRef]) -> None:
        self._agents = agents

    async def read(self, query: Query[T]) -> T:
        """Answer which agents have work."""
        assert isinstance(query, AgentsWithWork)
        return cast("T", tuple(self._agents[query.skip : query.skip + query.limit]))


@dataclass(frozen=True)
class Found:
    """What one fleet showed. Times in seconds of this process's processor."""

    machines: int
    agents: int
    hosts: int
    placing: float
    waking: float
    heartbeat: float
    heartbeat_bytes: int
    lost: int
    replacing: float
    joining: float
    spread: float
    """Agents a CPU of the fullest machine, over the mean."""
    spread_after_loss: float
    spread_after_join: float
    beats: int
    """Heartbeats until the machines that joined have their share."""
    memory: int
    """Bytes by which this process has grown."""
    messages: Mapping[str, int]
    """Until the machines that joined have their share."""


async def measure(machines: int, agents: int, capacity: int, say: Say) -> Found:
    """Place so many agents on so many machines of two sizes, wake them, lose a machine, have others join."""
    traffic = Traffic()
    pool = ListedPool({f"node-{each}": 8.0 if each % 2 else 16.0 for each in range(machines)}, traffic)
    crowd = [AgentRef.parse(f"crowd:{each}") for each in range(agents)]
    before = _resident()
    directory = Directory(
        pool=pool,
        store=AllWork(crowd),
        isolation_of=lambda _: Isolation.SHARED,
        placement=Placement(warm=0, agents_per_actor=capacity, heartbeat=1e9, sweep=1e9, idle=1e9),
        clock=SystemClock(),
    )
    await directory._discover_hosts()  # noqa: SLF001 - `start` would begin heartbeats of its own
    placing = await _wake(directory, crowd)
    memory, spread, hosts = _resident() - before, _spread(pool), len(pool.hosts)
    say(f"{agents:,} agents on {machines} machines: placed in {placing:.1f} s")
    waking = await _wake(directory, crowd)
    heartbeat = await _beat(directory, pool, traffic)
    began = time.process_time()
    lost = pool.lose("node-0")
    await _settle(directory)
    replacing, spread_after_loss = time.process_time() - began, _spread(pool)
    say(f"{lost:,} agents of a lost machine: placed again in {replacing:.1f} s")
    pool.cpus |= {f"joined-{each}": 16.0 for each in range(max(1, int(JOINING * machines)))}
    began = time.process_time()
    traffic.messages.clear()
    beats = await _beat_until_even(directory, pool, agents)
    joining = time.process_time() - began
    say(f"{max(1, int(JOINING * machines))} machines more: even after {beats} heartbeats, {joining:.1f} s")
    spread_after_join = _spread(pool)
    await directory.stop(0)
    size = traffic.size["status"]
    return Found(
        machines,
        agents,
        hosts,
        placing,
        waking,
        heartbeat,
        size,
        lost,
        replacing,
        joining,
        spread,
        spread_after_loss,
        spread_after_join,
        beats,
        memory,
        dict(traffic.messages),
    )


def answer(size: Size, say: Say) -> Answer:
    """Measure a fleet, and a smaller one beside it."""
    return asyncio.run(_answer(size, say))


async def _answer(size: Size, say: Say) -> Answer:
    machines, agents, capacity = FLEETS[size]
    small = await measure(machines // FEW, agents // FEW, capacity, say)
    found = await measure(machines, agents, capacity, say)
    return Answer("placement", figures(found, small), details={"small": vars(small), "large": vars(found)})


def figures(found: Found, small: Found) -> tuple[Figure, ...]:
    """Return the costs of the fleet, each for one agent or one host beside that of the small fleet."""
    fewer = f"the same with {small.machines} machines and {small.agents:,} agents"
    fleet = f"{found.machines} machines, {found.agents:,} agents"

    def grows(name: str, seconds: Callable[[Found], float]) -> Figure:
        cost, baseline = 1e6 * seconds(found), 1e6 * seconds(small)
        return Figure(
            f"{name}, {fleet}",
            round(cost, 3),
            "CPU-us",
            baseline=round(baseline, 3),
            baseline_is=fewer,
            goal=f"at most {_GOAL_GROWTH:g} times the baseline",
            met=cost <= _GOAL_GROWTH * baseline,
        )

    return (
        grows("placing_an_agent", lambda each: each.placing / each.agents),
        grows("waking_an_agent", lambda each: each.waking / each.agents),
        grows("heartbeat_of_a_host", lambda each: each.heartbeat / each.hosts),
        Figure("placements_per_second", round(found.agents / found.placing), "/s"),
        Figure("wakes_per_second", round(found.agents / found.waking), "/s", note=f"in calls of {_BATCH:,} agents"),
        Figure(
            "memory_of_an_agent",
            round(found.memory / found.agents),
            "bytes",
            note="of the Directory and the simulation",
        ),
        Figure(
            "bytes_of_status_in_a_heartbeat",
            found.heartbeat_bytes,
            "bytes",
            note=f"{found.hosts:,} hosts, each with {IDLE_SHARE:.0%} of its agents idle",
        ),
        Figure(
            "placing_again_the_agents_of_a_lost_machine",
            round(found.replacing, 3),
            "CPU-s",
            baseline=round(small.replacing, 3),
            baseline_is=fewer,
            goal=f"at most {_GOAL_REPLACING:g} s",
            met=found.replacing <= _GOAL_REPLACING,
            note=f"{found.lost:,} agents; all of the fleet have work, and the Directory reads who they are",
        ),
        _spread_figure("spread", found.spread),
        _spread_figure("spread_after_a_machine_is_lost", found.spread_after_loss),
        _spread_figure("spread_after_machines_joined", found.spread_after_join, 1 + TOLERANCE),
        Figure("heartbeats_until_machines_that_join_have_their_share", found.beats, "heartbeats"),
        Figure("heartbeat_when_machines_join", round(found.joining / found.beats, 3), "CPU-s"),
    )


def _spread_figure(name: str, spread: float, most: float = _SPREAD) -> Figure:
    what = "agents a CPU of the fullest machine, over the mean of all"
    return Figure(name, round(spread, 3), "times", goal=f"at most {most:g}", met=spread <= most, note=what)


async def _wake(directory: Directory, crowd: Sequence[AgentRef]) -> float:
    """Wake all; return the seconds of processor time until the hosts know."""
    began = time.process_time()
    for some in _batches(crowd):
        await directory.wake(some)
        await asyncio.sleep(0)
    await _settle(directory)
    return time.process_time() - began


def _batches(crowd: Sequence[AgentRef]) -> Iterator[Sequence[AgentRef]]:
    for start in range(0, len(crowd), _BATCH):
        yield crowd[start : start + _BATCH]


async def _beat(directory: Directory, pool: ListedPool, traffic: Traffic) -> float:
    """Have a heartbeat of all hosts; return its seconds of processor time, and weigh the messages of a second one."""
    for host in pool.hosts.values():
        host.idle_share = IDLE_SHARE
    began = time.process_time()
    await directory.heartbeat()
    spent = time.process_time() - began
    traffic.weigh = True
    await directory.heartbeat()
    traffic.weigh = False
    return spent


async def _settle(directory: Directory) -> None:
    """Return once nothing is under way but the waits for the ends of hosts; those of lost ones are noticed first."""
    for _ in range(_TURNS_TO_NOTICE):
        await asyncio.sleep(0)
    while len(directory._tasks) > len(directory.hosts()):  # noqa: ASYNC110, SLF001 - it has no event for it
        await asyncio.sleep(0)


async def _beat_until_even(directory: Directory, pool: ListedPool, most: int) -> int:
    """Return the number of heartbeats until nobody moves, where all agents have work: they are handed over."""
    for host in pool.hosts.values():
        host.idle_share = 0.0
    for number in range(1, most):
        await directory.heartbeat()
        await _settle(directory)
        if not directory._spreading:  # noqa: SLF001 - only it knows
            return number
    raise AssertionError(f"agents still move after {most} heartbeats")


def _spread(pool: ListedPool) -> float:
    loads = pool.loads()
    total = sum(loads[node] * cpus for node, cpus in pool.cpus.items())
    return max(loads.values()) * sum(pool.cpus.values()) / total


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
