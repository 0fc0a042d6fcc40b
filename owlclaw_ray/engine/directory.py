"""The Directory: which host holds which agent.

It decides, and it may be wrong: the store's compare-and-set on (agent, epoch) keeps a single writer even with two Directories. Its map
is a cache, rebuilt from the living hosts; agents with work that nobody holds are found by a sweep of the store, so a lost
message loses nothing. (Prior art: Orleans' grain directory and Akka's shard coordinator, which keep the map consistent by
consensus; here the store already is the arbiter, so the map may be loose.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from owlclaw_ray.domain.agent import AgentRef, Isolation
from owlclaw_ray.engine.host_pool import Host, HostGoneError, HostPool
from owlclaw_ray.errors import RetryableError
from owlclaw_ray.ids import RunId
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.store import RunStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Placement:
    """How many hosts, and when agents leave them. Times in seconds."""

    warm: int = 2
    """Hosts made ahead of need."""
    most: int = 64
    agents_per_actor: int = 1_000
    """Capacity of a host with shared isolation."""
    idle: float = 60.0
    heartbeat: float = 1.0
    sweep: float = 5.0


@dataclass(slots=True)
class _Seat:
    """A host and what the Directory believes of it."""

    host: Host
    isolation: Isolation | None = None
    """None for a spare one."""
    agents: set[AgentRef] = field(default_factory=set)
    idle: dict[AgentRef, float] = field(default_factory=dict)
    leaving: set[AgentRef] = field(default_factory=set)
    """Agents whose release is under way (it may wait long for the store): whoever wakes one waits for its end."""


class Directory:
    """Places agents on hosts, wakes them, passivates the idle, takes over from the dead."""

    def __init__(
        self,
        *,
        pool: HostPool,
        store: RunStore,
        isolation_of: Callable[[str], Isolation],
        placement: Placement,
        clock: Clock,
    ) -> None:
        self._pool, self._store, self._isolation_of = pool, store, isolation_of
        self._placement, self._clock = placement, clock
        self._seats: dict[str, _Seat] = {}
        self._where: dict[AgentRef, str] = {}
        self._waiting: dict[AgentRef, None] = {}
        self._spawning = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._swept = self._closed = False

    async def start(self) -> None:
        """Learn the living hosts and look for work left behind, again and again.

        Spare hosts are made from the first sweep on: until then the processor belongs to those who are starting too.
        """
        for host in await self._pool.living():
            self._seats[host.host_id] = _Seat(host)
        await self.heartbeat()
        self._spawn_task(self._attempt(self.take_over))
        self._spawn_task(self._every(self._placement.heartbeat, self.heartbeat))
        self._spawn_task(self._every(self._placement.sweep, self.sweep))

    async def stop(self, grace: float) -> None:
        """Drain every host. Nothing is placed or woken any more: what is queued waits for the next start."""
        self._closed = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*(self._drain(seat.host, grace) for seat in self._seats.values()))

    async def wake(self, agents: Sequence[AgentRef]) -> dict[AgentRef, str]:
        """Have each agent look for its runs, wherever it is or will be; return the hosts of those that have one now."""
        if self._closed:
            return {}
        at_home: dict[str, list[AgentRef]] = {}
        for agent in dict.fromkeys(agents):
            seat_id = self._home_of(agent) or self._place(agent)
            if seat_id is not None:
                at_home.setdefault(seat_id, []).append(agent)
        await asyncio.gather(*(self._deliver(seat_id, residents) for seat_id, residents in at_home.items()))
        return {agent: self._where[agent] for agent in agents if agent in self._where}

    async def cancel(self, agent: AgentRef, run_id: RunId) -> bool:
        """Tell the agent's host to end the run; return whether it was there."""
        seat = self._seats.get(self._where.get(agent, ""))
        if seat is None:
            return False
        try:
            return await seat.host.cancel(agent, run_id)
        except HostGoneError:
            self._bury(seat)
            return False

    def hosts(self) -> dict[str, int]:
        """Return the number of agents on each host."""
        return {host_id: len(seat.agents) for host_id, seat in self._seats.items()}

    async def heartbeat(self) -> None:
        """Ask every host for its status: bury those that do not answer, passivate agents that are idle for long."""
        await asyncio.gather(*(self._check(seat) for seat in tuple(self._seats.values())))
        await self._seat_waiting()
        self._refill()
        self._shrink()

    async def take_over(self) -> None:
        """Wake every agent that has queued or unfinished runs, wherever it was before."""
        await self.wake(await self._store.agents_with_work())

    async def sweep(self) -> None:
        """Take over what nobody holds, and keep the warm pool full."""
        await self.take_over()
        self._swept = True
        self._refill()

    async def _check(self, seat: _Seat) -> None:
        try:
            status = await seat.host.status()
        except HostGoneError:
            self._bury(seat)
            return
        reported = set(status.hosted)
        for agent in reported - seat.agents:
            self._where.setdefault(agent, seat.host.host_id)
        seat.agents = {agent for agent in seat.agents | reported if self._where.get(agent) == seat.host.host_id}
        if seat.agents and seat.isolation is None:
            seat.isolation = self._isolation_of(next(iter(seat.agents)).definition)
        seat.idle = dict(status.idle)
        overdue = [agent for agent, seconds in seat.idle.items() if seconds >= self._placement.idle]
        if overdue:
            self._spawn_task(self._release(seat, overdue))

    async def _release(self, seat: _Seat, agents: Sequence[AgentRef]) -> None:
        if seat.leaving:
            return
        seat.leaving.update(agents)
        try:
            gone = await seat.host.release(agents)
        except HostGoneError:
            self._bury(seat)
            return
        finally:
            seat.leaving.clear()
        for agent in gone:
            self._where.pop(agent, None)
            seat.agents.discard(agent)
            seat.idle.pop(agent, None)
        if not seat.agents:
            seat.isolation = None
        await self._seat_waiting()

    def _home_of(self, agent: AgentRef) -> str | None:
        """Return the agent's host, unless the agent is just leaving it."""
        seat = self._seats.get(self._where.get(agent, ""))
        if seat is None:
            self._where.pop(agent, None)
            return None
        if agent in seat.leaving:
            return None
        self._waiting.pop(agent, None)
        return seat.host.host_id

    def _place(self, agent: AgentRef) -> str | None:
        """Give the agent a host and return it; None if it has to wait for one, or for its release from another."""
        if agent in self._where:
            self._waiting[agent] = None
            return None
        isolation = self._isolation_of(agent.definition)
        seat = self._free_seat(isolation)
        if seat is None:
            self._waiting[agent] = None
            self._refill()
            self._make_room()
            return None
        self._waiting.pop(agent, None)
        seat.isolation = isolation
        seat.agents.add(agent)
        self._where[agent] = seat.host.host_id
        return seat.host.host_id

    def _free_seat(self, isolation: Isolation) -> _Seat | None:
        if isolation is Isolation.SHARED:
            capacity = self._placement.agents_per_actor
            shared = [
                each for each in self._seats.values() if each.isolation is isolation and len(each.agents) < capacity
            ]
            if shared:
                return min(shared, key=lambda each: len(each.agents))
        return next((each for each in self._seats.values() if each.isolation is None), None)

    def _make_room(self) -> None:
        """Passivate the agent that is idle longest, if that frees a host which could not be made."""
        if len(self._seats) + self._spawning < self._placement.most:
            return
        idle = [
            (seconds, agent, seat)
            for seat in self._seats.values()
            if seat.isolation is Isolation.DEDICATED
            for agent, seconds in seat.idle.items()
        ]
        if idle:
            _, agent, seat = max(idle, key=lambda each: each[0])
            self._spawn_task(self._release(seat, [agent]))

    async def _deliver(self, seat_id: str, agents: Sequence[AgentRef]) -> None:
        """Wake the agents on their host, adopting those that it does not hold."""
        seat = self._seats.get(seat_id)
        if seat is None:
            return
        try:
            strangers = await seat.host.wake(agents)
            if strangers:
                await seat.host.adopt(strangers)
        except HostGoneError:
            self._bury(seat)
            self._waiting.update(dict.fromkeys(agents))
            self._spawn_task(self._seat_waiting())

    async def _seat_waiting(self) -> None:
        if self._waiting and not self._closed:
            await self.wake(tuple(self._waiting))

    def _bury(self, seat: _Seat) -> None:
        """Forget a dead host and look for its agents' work at once."""
        if self._seats.pop(seat.host.host_id, None) is None:
            return
        logger.warning("host %s is gone; its %d agents are taken over", seat.host.host_id, len(seat.agents))
        for agent in seat.agents:
            if self._where.get(agent) == seat.host.host_id:
                del self._where[agent]
        self._spawn_task(self._pool.kill(seat.host))
        self._refill()
        if seat.agents:
            self._spawn_task(self._attempt(self.take_over))

    def _refill(self) -> None:
        """Keep `warm` spare hosts, and one for each agent that waits, as far as the limit allows."""
        if self._closed:
            return
        spare = sum(seat.isolation is None for seat in self._seats.values())
        wanted = (
            self._hosts_wanted_by(self._waiting) + (self._placement.warm if self._swept else 0) - spare - self._spawning
        )
        room = self._placement.most - len(self._seats) - self._spawning
        for _ in range(min(wanted, room)):
            self._spawning += 1
            self._spawn_task(self._spawn())

    def _shrink(self) -> None:
        """End one of the spare hosts that are more than the warm pool, to give its memory back."""
        spare = [seat for seat in self._seats.values() if seat.isolation is None]
        if len(spare) > self._placement.warm and not self._waiting and self._swept and not self._closed:
            del self._seats[spare[-1].host.host_id]
            self._spawn_task(self._pool.kill(spare[-1].host))

    def _hosts_wanted_by(self, agents: Iterable[AgentRef]) -> int:
        dedicated = sum(self._isolation_of(agent.definition) is Isolation.DEDICATED for agent in agents)
        shared = len(self._waiting) - dedicated
        return dedicated + -(-shared // self._placement.agents_per_actor)

    async def _spawn(self) -> None:
        try:
            host = await self._pool.spawn()
            self._seats[host.host_id] = _Seat(host)
        finally:
            self._spawning -= 1
        await self._seat_waiting()

    async def _drain(self, host: Host, grace: float) -> None:
        try:
            await host.drain(grace)
        except HostGoneError:
            logger.warning("host %s died while draining", host.host_id)

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._clock.sleep(seconds)
            await self._attempt(work)

    async def _attempt(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except RetryableError as error:
            logger.warning("the Directory tries again later: %s", error)
        except Exception:
            logger.exception("the Directory's work failed; it is tried again later")

    def _spawn_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("background work of the Directory failed", exc_info=task.exception())
