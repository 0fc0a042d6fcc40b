"""The Directory: which host holds which agent.

It decides, and it may be wrong: the store's compare-and-set on (agent, epoch) keeps a single writer even with two Directories, and the
term of its lease says which of two places agents. Its map is a cache, rebuilt from the living hosts; agents with work that nobody holds
are found by a sweep of the store, so a lost message loses nothing. (Prior art: Orleans' grain directory and Akka's shard coordinator,
which keep the map consistent by consensus; here the store already is the arbiter, so the map may be loose.)
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from owlclaw_ray.domain.agent import AgentRef, Isolation
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.errors import RetryableError
from owlclaw_ray.ids import RunId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.kernel.fair_order import Weights, equal_weights
from owlclaw_ray.placement.balance import plan_moves
from owlclaw_ray.placement.growth import Growth
from owlclaw_ray.placement.host_pool import Host, HostGoneError, HostPool
from owlclaw_ray.placement.placement_queue import TURN, PlacementQueue
from owlclaw_ray.placement.table import HostEntry, PlacementTable
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.queries import AgentsWithWork

MAX_IDLE_REPORTED = 1_000
"""How many idle agents a host names in a heartbeat, and so how many leave it at most with each."""
_RESPAWN_PAUSE = 0.5
_WITHDRAW_SECONDS = 5.0
_MAX_PREEMPTED = 100
"""Agents that a heartbeat takes from shared hosts at most, because others of their kind wait and none is idle."""
_SWEEP_LIMIT = 10_000
"""Agents with work that a sweep looks at. The next one looks at those behind them, until there are no more."""
_TAKEOVER_LIMIT = 1_000_000
"""Agents with work that a takeover looks at. Those of a dead host may have waited for less long than all others."""

_Leaving = Callable[[Sequence[AgentRef]], Awaitable[tuple[AgentRef, ...]]]

logger = logging.getLogger(__name__)


class Directory:
    """Places agents on hosts, wakes them, passivates the idle, takes over from the dead."""

    def __init__(
        self,
        *,
        pool: HostPool,
        store: QueryStore,
        isolation_of: Callable[[str], Isolation | None],
        placement: Placement,
        clock: Clock,
        growth: Growth | None = None,
        drained: Mapping[str, float] | None = None,
        weight: Weights = equal_weights,
        term: int = 0,
    ) -> None:
        """`isolation_of` says how a definition's agents are placed; None: that is not known yet, and its agents wait for the
        next sweep. `growth` asks for more machines; None: nobody does. `drained`: nodes that are drained already, with their graces.
        `weight`: of tenants, by which they get places when agents wait. `term`: under which the lease of the store is held, if it has one.
        """
        self._pool, self._store, self._isolation_of = pool, store, isolation_of
        self._placement, self._clock, self._growth = placement, clock, growth
        self._term = term
        self._line = PlacementQueue(placement.agents_per_actor, weight)
        self._placement_table = PlacementTable(placement.agents_per_actor, placement.memory_limit, self._line.seated)
        self._returning: set[AgentRef] = set()
        self._retired_hosts: set[str] = set()
        """Hosts that are being ended."""
        self._spawning: Counter[str] = Counter()
        """Hosts on their way to each node."""
        self._spreading = False
        """Agents move because machines have come, until none has far more than its share."""
        self._moved: set[AgentRef] = set()
        """Those handed over since: nobody moves twice."""
        self._drained = dict(drained or {})
        """Nodes that get no hosts and no agents, each with the grace of the calls that are under way there."""
        self._take_over_due = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._swept = self._closed = False
        self._swept_agents = 0
        """Of the agents with work, how many the last sweeps have looked at; the next one begins behind them."""

    async def start(self) -> None:
        """Learn the living hosts and look for work left behind, again and again.

        Spare hosts are made from the first sweep on: until then the processor belongs to those who are starting too.
        """
        await self._discover_hosts()
        self._spawn_task(self._attempt(self.take_over))
        self._spawn_task(self._every(self._placement.heartbeat, self._beat))
        self._spawn_task(self._every(self._placement.sweep, self.sweep))

    async def stop(self, grace: float, node_id: str = "") -> None:
        """Drain every host, or those of that node. Nothing is placed or woken any more: what is queued waits for the next start.

        With every host no machines are asked for any more, either; those of another node may be another Directory's that asks.
        """
        self._closed = True
        for task in tuple(self._tasks):
            task.cancel()
        seats = [seat for seat in self._placement_table if not node_id or seat.node.node_id == node_id]
        draining = [self._drain(seat.host, grace) for seat in seats]
        if self._growth is not None and not node_id:
            draining.append(self._withdraw(self._growth))
        await asyncio.gather(*draining)

    def close(self) -> None:
        """Place and wake nobody any more, and make no hosts: another cluster does. Drains that are under way go on."""
        self._closed = True
        if self._growth is not None:
            self._spawn_task(self._withdraw(self._growth))

    async def _withdraw(self, growth: Growth) -> None:
        try:
            async with deadline(self._clock, _WITHDRAW_SECONDS):
                await growth.withdraw()
        except Exception:
            logger.exception("the request for machines was not withdrawn: Ray's autoscaler may keep them")

    async def wake(self, agents: Sequence[AgentRef]) -> dict[AgentRef, str]:
        """Have each agent look for its runs, wherever it is or will be; return the hosts of those that have one now.

        The hosts are told in the background: one that does not answer delays nobody else's agents.
        """
        if self._closed:
            return {}
        waiting, seated = len(self._line), dict(self._admit())
        full: set[Isolation] = set()
        for agent in dict.fromkeys(agents):
            seat = self._host_entry_for(agent, full)
            if seat is not None:
                seated[agent] = seat
        at_home: dict[str, tuple[HostEntry, list[AgentRef]]] = {}
        for agent, seat in seated.items():
            at_home.setdefault(seat.host.host_id, (seat, []))[1].append(agent)
        for seat, residents in at_home.values():
            new = [agent for agent in residents if agent in seat.coming]
            seat.coming.update(new)
            self._spawn_task(self._deliver(seat, new, [agent for agent in residents if agent not in seat.coming]))
        if full or len(self._line) > waiting - len(seated):
            self._refill()
            self._make_room()
        return {agent: seat.host.host_id for agent, seat in seated.items()}

    async def cancel(self, agent: AgentRef, run_id: RunId) -> bool:
        """Tell the agent's host to end the run; return whether it was there."""
        seat = self._placement_table.host_entry_of(agent)
        if seat is None:
            return False
        try:
            return await seat.host.cancel(agent, run_id)
        except HostGoneError:
            self._remove_dead(seat)
            return False

    def host(self, host_id: str) -> Host | None:
        """Return a host by its id; None if it is gone."""
        seat = self._placement_table.get(host_id)
        return None if seat is None else seat.host

    async def drain_node(self, node_id: str, grace: float) -> None:
        """Give the node no hosts and no agents any more, end its hosts, and return when they have ended; see undrain_node.

        Each agent with a run leaves at the next step of the run, for which calls under way have `grace` seconds, and goes on elsewhere at
        once. Hosts that are found there later are drained too.
        """
        self._drained[node_id] = grace
        self._note_nodes()
        seats = [seat for seat in self._placement_table if seat.node.node_id == node_id and not seat.ending]
        for seat in seats:
            self._placement_table.end(seat)
        self._refill()
        await asyncio.gather(*(self._drain_seat(seat, grace) for seat in seats))

    @property
    def drained(self) -> frozenset[str]:
        """The nodes that are drained."""
        return frozenset(self._drained)

    async def undrain_node(self, node_id: str) -> None:
        """Let the node have hosts and agents again; hosts that are being drained end all the same."""
        if self._drained.pop(node_id, None) is not None:
            self._note_nodes()
            self._refill()
            await self._place_waiting()

    async def _drain_seat(self, seat: HostEntry, grace: float) -> None:
        agents = tuple(seat.agents)
        await self._release_from_host(seat, agents, seat.host.release)
        self.take_over_soon()  # the store refused them the runs that came since the node was marked
        await asyncio.gather(*(self._pass_on(seat, agent, grace) for agent in tuple(seat.agents)))
        await self._drain(seat.host, grace)  # agents that were on their way to it are refused
        if self._placement_table.remove(seat):
            self._retire_host(seat.host)
            self.take_over_soon()

    async def _drain_late(self, seat: HostEntry, grace: float) -> None:
        """Drain a host that was found on a drained node."""
        await self._reconcile_agents(seat)
        await self._drain_seat(seat, grace)

    def hosts(self) -> dict[str, int]:
        """Return the number of agents on each host."""
        return self._placement_table.counts()

    def lose_nodes(self, node_ids: Collection[str]) -> None:
        """Take over from all hosts of these machines, which the pool does not count among its nodes any more."""
        self._note_nodes()
        for seat in self._placement_table:
            if seat.host.node_id in node_ids:
                self._remove_dead(seat)
        self._refill()

    async def heartbeat(self) -> None:
        """Ask every host for its status: bury those that do not answer, passivate agents that are idle for long."""
        await asyncio.gather(*(self._check(seat) for seat in self._placement_table))
        await self._tidy()

    async def take_over(self) -> None:
        """Wake every agent that has queued or unfinished runs, wherever it was before."""
        await self.wake(await self._store.read(AgentsWithWork(_TAKEOVER_LIMIT)))

    def take_over_soon(self) -> None:
        """Wake the agents with work that have no host, behind the caller."""
        if not self._take_over_due and not self._closed:
            self._take_over_due = True
            self._spawn_task(self._attempt(self._take_over_lost))

    async def sweep(self) -> None:
        """Take over what nobody holds, take in hosts of which nobody heard, and keep the warm pool full."""
        found = await self._store.read(AgentsWithWork(_SWEEP_LIMIT, self._swept_agents))
        self._swept_agents = self._swept_agents + len(found) if len(found) == _SWEEP_LIMIT else 0
        await self.wake(found)
        self._swept = True
        await self._discover_hosts()
        self._refill()

    async def _discover_hosts(self) -> None:
        """Learn of hosts made by another Directory, or whose making or ending got no answer."""
        living = await self._pool.living()
        self._note_nodes()
        seats = [self._add_host(host) for host in living]
        await asyncio.gather(*(self._reconcile_agents(seat) for seat in seats if seat is not None))
        await self._place_waiting()

    async def _beat(self) -> None:
        """Do as `heartbeat`, without waiting for hosts that are slow to answer."""
        for seat in self._placement_table:
            self._spawn_task(self._check(seat))
        await self._tidy()

    async def _tidy(self) -> None:
        self._line.beat()
        self._note_nodes()
        self._placement_table.beat()
        await self._place_waiting()
        self._refill()
        self._make_room()
        self._move()
        self._shrink()
        if self._growth is not None and not self._closed:
            self._spawn_task(self._attempt(partial(self._grow, self._growth)))

    async def _check(self, seat: HostEntry) -> None:
        if seat.being_checked:
            return
        seat.being_checked = True
        try:
            status = await seat.host.status(MAX_IDLE_REPORTED)
        except HostGoneError:
            self._remove_dead(seat)
            return
        finally:
            seat.being_checked = False
        if self._placement_table.note(seat, status) and not seat.coming:
            await self._reconcile_agents(seat)
        limit = 0.0 if self._is_memory_pressed(seat) else self._placement.idle
        overdue = [agent for agent, seconds in seat.idle.items() if seconds >= limit]
        if overdue:
            self._spawn_task(self._release_from_host(seat, overdue, seat.host.release))

    async def _reconcile_agents(self, seat: HostEntry) -> None:
        before = frozenset(seat.agents)
        staying = before.difference(seat.coming, seat.leaving)
        try:
            hosted = await seat.host.hosted()
        except HostGoneError:
            self._remove_dead(seat)
            return
        hosted = tuple(agent for agent in hosted if agent in seat.agents or agent not in before)
        isolation = self._isolation_of(hosted[0].qualified_definition) if hosted else None
        self._placement_table.learn(seat, staying, hosted, isolation)

    async def _release_from_host(self, seat: HostEntry, agents: Sequence[AgentRef], leave: _Leaving) -> None:
        """Have agents leave their host; those that are woken meanwhile wait for it."""
        agents = [agent for agent in agents if agent not in seat.leaving and agent not in seat.coming]
        if not agents:
            return
        seat.leaving.update(agents)
        gone: tuple[AgentRef, ...] = ()
        try:
            gone = await leave(agents)
        except HostGoneError:
            self._remove_dead(seat)
        finally:
            seat.leaving.difference_update(agents)
        self._placement_table.left(seat, gone)
        returning = self._returning.intersection(agents)
        self._returning -= returning
        await self.wake(tuple(returning))

    async def _empty(self, seat: HostEntry) -> None:
        """Take a host from its agents, because others wait for it; those with work wait for their next turn themselves."""
        seat.checks = 0
        self._placement_table.close(seat)
        try:
            await self._release_from_host(seat, tuple(seat.idle), seat.host.release)
            await asyncio.gather(*(self._pass_on(seat, agent) for agent in tuple(seat.agents)))
        finally:
            self._placement_table.close(seat, closing=False)

    async def _pass_on(self, seat: HostEntry, agent: AgentRef, grace: float | None = None) -> None:
        await self._release_from_host(seat, [agent], partial(seat.host.hand_over, grace=grace))
        await self.wake([agent])

    def _admit(self) -> Iterator[tuple[AgentRef, HostEntry]]:
        """Seat those who wait, as far as there are places.

        A spare host is for the tenant that has least of its share. Whoever waits behind may still find a place on a shared one.
        """
        while seated := next(filter(None, map(self._place_front, self._line.queue_fronts())), None):
            self._line.leave(seated[0])
            yield seated

    def _place_front(self, front: tuple[AgentRef, Isolation]) -> tuple[AgentRef, HostEntry] | None:
        agent, isolation = front
        seat = self._placement_table.host_entry_of(agent) or self._placement_table.place(agent, isolation)
        return None if seat is None else (agent, seat)

    def _host_entry_for(self, agent: AgentRef, full: set[Isolation]) -> HostEntry | None:
        """Return the agent's host, a new one if it has none; None if it has to wait for one, or for its release from another.

        `full` collects the kinds of hosts that have no place left.
        """
        seat = self._placement_table.host_entry_of(agent)
        if seat is not None and agent in seat.leaving:
            self._returning.add(agent)
            return None
        if seat is None:
            isolation = self._isolation_of(agent.qualified_definition)
            if isolation is None:
                return None
            if not self._line.may_sit(agent, isolation):
                self._line.join(agent, isolation)
                return None
            seat = None if isolation in full else self._placement_table.place(agent, isolation)
            if seat is None:
                full.add(isolation)
                self._line.join(agent, isolation)
                return None
        self._line.leave(agent)
        return seat

    async def _deliver(self, seat: HostEntry, new: Sequence[AgentRef], old: Sequence[AgentRef]) -> None:
        """Have the host adopt the new agents and wake the old ones; adopt also those of them that it does not hold."""
        try:
            if new:
                await seat.host.adopt(new, self._term)
            unknown_agents = await seat.host.wake(old) if old else ()
            settled = [
                agent
                for agent in unknown_agents
                if self._placement_table.host_entry_of(agent) is seat and agent not in seat.leaving
            ]
            if settled:
                await self._adopt_unknown(seat, settled)
            await self.wake([agent for agent in unknown_agents if agent not in settled])
        except HostGoneError:
            if not seat.ending:  # or else whoever drains it looks for their runs when that is over
                self._remove_dead(seat)
                await self.wake((*new, *old))
        finally:
            seat.arrived(new)

    async def _adopt_unknown(self, seat: HostEntry, agents: Sequence[AgentRef]) -> None:
        seat.coming.update(agents)
        try:
            await seat.host.adopt(agents, self._term)
        finally:
            seat.arrived(agents)

    async def _place_waiting(self) -> None:
        await self.wake(())

    def _make_room(self) -> None:
        """For agents that wait though no host can be made any more for them: passivate the idle, or else take turns."""
        if self._closed:
            return
        for isolation in Isolation:
            waiting = self._line.number(isolation)
            if not waiting or (self._room() > 0 and self._line.has_front(isolation)):
                continue
            yields = self._line.yielding(isolation)
            idle = self._placement_table.preemptible_idle(isolation, waiting, yields)
            if not idle and self._line.front_lacks_share(isolation):
                idle = self._placement_table.preemptible_idle(isolation, 1)
            for seat, agents in idle:
                self._spawn_task(self._release_from_host(seat, agents, seat.host.release))
            if not idle:
                self._preempt(isolation, yields)

    async def _grow(self, growth: Growth) -> None:
        await growth.beat(
            {node_id: 0.0 if node_id in self._pool.bare else cpus for node_id, cpus in self._nodes().items()},
            waited=max(map(self._line.heartbeats_waited, Isolation)),
            room=self._room(),
            used=len(self._placement_table) - self._placement_table.spare(),
            most_hosts=self._placement.most,
        )

    def _nodes(self) -> Mapping[str, float]:
        """Return the machines that may have hosts, each with its number of CPUs."""
        return {node_id: cpus for node_id, cpus in self._pool.nodes.items() if node_id not in self._drained}

    def _note_nodes(self) -> None:
        self._line.set_hosts(self._placement.most * len(self._nodes()))
        if self._placement_table.set_nodes(self._nodes()):
            self._spreading = True
            self._moved.clear()

    def _move(self) -> None:
        """Have agents leave machines with far more than their share, after others have come, or with too little memory."""
        if self._closed or self._line:
            return
        moves = plan_moves(
            self._placement_table.nodes(),
            _MAX_PREEMPTED,
            capacity=self._placement.agents_per_actor,
            most_hosts=self._placement.most,
            spread=self._spreading,
            settled=self._moved,
        )
        for node_id in moves.hosts:
            if not self._spawning[node_id]:
                self._spawning[node_id] += 1
                self._spawn_task(self._spawn(node_id))
        if not moves.more:
            self._spreading = False
            self._moved.clear()
        for seat, agents in moves.idle:
            self._spawn_task(self._release_from_host(seat, agents, seat.host.release))
        for seat, agent in moves.busy:
            self._moved.add(agent)
            self._spawn_task(self._pass_on(seat, agent))

    def _preempt(self, isolation: Isolation, yields: Callable[[AgentRef], bool]) -> None:
        """Have as many hosts emptied as would do for those who wait, beside those that soon will be."""
        needed = self._hosts_for(isolation) - self._placement_table.closing(most_checks=TURN)
        if needed <= 0:
            return
        seats = self._placement_table.hosts_to_preempt(isolation, least_checks=TURN, yields=yields)
        if not seats and self._line.heartbeats_waited(isolation) >= TURN:
            if isolation is Isolation.SHARED:
                self._preempt_shared(yields)
            else:
                seats = self._placement_table.last_resort(least_checks=TURN)
        for seat in seats[:needed]:
            self._spawn_task(self._empty(seat))

    def _preempt_shared(self, yields: Callable[[AgentRef], bool]) -> None:
        """Where shared hosts are all that there is, and full: have agents that were there for longest make place for others."""
        number = min(self._line.number(Isolation.SHARED), _MAX_PREEMPTED)
        for seat, agent in self._placement_table.longest_placed(number, least_checks=TURN, yields=yields):
            self._spawn_task(self._pass_on(seat, agent))

    def _remove_dead(self, seat: HostEntry) -> None:
        """Forget a dead host, which is killed if it only hangs, and look for its agents' work at once."""
        if not self._placement_table.remove(seat):
            return
        logger.warning("host %s is gone; its %d agents are taken over", seat.host.host_id, len(seat.agents))
        self._retire_host(seat.host)
        self._refill()
        if seat.agents:
            self.take_over_soon()

    async def _take_over_lost(self) -> None:
        """Wake the agents with work that have no host, once for all hosts that have just been lost, or drained, together."""
        self._take_over_due = False
        agents = await self._store.read(AgentsWithWork(_TAKEOVER_LIMIT))
        await self.wake([agent for agent in agents if self._placement_table.host_entry_of(agent) is None])

    def _refill(self) -> None:
        """Make a host for each agent that waits, and `warm` spare ones once nobody does, as far as the limit allows."""
        if self._closed:
            return
        ahead, table = 0, self._placement_table
        if self._swept and not self._line and not table.is_pressed():
            ahead = self._placement.warm * len(self._nodes())
        wanted = sum(map(self._hosts_for, Isolation)) + ahead - table.spare() - self._on_their_way()
        for _ in range(wanted):
            node_id = table.node_for_host(self._placement.most, self._spawning)
            if node_id is None:
                return
            self._spawning[node_id] += 1
            self._spawn_task(self._spawn(node_id))

    def _shrink(self) -> None:
        """End one of the spare hosts that are more than the warm pool, to give its memory back."""
        if self._line or not self._swept or self._closed:
            return
        surplus = self._placement_table.superfluous(self._placement.warm * len(self._nodes()))
        if surplus is not None and self._placement_table.remove(surplus):
            self._retire_host(surplus.host)

    def _hosts_for(self, isolation: Isolation) -> int:
        """Return how many hosts the agents would fill that wait for a place of that kind."""
        each = self._placement.agents_per_actor if isolation is Isolation.SHARED else 1
        return -(-self._line.number(isolation) // each)

    def _on_their_way(self) -> int:
        """Return how many hosts are coming; those of a machine that is gone, lost or drained never do."""
        return sum(self._spawning[node_id] for node_id in self._nodes())

    def _room(self) -> int:
        return self._placement_table.room(self._placement.most, self._spawning)

    def _is_memory_pressed(self, seat: HostEntry) -> bool:
        return seat.memory > self._placement.memory_limit

    async def _spawn(self, node_id: str) -> None:
        try:
            host = await self._pool.spawn(node_id)
        except RetryableError as error:
            logger.warning("a host was not made, another is tried soon: %s", error)
            await self._clock.sleep(_RESPAWN_PAUSE)
            host = None
        finally:
            self._spawning[node_id] -= 1
        if host is None:
            self._note_nodes()
            self._refill()
        else:
            self._add_host(host)
            await self._place_waiting()

    def _add_host(self, host: Host) -> HostEntry | None:
        """Return the host's new seat; None if it is known, or being ended, or on a drained node, where it is drained."""
        if host.host_id in self._placement_table or host.host_id in self._retired_hosts:
            return None
        seat = self._placement_table.add(host)
        self._spawn_task(self._watch_exit(seat))
        grace = self._drained.get(host.node_id)
        if grace is None:
            return seat
        self._placement_table.end(seat)
        self._spawn_task(self._drain_late(seat, grace))
        return None

    def _retire_host(self, host: Host) -> None:
        self._retired_hosts.add(host.host_id)
        self._spawn_task(self._end(host))

    async def _end(self, host: Host) -> None:
        try:
            await self._pool.kill(host)
        finally:
            self._retired_hosts.discard(host.host_id)

    async def _watch_exit(self, seat: HostEntry) -> None:
        await seat.host.ended()
        self._remove_dead(seat)

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
