"""Actor hosts for the Directory: made by the roots, reached through their handles."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import TypeVar

from actors.nodes import Node, living_nodes
from actors.remote import ROOT, AgentHandle, NamedActor, NamedRoot, calls, full_name, named
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.ids import RunId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.placement.host import HostStatus
from owlclaw_ray.placement.host_pool import Host, HostGoneError
from owlclaw_ray.placement.node_fence import NodeCutError

_BUSY_PATIENCE = 3.5
"""How many times longer an answer may take on a machine that said that it is busy, as for the parts that its root looks after."""
_SECONDS_AN_AGENT = 0.06
"""How much longer it may take for each agent that is at work, or was to begin since the last answer. Hundreds that begin at once, each with
a trigger of a mebibyte, keep a process from answering for so long; taken for dead, the next one would begin them all again.
"""

R = TypeVar("R")

logger = logging.getLogger(__name__)


class ActorHost:
    """Implements `Host` over an AgentActor."""

    def __init__(self, host_id: str, node_id: str, actor: AgentHandle, patience: float, clock: Clock) -> None:
        self._host_id, self._node_id, self.actor, self._wait_limit = host_id, node_id, actor, patience
        self._clock = clock
        self._busy, self._running = False, 0
        self._questions = 0
        """How often it was asked for its status."""
        self._adopted: set[AgentRef] = set()
        """Those among `_begun` that were not there before."""
        self._begun: dict[AgentRef, int] = {}
        """Agents that were to begin since it was asked how many are at work, each with the number of the latest question before that."""

    @property
    def host_id(self) -> str:
        """See Host.host_id."""
        return self._host_id

    @property
    def node_id(self) -> str:
        """See Host.node_id: Ray's id of the node."""
        return self._node_id

    async def adopt(self, agents: Sequence[AgentRef], term: int) -> None:
        """See Host.adopt."""
        self._begun.update(dict.fromkeys(agents, self._questions))
        self._adopted.update(agents)
        await self._answer(calls(self.actor).adopt(agents, term))

    async def wake(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See Host.wake."""
        self._begun.update(dict.fromkeys(agents, self._questions))
        return await self._answer(calls(self.actor).wake(agents))

    async def cancel(self, agent: AgentRef, run_id: RunId) -> bool:
        """See Host.cancel."""
        return await self._answer(calls(self.actor).cancel(agent, run_id))

    async def release(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See Host.release."""
        return await self._answer(calls(self.actor).release(agents))

    async def hand_over(self, agents: Sequence[AgentRef], grace: float | None = None) -> tuple[AgentRef, ...]:
        """See Host.hand_over."""
        return await self._answer(calls(self.actor).hand_over(agents, grace))

    async def status(self, most: int) -> HostStatus:
        """See Host.status."""
        self._questions += 1
        question = self._questions
        status = await self._answer_in_time(calls(self.actor).status(most))
        self._busy, self._running = status.busy, status.running
        self._begun = {agent: asked for agent, asked in self._begun.items() if asked >= question}
        self._adopted.intersection_update(self._begun)
        return status

    async def hosted(self) -> tuple[AgentRef, ...]:
        """See Host.hosted."""
        return await self._answer_in_time(calls(self.actor).hosted())

    async def ended(self) -> None:
        """See Host.ended. A call that never returns breaks with the process; a broken call alone is no proof of its end."""
        while True:
            try:
                await calls(self.actor).linger()
            except RuntimeUnavailableError:
                if not await self._lives():
                    return

    async def _lives(self) -> bool:
        try:
            await self.status(0)
        except HostGoneError:
            return False
        return True

    async def drain(self, grace: float) -> None:
        """See Host.drain."""
        await self._answer(calls(self.actor).drain(grace))

    async def _answer_in_time(self, answer: Awaitable[R]) -> R:
        woken = self._begun.keys() - self._adopted
        at_work = len(self._adopted) + max(self._running, len(woken))  # who was at work may have been woken, too
        limit = self._wait_limit * (_BUSY_PATIENCE if self._busy else 1) + _SECONDS_AN_AGENT * at_work
        try:
            async with deadline(self._clock, limit):
                return await self._answer(answer)
        except TimeoutError as error:
            raise HostGoneError(f"{self._host_id} did not answer within {limit:g} s") from error

    async def _answer(self, answer: Awaitable[R]) -> R:
        try:
            return await answer
        except RuntimeUnavailableError as error:
            raise HostGoneError(f"{self._host_id}: {error}") from error


class RootedPool:
    """Implements `HostPool`: the roots of the nodes own the actors, so that a node's tool tasks share warm workers."""

    def __init__(self, namespace: str, patience: float, clock: Clock | None = None) -> None:
        self._namespace, self._wait_limit, self._clock = namespace, patience, clock or SystemClock()
        self._roots: dict[str, NamedRoot] = {}
        self._homes: dict[str, str] = {}
        self._cpus: dict[str, float] = {}
        self._bare: frozenset[str] = frozenset()
        self._excluded: frozenset[str] = frozenset()
        self.silent: set[str] = set()
        """Nodes whose roots did not say, when all were last asked, which hosts they have."""
        self._cut: set[str] = set()
        """Nodes whose roots have said that they do not reach the store."""
        self.term = 0
        """Under which the Directory holds the lease of the store: roots carry out no order under an earlier one, see TermFence."""

    @property
    def nodes(self) -> Mapping[str, float]:
        """See HostPool.nodes."""
        return {node_id: self._cpus[node_id] for node_id in self._reachable() if node_id not in self._cut}

    @property
    def members(self) -> Collection[str]:
        """The nodes that have a root, as far as is known: those too that do not reach the store, or are taken for lost."""
        return self._roots.keys()

    @property
    def bare(self) -> frozenset[str]:
        """See HostPool.bare."""
        return self._bare

    def exclude(self, node_ids: frozenset[str]) -> None:
        """Leave out these nodes, and no others, as if they were not there."""
        self._excluded = node_ids

    async def spawn(self, node_id: str) -> Host:
        """See HostPool.spawn."""
        await self._find_roots()
        root = self._roots.get(node_id)
        if root is None or node_id in self._excluded:
            raise RuntimeUnavailableError(f"node {node_id} has no root, or is lost")
        try:
            host_id, actor = await root.call.spawn_host(self.term)
        except NodeCutError:
            self._cut.add(node_id)
            raise
        self._homes[host_id] = node_id
        host = ActorHost(host_id, node_id, actor, self._wait_limit, self._clock)
        if node_id in self._excluded:
            await self.kill(host)
            raise RuntimeUnavailableError(f"node {node_id} was lost while it made a host")
        return host

    async def living(self) -> Sequence[Host]:
        """See HostPool.living. Hosts of a root that does not answer are dead or die with it."""
        await self._find_roots()
        self.silent.clear()
        found = await asyncio.gather(*(self._hosts_of(node_id) for node_id in self._reachable()))
        return [host for hosts in found for host in hosts]

    async def kill(self, host: Host) -> None:
        """See HostPool.kill."""
        root = self._roots.get(self._homes.pop(host.host_id, ""))
        if root is not None:
            try:
                await root.call.end_host(host.host_id, self.term)
            except RuntimeUnavailableError as error:
                logger.info("host %s is not ended, or ended with its root: %s", host.host_id, error)

    async def end_hosts(self, node_id: str) -> None:
        """End all hosts of that node at once, also if Ray does not answer for what is there."""
        root = self._roots.get(node_id)
        if root is not None:
            await root.call.end_hosts()

    async def _hosts_of(self, node_id: str) -> list[Host]:
        try:
            async with deadline(self._clock, self._wait_limit):
                hosts = await self._roots[node_id].call.hosts(self.term)
        except NodeCutError as error:
            logger.warning("node %s gets no hosts: %s", node_id, error)
            self._cut.add(node_id)
            return []
        except (RuntimeUnavailableError, TimeoutError) as error:
            logger.warning("the root of node %s does not answer: %s", node_id, error or "in time")
            self.silent.add(node_id)
            return []
        self._cut.discard(node_id)
        self._homes.update((host_id, node_id) for host_id, _ in hosts)
        return [ActorHost(host_id, node_id, actor, self._wait_limit, self._clock) for host_id, actor in hosts]

    def _reachable(self) -> list[str]:
        return [node_id for node_id in self._roots if node_id not in self._excluded]

    async def _find_roots(self) -> None:
        """Note the roots of living nodes; raises RuntimeUnavailableError if there is none."""
        found = await asyncio.to_thread(self._nodes_with_root)
        self._cpus = {node.node_id: node.cpus for node in found}
        self._bare = frozenset(node.node_id for node in found if node.bare)
        self._roots = {each: self._roots.get(each) or NamedActor(ROOT, self._namespace, each) for each in self._cpus}
        if not self._roots:
            raise RuntimeUnavailableError("no node has a root")

    def _nodes_with_root(self) -> list[Node]:
        [present] = named(self._namespace)
        return [node for node in living_nodes() if full_name(ROOT, node.node_id) in present]
