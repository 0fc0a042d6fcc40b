"""The Directory's actor: placement, and the one watcher of definitions."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections import Counter
from collections.abc import Collection, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from actors.hosts import ActorHost, RootedPool
from actors.keeper_client import KeeperClient
from actors.logs import configure
from actors.node_files import mark_folder
from actors.nodes import cluster_name, request_nodes
from actors.plan import RuntimePlan
from actors.remote import AgentHandle, calls, end_process, here, in_time
from actors.remote_actor import RemoteActor, plain
from actors.secrets import take_over
from owlclaw_ray.access.tenant_terms import TenantTerms
from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, Isolation
from owlclaw_ray.domain.node import LeaseView
from owlclaw_ray.errors import OwlClawError, RuntimeUnavailableError, UserError
from owlclaw_ray.ids import RandomIds, RunId, TenantId
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.kernel.file_threads import in_file_thread
from owlclaw_ray.kernel.periodic import Periodic
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.placement.directory import Directory
from owlclaw_ray.placement.drained_nodes import DrainedNodes
from owlclaw_ray.placement.growth import Growth
from owlclaw_ray.placement.host_pool import Host, HostGoneError
from owlclaw_ray.placement.lease import RENEW_SECONDS, LeaseHolder, LeaseRole
from owlclaw_ray.placement.lease_routes import LeaseRoutes
from owlclaw_ray.placement.node_watch import NodeWatch
from owlclaw_ray.store.commands import EndHandover
from owlclaw_ray.tools.agents.runtime_agents import DefinitionView, views_of

_TIMEOUT_IN_HEARTBEATS = 3
_PAUSE = 0.5
_FRESH_SECONDS = 1.0
_TELL_SECONDS = _LOOK_SECONDS = 3.0
_COUNT_SECONDS = 1.0
"""What the roots have to say which hosts there are, between two renewals of the lease."""
_LINGER_SECONDS = 3.0
"""How long a superseded Directory still says that it runs no agents, so that the Scheduler of its node, which asks every second, rests."""
_SUPERSEDED = 3
"""Its exit code. Ray makes the process again, as a Directory that was never superseded, if it still counts on it."""
_LEAVE_SECONDS = 1.5
"""What hosts have to end when the lease is lost: another cluster may run their agents 2 s after it was given up."""
_PREPARE_SECONDS = 10.0
"""How often a cluster that stands by sees to it that its hosts are there."""
_KILL_SECONDS = 10.0
"""How long after the grace of its calls a host that has not ended is killed: it hangs."""

logger = logging.getLogger(__name__)


class DirectoryActor(RemoteActor):
    """Starts itself, the first time and after every restart."""

    def __init__(self, plan: RuntimePlan) -> None:
        from owlclaw_ray.definitions.folder import DefinitionFolder
        from owlclaw_ray.definitions.skills.host_facts import Machine

        take_over()
        configure(plan.worker.log)
        machine = Machine(os.environ)  # noqa: TID251 - skills name variables that have to be set
        self._definitions = DefinitionFolder(Path(plan.agents_dir), plan.defaults, machine)
        self._clock = SystemClock()
        self._isolations: dict[str, tuple[Isolation, float]] = {}
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._plan = plan
        self._pool = RootedPool(plan.namespace, plan.placement.heartbeat * _TIMEOUT_IN_HEARTBEATS)
        self._store = KeeperClient(plan.namespace)
        self._keepers: dict[str, KeeperClient] = {}
        """Those of other nodes, which renew the lease while the Keeper of this one does not."""
        self._directory: Directory | None = None
        """None while this cluster stands by, because another one runs the agents of the store."""
        self._started: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        """Ends this process, which was superseded."""
        self._lease: LeaseHolder | None = None
        self._stopping = False
        self._watch: NodeWatch | None = None
        self._watching: Periodic | None = None
        """Looks for lost nodes while this cluster runs the agents, where nodes have rows in the store."""
        self._preparing: asyncio.Task[None] | None = None
        """Makes hosts on standby."""
        self._prepare_at = self._clock.monotonic()
        self._drained: DrainedNodes | None = None
        self._marking = asyncio.Lock()
        self._draining: set[asyncio.Task[None]] = set()
        self._marked = asyncio.create_task(self._mark_folder())
        self._said_left = False
        """Whether the store was told that this cluster, which is drained, has no agents any more."""
        self._looked = False
        """Whether the store was asked once which nodes are drained: before that, this cluster does not ask for the lease."""
        cluster = cluster_name(plan.store_url)
        if cluster:
            self._drained = DrainedNodes(self._store, cluster, here(), self._clock, present=lambda: self._pool.members)
            look = partial(self._look_for_drained, self._drained)
            self._looking = Periodic(
                "looking for drained nodes", look, self._clock, plan.placement.sweep, retry=RENEW_SECONDS
            )
            self._looking.start()
            alone = KeeperClient(plan.namespace)  # whose messages are about the lease alone: they wait for no others
            routes = LeaseRoutes(alone, self._other_keepers, self._clock)
            self._lease = LeaseHolder(
                routes,
                cluster,
                RandomIds().make("directory"),
                self._clock,
                began=self._take_agents,
                ended=self._give_up_agents,
                superseded=self._step_aside,
            )
            self._holding = Periodic("holding the lease", partial(self._hold, self._lease), self._clock, RENEW_SECONDS)
            self._holding.start()
        else:
            self._directory = self._new_directory()
            self._started = asyncio.create_task(self._start(self._directory))

    def _new_directory(self) -> Directory:
        return Directory(
            pool=self._pool,
            store=self._store,
            isolation_of=self._isolation_of,
            placement=self._plan.placement,
            clock=self._clock,
            weight=TenantTerms(self._store, self._clock).weight,
            drained={} if self._drained is None else dict.fromkeys(self._drained.known, self._plan.drain_seconds),
            growth=Growth(request_nodes, self._plan.placement.most_nodes) if self._plan.placement.most_nodes else None,
            term=0 if self._lease is None else self._lease.term,
        )

    async def _mark_folder(self) -> None:
        """Leave a mark by which nodes see whether they share the data folder of this one."""
        try:
            await in_file_thread(mark_folder, Path(self._plan.worker.data_dir))
        except OSError as error:
            logger.warning("whether nodes share the data folder is not known, it cannot be written: %s", error)

    async def _start(self, directory: Directory) -> None:
        while True:
            try:
                await self._load_isolations(await in_file_thread(self._definitions.present))
                return await directory.start()
            except RuntimeUnavailableError as error:
                logger.warning("the Directory waits for its root: %s", error)
            except Exception:
                logger.exception("the Directory cannot start; it tries again")
            await self._clock.sleep(_PAUSE)

    async def _hold(self, lease: LeaseHolder) -> None:
        """Ask for the lease; on standby have hosts ready on each node, so that the first agents need not wait for processes to start.

        A cluster all of whose nodes are drained, or that is stopped, hands it over, and so do its hosts with each of their agents.
        """
        if not self._looked:
            return
        if lease.role is LeaseRole.SUPERSEDED:
            await lease.tick()
        elif lease.role is LeaseRole.LEAVING:
            await self._leave(lease)
        elif lease.held and (self._stopping or self._is_all_drained()):
            await self._hand_over(lease)
        elif not await self._stays_out(lease):
            await lease.tick()
            if lease.holder and self._plan.placement.warm:
                self._prepare_soon()
        if lease.held and lease.leaver:
            await self._take_from(lease.leaver)

    async def _stays_out(self, lease: LeaseHolder) -> bool:
        """Return whether the lease is not asked for, because it would only be handed over; hosts that stand ready for it are ended.

        Hosts of a drained cluster that nobody else's lease excludes are a former Directory's: it is asked for, to be held while they end.
        A handover may have been begun by a former Directory, or without this one hearing of it: that it is over is said in any case.
        """
        if self._stopping or not self._is_all_drained():
            return self._stopping
        is_empty = await (self._end_left() if lease.holder else self._is_empty())
        if is_empty and not self._said_left:
            await lease.end_handover()
            self._said_left = True
        return is_empty or bool(lease.holder)

    async def _hand_over(self, lease: LeaseHolder) -> None:
        """While a third cluster is leaving, the lease is kept to protect the own hosts; it is given back once there are none."""
        self._said_left = False
        if lease.leaver and not self._stopping and await self._is_empty():
            await lease.stand_back()
            return
        await lease.hand_over()
        if lease.role is LeaseRole.LEAVING:
            logger.info("another cluster may run the agents of the store, each from when it has left its host here")
            if self._directory is not None:
                self._directory.close()

    async def _leave(self, lease: LeaseHolder) -> None:
        if not self._stopping and await self._end_left():
            logger.info("the last host of this cluster has ended: it has no agents any more")
            await lease.stand_back()

    async def _end_left(self) -> bool:
        """Return whether no host is left, not even one that this process has yet to find; drain and end those that nobody drains."""
        living = await self._left()
        if living:
            self._begin(self._end_hosts(living))
        return living is not None and not living

    async def _is_empty(self) -> bool:
        living = await self._left()
        return living is not None and not living

    async def _left(self) -> Sequence[Host] | None:
        """Return the hosts that nobody drains; None while there are others, or if the roots do not answer."""
        if self._draining:
            return None
        living = await in_time(self._pool.living(), _COUNT_SECONDS)
        return None if self._pool.silent else living

    async def _end_hosts(self, hosts: Collection[Host]) -> None:
        await asyncio.gather(*(self._end_host(each) for each in hosts))

    async def _end_host(self, host: Host) -> None:
        try:
            async with deadline(self._clock, self._plan.drain_seconds + _KILL_SECONDS):
                await host.drain(self._plan.drain_seconds)
        except HostGoneError:
            logger.warning("host %s died while draining", host.host_id)
        except TimeoutError:
            logger.warning(
                "host %s is killed: it has not ended %g s after its calls' grace", host.host_id, _KILL_SECONDS
            )
        await self._pool.kill(host)

    async def _take_from(self, leaver: str) -> None:
        """Take over the agents that a cluster which handed the lease over has released since, or all of them if it is gone."""
        if self._directory is not None:
            self._directory.take_over_soon()
        if self._watch is not None and self._watch.clusters is not None and leaver not in self._watch.clusters:
            await self._store.apply([EndHandover(leaver)])

    async def _look_for_drained(self, drained: DrainedNodes) -> None:
        """Do as the store says: a drain outlives the Directory, and may have been begun by another."""
        async with self._marking:
            known, directory = await drained.look(), self._directory
            if directory is None:
                await self._pool.living()  # it learns which nodes there are
            else:
                for node_id in known - directory.drained:
                    self._begin(directory.drain_node(node_id, self._plan.drain_seconds))
                for node_id in directory.drained - known:
                    await directory.undrain_node(node_id)
        self._looked = True

    def _is_all_drained(self) -> bool:
        return self._drained is not None and bool(self._pool.nodes) and self._drained.known.issuperset(self._pool.nodes)

    def _other_keepers(self) -> Sequence[KeeperClient]:
        others = [node_id for node_id in self._pool.nodes if node_id != here()]
        known = self._keepers
        self._keepers = {each: known.get(each) or KeeperClient(self._plan.namespace, node_id=each) for each in others}
        return [*self._keepers.values()]

    def _begin(self, drain: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(drain)
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    def _rows(self) -> DrainedNodes:
        if self._drained is None:
            what = "the store is an SQLite file, which serves this one node"
            raise UserError(f"{what}: `owlclaw down` drains it and stops the runtime")
        return self._drained

    async def drain(self, nodes: Sequence[str]) -> None:
        """Have these nodes run no agents any more. That is durable when this returns; their agents leave behind the caller.

        Raises UserError if the store has one node only, StoreUnavailableError.
        """
        rows = self._rows()
        async with self._marking:
            await rows.drain(nodes)
            if self._directory is not None:
                for node_id in nodes:
                    self._begin(self._directory.drain_node(node_id, self._plan.drain_seconds))

    async def undrain(self, nodes: Sequence[str]) -> None:
        """Let these nodes run agents again; raises as `drain`."""
        rows = self._rows()
        async with self._marking:
            await rows.undrain(nodes)
            if self._directory is not None:
                for node_id in nodes:
                    await self._directory.undrain_node(node_id)

    async def drained(self) -> tuple[str, ...]:
        """Return the ids of the nodes that are drained, as far as it is known."""
        return () if self._drained is None else tuple(self._drained.known)

    async def to_empty(self, node_id: str) -> Sequence[str]:
        """Return the nodes that have to be without agents before a drained one may be stopped: itself, and all if all are drained and
        this is the node of the Directory, which holds the lease for the calls that have their grace elsewhere.

        Raises RuntimeUnavailableError until it is known which nodes are drained.
        """
        if self._drained is None:
            return [node_id]
        if not self._looked:
            raise RuntimeUnavailableError("the Directory has only just begun")
        await self._pool.living()  # which learns what nodes there are
        return [*{node_id, *self._pool.nodes}] if node_id == here() and self._is_all_drained() else [node_id]

    def _prepare_soon(self) -> None:
        now = self._clock.monotonic()
        if now >= self._prepare_at and (self._preparing is None or self._preparing.done()):
            self._prepare_at = now + _PREPARE_SECONDS
            self._preparing = asyncio.create_task(self._prepare())

    async def _prepare(self) -> None:
        """Have as many hosts on each node as are to be warm: some of those that were there may have died. A root that does not say which
        it has is asked for none.
        """
        try:
            found = await self._pool.living()
            answers = await asyncio.gather(*map(self._is_alive, found))
            if self._directory is not None:
                return  # it runs the agents by now, and looks after the hosts itself
            ready = Counter(host.node_id for host, alive in zip(found, answers, strict=True) if alive)
            out = {*self._pool.silent, *(() if self._drained is None else self._drained.known)}
            missing = {node: self._plan.placement.warm - ready[node] for node in self._pool.nodes if node not in out}
            await asyncio.gather(*(self._pool.spawn(node) for node, number in missing.items() for _ in range(number)))
        except RuntimeUnavailableError as error:
            logger.warning("too few hosts are ready for the time when this cluster runs the agents: %s", error)

    async def _is_alive(self, host: Host) -> bool:
        """Return whether a host on standby answers; one that does not is given up."""
        try:
            await host.status(0)
        except HostGoneError:
            if self._directory is None:
                await self._pool.kill(host)
            return False
        return True

    async def _take_agents(self) -> None:
        self._pool.term = 0 if self._lease is None else self._lease.term
        self._directory = self._new_directory()
        self._started = asyncio.create_task(self._start(self._directory))
        self._watch = NodeWatch(self._store, here(), self._clock, changed=self._lose_nodes)
        self._watching = Periodic("looking for lost nodes", self._watch.tick, self._clock, RENEW_SECONDS)
        self._watching.start()

    def _lose_nodes(self, lost: frozenset[str]) -> None:
        self._pool.exclude(lost)
        if self._directory is not None:
            self._directory.lose_nodes(lost)

    async def _give_up_agents(self) -> None:
        """Stop all agents of this cluster where they are: what they do is not accepted by the store any more."""
        await self._stop_directory()
        await asyncio.gather(*map(self._pool.kill, await self._pool.living()))
        self._prepare_at = self._clock.monotonic()

    async def _step_aside(self) -> None:
        """Stop the agents of this node, and end: another Directory of this cluster has taken over, which may not reach the node.

        The hosts of other nodes are that one's. Ray is asked for nothing: its control store may be out of reach.
        """
        await self._stop_directory(here())
        if await in_time(self._end_own_hosts(), _LEAVE_SECONDS) is None:
            logger.warning("the hosts of node %s did not end within %g s", here(), _LEAVE_SECONDS)
        self._ending = asyncio.create_task(self._end_soon())

    async def _end_own_hosts(self) -> bool:
        await self._pool.end_hosts(here())
        return True

    async def _end_soon(self) -> None:
        await self._clock.sleep(_LINGER_SECONDS)
        end_process(_SUPERSEDED)

    async def _stop_directory(self, node_id: str = "") -> None:
        """Place and wake nobody any more; have all hosts end, or those of that node."""
        if self._watching is not None:
            await self._watching.stop()
        self._watch = None  # what it saw is old when the lease is held again
        self._pool.exclude(frozenset())  # the next watch judges anew, and hosts of nodes that were lost end, too
        directory, self._directory = self._directory, None
        started, self._started = self._started, None
        if started is not None:
            started.cancel()
        if directory is not None:
            try:
                async with deadline(self._clock, _LEAVE_SECONDS):
                    await directory.stop(0.0, node_id)
            except TimeoutError:
                logger.warning("hosts that did not end within %g s are killed: the lease is lost", _LEAVE_SECONDS)

    async def _active(self) -> Directory | None:
        """Return the Directory once it has started; None on standby."""
        if self._started is not None:
            await asyncio.wait([self._started])
        return self._directory

    async def active(self) -> bool:
        """Return whether this cluster runs the agents of the store."""
        return self._directory is not None and (self._lease is None or self._lease.role is LeaseRole.HOLDER)

    async def lease(self) -> LeaseView | None:
        """Return what is known of the store's lease; None if no other cluster can use the store."""
        if self._lease is None:
            return None
        held, holder = self._lease.held, self._lease.holder
        others = () if self._drained is None else self._drained.others
        return LeaseView(cluster_name(self._plan.store_url), held, self._lease.generation, holder, others)

    async def wake(self, agents: Sequence[AgentRef]) -> dict[AgentRef, str]:
        """See Directory.wake; on standby nobody is woken."""
        directory = await self._active()
        if directory is None:
            return {}
        await self._load_isolations({agent.qualified_definition for agent in agents} - self._isolations.keys())
        return await directory.wake(agents)

    @plain
    async def handle(self, host_id: str) -> AgentHandle | None:
        """Return the actor of a host, for those who wake its agents themselves; None if it is gone."""
        host = None if self._directory is None else self._directory.host(host_id)
        return host.actor if isinstance(host, ActorHost) else None

    async def cancel(self, agent: AgentRef, run_id: RunId) -> bool:
        """See Directory.cancel."""
        directory = await self._active()
        return directory is not None and await directory.cancel(agent, run_id)

    async def definition(self, name: str, known_version: str) -> AgentDefinition | None:
        """Return the present definition, or None if it is the known version; raises what is wrong with it."""
        definition = await self._definitions.get(name)
        return None if definition.version == known_version else definition

    async def reload(self, name: str) -> None:
        """Read the definition's files anew and have all hosts ask for it before their next runs; raises what is wrong with it.

        A host that does not answer is dead, or asks by itself within a second.
        """
        directory = await self._active()
        await self._definitions.reload(name)
        if directory is not None:
            await asyncio.gather(*(self._notify_reload(host_id, name) for host_id in directory.hosts()))

    async def _notify_reload(self, host_id: str, name: str) -> None:
        actor = await self.handle(host_id)
        try:
            async with asyncio.timeout(_TELL_SECONDS):
                if actor is not None:
                    await calls(actor).forget_definition(name)
        except (RuntimeUnavailableError, TimeoutError) as error:
            logger.warning("host %s was not told that %s is another: %s", host_id, name, error)

    async def definitions(self, tenant: TenantId) -> Sequence[DefinitionView]:
        """Return all definitions that the tenant may use, as its agents see them, by name."""
        return await in_file_thread(views_of, self._definitions, tenant)

    async def hosts(self) -> dict[str, int]:
        """Return the number of agents on each host; none on standby."""
        directory = await self._active()
        return {} if directory is None else directory.hosts()

    async def stop(self, grace: float) -> None:
        """See Directory.stop; another cluster may run each agent from when it has left its host: the lease is handed over meanwhile."""
        self._stopping = True
        if self._watching is not None:
            await self._watching.stop()
        if self._directory is not None:
            await self._directory.stop(grace)
        if self._lease is not None:
            await self._looking.stop()
            await self._holding.stop()
            try:
                await self._lease.release()
            except OwlClawError as error:
                logger.warning("the lease was not given back, another cluster waits until it expires: %s", error)

    def _isolation_of(self, name: str) -> Isolation | None:
        """Return how the definition wanted its agents placed when its files were last looked at; None before the first look ends.

        What is older than a second is looked at again behind the caller.
        """
        isolation, looked = self._isolations.get(name, (None, -math.inf))
        if self._clock.monotonic() - looked >= _FRESH_SECONDS and name not in self._looks:
            look = self._looks[name] = asyncio.create_task(self._load_isolation(name))
            look.add_done_callback(lambda _: self._looks.pop(name))
        return isolation

    async def _load_isolations(self, names: Collection[str]) -> None:
        """Return once all of them are known, or after a few seconds if their files do not answer."""
        if unknown := [name for name in names if self._isolation_of(name) is None]:
            await asyncio.wait([self._looks[name] for name in unknown], timeout=_LOOK_SECONDS)

    async def _load_isolation(self, name: str) -> None:
        """Note how its agents are placed; those of a broken definition get a host too, where their runs fail and say why."""
        try:
            isolation = (await self._definitions.get(name)).isolation
        except OwlClawError:
            isolation = Isolation.DEDICATED
        except OSError as error:
            logger.warning("how the agents of %s are placed cannot be read: %s", name, error)
            return
        self._isolations[name] = (isolation, self._clock.monotonic())
