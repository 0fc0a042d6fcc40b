"""The root: the detached owner of the agent actors of its node.

Ray ties a node's task workers to the root detached actor of their last task: agents that are children of one root share warm tool
workers, agents that are detached themselves do not. The root's children die with it, so a restarted root has no hosts, and
the Directory has it make new ones. The other parts run no tasks; they are detached, so that they outlive a root.

Roots also see to it that the cluster has everything: each makes its node's parts, a root on a node that has none, and a
Directory and a Scheduler when there is none, or they are on a node that does not reach the store. Names in Ray are unique, so of
several that try, one does it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeVar

from msgspec import structs
from ray.actor import ActorHandle

from actors.agent import AgentActor
from actors.keeper_client import KeeperClient
from actors.liveness import LivenessMonitor
from actors.logs import configure
from actors.node_files import check_files, files_of
from actors.node_report import NodeInspector
from actors.nodes import Node, living_nodes, own_resources
from actors.part_classes import class_of
from actors.plan import HatchetPlan, RuntimePlan
from actors.remote import (
    DIRECTORY,
    EXPORTER,
    GATEWAY,
    KEEPER,
    MCP_POOL,
    ROOT,
    SCHEDULER,
    AgentHandle,
    KnownActors,
    NamedActor,
    PartName,
    find,
    full_name,
    here,
    kill,
    make,
    named,
    restarted,
)
from actors.remote_actor import RemoteActor, plain
from actors.secrets import shed
from actors.shared_parts import LOOK_SECONDS, SharedParts
from actors.slot_link import SlotDesk, socket_path
from actors.tool_task import MemoryCalls, offered_slots, warm_workers
from owlclaw_ray.access.tenant_terms import TenantTerms
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.node import NodeLoad, NodeReport
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.ids import RandomIds
from owlclaw_ray.kernel.periodic import Periodic
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.placement.lease import RENEW_SECONDS, TermFence
from owlclaw_ray.placement.node_fence import NodeCutError, NodeFence

_STARTUP_SECONDS = 60.0
_SERVE = "serve"
"""The namespace of Ray Serve's actors: it restarts those that died, and those that are stuck late or never."""
_LOOKS_PER_WARNING = 15
"""How rarely a node whose store serves no other looks whether there are others."""
_UNFIT_SECONDS = 30.0
_AHEAD = 2
"""Hosts that a root makes before anybody asks, if it was restarted, as many at most as there are cores: those of the root that died ended
with it, and the Directory learns only in a moment who needs one.
"""
_UNCLAIMED_SECONDS = 30.0
"""After which those that nobody has asked for end."""

A = TypeVar("A")

logger = logging.getLogger(__name__)


class RootActor(RemoteActor):
    """Makes the parts of its node in __init__, so that a restart needs nobody's help."""

    def __init__(self, plan: RuntimePlan, tools: Sequence[ToolDefinition], hatchet: HatchetPlan | None = None) -> None:
        """`hatchet` is the engine that rings for schedules; None: they are fired without one."""
        shed()
        configure(plan.worker.log)
        self._plan, self._tools, self._hatchet = plan, tuple(tools), hatchet
        self._ids = RandomIds()
        self._hosts: dict[str, AgentHandle] = {}
        self._terms = TermFence()
        self._clock = SystemClock()
        self._joining: dict[str, asyncio.Task[None]] = {}
        self._unfit: dict[str, float] = {}
        """Nodes that lack files, and when they are asked again."""
        self._slots = offered_slots(own_resources(), plan.slots)
        """Of this node, which may be larger or smaller than the one where the plan was made."""
        self._desk = SlotDesk(self._slots, self._clock)
        weight = TenantTerms(KeeperClient(plan.namespace), self._clock).weight
        self._memory = MemoryCalls(plan.worker, self._desk.own(weight), self._clock)
        self._lending = asyncio.create_task(self._desk.listen(socket_path(plan.namespace)))
        cores = max(1, min(os.cpu_count() or 1, int(own_resources().get("CPU", 1))))
        self._births = asyncio.Semaphore(cores)
        """A birth is half a second of processor time or more: more of them at once than cores would only make the first host come later."""
        self._ahead = [self._host() for _ in range(min(_AHEAD, cores))] if restarted() else []
        self._liveness = LivenessMonitor(SystemClock())
        self._serve = KnownActors(_SERVE, SystemClock())
        self._inspector = NodeInspector(plan, self._desk.waiting_calls)
        self._fence = NodeFence(NamedActor(KEEPER, plan.namespace).call.unrenewed, self._clock, end=self.end_hosts)
        self._parts: dict[str, ActorHandle[Any]] = {KEEPER: self._part(KEEPER)}
        self._shared = SharedParts(self._shared_parts(), plan.namespace, self._fence.row, self._clock)
        self._parts[GATEWAY] = self._part(GATEWAY)
        if plan.mcp is not None:
            self._parts[MCP_POOL] = self._part(MCP_POOL)
        self._with_rows = (
            []
            if plan.store_url.startswith("sqlite")
            else [
                Periodic("looking at the node's row", self._fence.tick, self._clock, RENEW_SECONDS),
                Periodic("looking where the shared parts are", self._shared.tick, self._clock, LOOK_SECONDS),
            ]
        )
        """What there is to do where nodes have rows in the store."""
        for each in self._with_rows:
            each.start()
        self._recovery: list[asyncio.Task[None]] = []
        self._upkeep = asyncio.create_task(self._maintain())

    @plain
    async def spawn_host(self, term: int) -> tuple[str, AgentHandle]:
        """Return a new agent actor as soon as it answers. `term`: see TermFence, as everywhere here.

        Raises RuntimeUnavailableError if it does not come to life, NodeCutError if this node may have none, SupersededError.
        """
        self._terms.check(term)
        async with self._births:
            self._fence.check()
            while self._ahead:
                try:
                    return await self._grown(*self._ahead.pop(0))
                except NodeCutError:
                    raise
                except RuntimeUnavailableError as error:
                    logger.warning("%s; another host is made", error)
            return await self._grown(*self._host())

    async def _grown(self, host_id: str, actor: AgentHandle) -> tuple[str, AgentHandle]:
        """Return the host once it answers; it is ended if it does not, or may not be."""
        try:
            await self._liveness.wait_until_alive(host_id, actor, _STARTUP_SECONDS)
            self._fence.check()
        except NodeCutError:
            await self._end(host_id, actor)
            raise
        except RuntimeUnavailableError as error:
            await self._end(host_id, actor)
            raise RuntimeUnavailableError(f"the new host {host_id} did not answer") from error
        self._hosts[host_id] = actor
        return host_id, actor

    @plain
    async def hosts(self, term: int = 0) -> Sequence[tuple[str, AgentHandle]]:
        """Return all agent actors that have answered once, dead ones included until somebody ends them.

        Raises NodeCutError if this node may have none, SupersededError.
        """
        self._terms.check(term)
        self._fence.check()
        return tuple(self._hosts.items())

    async def end_host(self, host_id: str, term: int) -> None:
        """Kill an agent actor, even one that hears nothing any more, and give up its handle; harmless for a dead one.

        Raises SupersededError.
        """
        self._terms.check(term)
        actor = self._hosts.pop(host_id, None)
        if actor is not None:
            await self._end(host_id, actor)

    async def end_hosts(self) -> None:
        """Kill all agent actors at once, and with them the tool calls that they wait for. Ray need not answer for it."""
        hosts, self._hosts, self._ahead = self._hosts | dict(self._ahead), {}, []
        for host_id, actor in hosts.items():
            self._liveness.end_now(host_id)
            kill(actor)

    async def _end(self, host_id: str, actor: AgentHandle) -> None:
        try:
            await self._liveness.end(host_id, actor)
        finally:
            kill(actor)

    async def use_memory(self, agent: AgentRef, method: str, arguments: Sequence[object], seconds: float) -> object:
        """See MemoryCalls.call; in one of the tool workers that the node's agents share."""
        return await self._memory.call(agent, method, arguments, seconds)

    async def warm_tools(self) -> None:
        """Return when tool workers have imported what calls need, as many as are kept when nothing comes."""
        await warm_workers(self._plan.worker, self._plan.warm_workers)

    async def now(self) -> float:
        """Return what this node's clock shows, in seconds since 1970."""
        return SystemClock().now().timestamp()

    async def load(self) -> NodeLoad:
        """See NodeInspector.load."""
        return await self._inspector.load([*self._hosts.values()])

    async def waiting_calls(self) -> dict[str, int]:
        """See SlotDesk.waiting_calls."""
        return self._desk.waiting_calls()

    async def agents(self) -> int:
        """See NodeInspector.agents."""
        return await self._inspector.agents([*self._hosts.values()])

    async def inspect(self, salt: bytes) -> NodeReport:
        """See NodeInspector.report."""
        return await self._inspector.report([*self._hosts.values()], salt)

    async def retire(self) -> None:
        """Make nothing new any more: the runtime is being stopped."""
        self._upkeep.cancel()
        self._lending.cancel()
        for recovering in self._recovery:
            recovering.cancel()
        for each in self._with_rows:
            await each.stop()
        for joining in tuple(self._joining.values()):
            joining.cancel()

    async def _maintain(self) -> None:
        if restarted():
            await self._recover()
        for look in count():
            await asyncio.sleep(self._liveness.pause)
            try:
                serve, present = await asyncio.to_thread(named, _SERVE, self._plan.namespace)
                looked_at = self._parts | self._shared.actors | await self._serve.find(serve)
                await asyncio.gather(*(self._liveness.look(name, part) for name, part in looked_at.items()))
                self._shared.complete(present)
                await self._complete_nodes(present, look)
            except Exception:
                logger.exception("the root's round failed; the next one begins in %g s", self._liveness.pause)

    async def _recover(self) -> None:
        """Replace the tool workers that ended with the root that died, as soon as agents have a host: they come first."""
        await asyncio.gather(*(self._wait_for_birth(*host) for host in self._ahead))
        self._recovery = [asyncio.create_task(self.warm_tools()), asyncio.create_task(self._end_unclaimed())]

    async def _wait_for_birth(self, host_id: str, actor: AgentHandle) -> None:
        try:
            await self._liveness.wait_until_alive(host_id, actor, _STARTUP_SECONDS)
        except RuntimeUnavailableError as error:
            logger.warning("%s", error)

    async def _end_unclaimed(self) -> None:
        await self._clock.sleep(_UNCLAIMED_SECONDS)
        ahead, self._ahead = self._ahead, []
        await asyncio.gather(*(self._end(host_id, actor) for host_id, actor in ahead))

    async def _complete_nodes(self, present: Collection[str], look: int) -> None:
        alone = self._plan.store_url.startswith("sqlite")
        if alone and look % _LOOKS_PER_WARNING:
            return
        nodes = await asyncio.to_thread(living_nodes)
        if alone:
            if len(nodes) > 1:
                logger.error(
                    "%d more nodes are left idle: SQLite serves one; set store_url to PostgreSQL", len(nodes) - 1
                )
            return
        for node in nodes:
            if node.node_id in self._joining or self._clock.monotonic() < self._unfit.get(node.node_id, 0.0):
                continue
            if full_name(ROOT, node.node_id) not in present:
                own = next(each for each in nodes if each.node_id == here())
                self._joining[node.node_id] = asyncio.create_task(self._join(own, node))

    async def _join(self, own: Node, new: Node) -> None:
        """Have a node take part that has the files that this one has; if it has not, the log says why, and it is asked again later."""
        try:
            problems = await asyncio.to_thread(check_files, files_of(self._plan), [own, new])
            for each in problems:
                logger.error("node %s is left idle: %s; %s", new.host, each.what, each.fix)
            if problems:
                self._unfit[new.node_id] = self._clock.monotonic() + _UNFIT_SECONDS
            else:
                make_root(self._plan, self._tools, self._hatchet, new.node_id)
        except RuntimeUnavailableError as error:
            logger.warning("node %s: %s", new.host, error)
        finally:
            del self._joining[new.node_id]

    def _host(self) -> tuple[str, AgentHandle]:
        host_id = self._ids.make("host")
        plan = structs.replace(self._plan, slots=self._slots)
        return host_id, make(AgentActor, host_id, plan, self._tools, max_restarts=0)

    def _part(self, name: PartName[A], *, movable: bool = False) -> ActorHandle[A]:
        """Return the part, made if it is not there. Its class is imported only then: agents wait for a root that was restarted."""
        return find(name, self._plan.namespace) or make(
            class_of(name),
            self._plan,
            *([self._hatchet] if name == SCHEDULER else []),
            movable=movable,
            name=full_name(name),
            namespace=self._plan.namespace,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            max_task_retries=0,
        )

    def _shared_parts(self) -> dict[PartName[Any], Callable[[], ActorHandle[Any]]]:
        """Return what makes each of the parts of which the cluster has one."""
        names: list[PartName[Any]] = [DIRECTORY, SCHEDULER]
        if self._plan.tracing is not None:
            names.append(EXPORTER)
        return {name: partial(self._part, name, movable=True) for name in names}


def make_root(
    plan: RuntimePlan, tools: Sequence[ToolDefinition], hatchet: HatchetPlan | None = None, node_id: str = ""
) -> ActorHandle[RootActor]:
    """Return the root of that node, or of this one, made if it is not there."""
    return make(
        RootActor,
        plan,
        tuple(tools),
        hatchet,
        node_id=node_id,
        name=full_name(ROOT, node_id),
        namespace=plan.namespace,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
    )
