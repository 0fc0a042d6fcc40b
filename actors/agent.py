"""AgentActor: one agent, or many. It owns identity, short-term memory and run queue of each agent that it hosts.

Its process stays lean: no litellm, no LanceDB, no SQLAlchemy, no user code.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import cast

from msgspec.structs import replace

from actors.attempt_markers import StoredAttempts
from actors.garbage import collect_rarely
from actors.gateway_link import GatewayLink, GatewayTokens
from actors.keeper_client import KeeperClient
from actors.liveness import is_busy
from actors.logs import configure
from actors.mcp_link import McpLink
from actors.nodes import used_memory
from actors.plan import RuntimePlan
from actors.remote import DIRECTORY, NamedActor
from actors.remote_actor import RemoteActor
from actors.secrets import shed
from actors.slot_link import SlotLink, connect_at, socket_path
from actors.tool_task import TaskToolRunner
from owlclaw_ray.access.tenant_terms import TenantTerms
from owlclaw_ray.definitions.api import plain_name
from owlclaw_ray.domain.agent import AgentDefinition, AgentRef
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.ids import RandomIds, RunId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.placement.host import AgentHost, HostStatus
from owlclaw_ray.runs.family import Family
from owlclaw_ray.runtime.host_services import host_services
from owlclaw_ray.runtime.memory_home import has_memories
from owlclaw_ray.store.durable_store import DurableStore

_FRESH_SECONDS = 1.0
_PAUSE = 0.2
_ANSWER_SECONDS = 3.0


class RemoteDefinitions:
    """Implements `Definitions`: asks the Directory, which watches the files, at most once a second for each definition.

    While the Directory is being restarted, or does not answer, the last known version serves, and who needs another one waits.
    """

    def __init__(self, namespace: str, clock: Clock) -> None:
        self._directory, self._clock = NamedActor(DIRECTORY, namespace), clock
        self._known: dict[str, tuple[AgentDefinition, float]] = {}
        self._questions: dict[str, asyncio.Task[AgentDefinition]] = {}

    async def get(self, name: str) -> AgentDefinition:
        """See Definitions.get. All who ask for a definition at the same time share one question."""
        known, asked = self._known.get(name, (None, 0.0))
        if known is not None and self._clock.monotonic() - asked < _FRESH_SECONDS:
            return known
        question = self._questions.get(name)
        if question is None:
            question = self._questions[name] = asyncio.create_task(self._ask(name, known))
            question.add_done_callback(lambda done: self._answered(name, done))
        return await asyncio.shield(question)

    def forget(self, name: str) -> None:
        """Ask for the definition again before it is used again, for any tenant: what is known, and what is being asked, is out of date."""
        plain = plain_name(name)
        for each in [each for each in self._questions if plain_name(each) == plain]:
            del self._questions[each]
        for each, (known, _) in self._known.items():
            if plain_name(each) == plain:
                self._known[each] = (known, -math.inf)

    def _answered(self, name: str, question: asyncio.Task[AgentDefinition]) -> None:
        if self._questions.get(name) is question:
            del self._questions[name]

    async def _ask(self, name: str, known: AgentDefinition | None) -> AgentDefinition:
        asked = self._clock.monotonic()
        shared, _ = self._known.get(plain_name(name), (None, 0.0))
        like = known or shared  # what a tenant has not of its own is the shared one, which need not be here twice
        while True:
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    changed = await self._directory.call.definition(name, like.version if like else "")
            except (RuntimeUnavailableError, TimeoutError):
                if known is not None:
                    return known
                await self._clock.sleep(_PAUSE)
                continue
            current = cast("AgentDefinition", changed or like)
            if self._questions.get(name) is asyncio.current_task():
                self._known[name] = (current, asked)
            return current


class AgentActor(RemoteActor):
    """A thin shell around AgentHost."""

    def __init__(self, host_id: str, plan: RuntimePlan, tools: Sequence[ToolDefinition]) -> None:
        shed()
        configure(plan.worker.log)
        collect_rarely()
        clock = SystemClock()
        keeper, directory = KeeperClient(plan.namespace), NamedActor(DIRECTORY, plan.namespace)
        terms = TenantTerms(keeper, clock)
        self._slots = SlotLink(connect_at(socket_path(plan.namespace)), plan.slots, terms.weight, clock)
        services, servers = host_services(
            tools,
            quotas=terms.quotas,
            models=GatewayLink(host_id, plan.namespace),
            runner=TaskToolRunner(
                plan.worker,
                clock,
                plan.slots,
                slots=self._slots.place,
                warm_workers=plan.warm_workers,
                attempts=StoredAttempts(keeper, clock) if plan.worker.stored_attempts else None,
            ),
            tokens=GatewayTokens(plan.namespace, clock),
            limits=plan.model_limits,
            context_windows=plan.context_windows,
            prices=plan.prices,
            has_memories=has_memories(plan.worker.memory_home, keeper, plan.data_dir),
            clock=clock,
            family=Family(store=keeper, wake=directory.call.wake, cancel=directory.call.cancel, clock=clock),
            mcp=McpLink(plan.namespace) if plan.mcp is not None else None,
        )
        self._following = None if servers is None else asyncio.create_task(servers.follow())
        self._definitions = RemoteDefinitions(plan.namespace, clock)
        self._host = AgentHost(
            store=DurableStore(keeper, clock),
            runs=keeper,
            definitions=self._definitions,
            services=services,
            ids=RandomIds(),
        )

    async def adopt(self, agents: Sequence[AgentRef], term: int) -> None:
        """See AgentHost.adopt."""
        await self._host.adopt(agents, term)

    async def wake(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See AgentHost.wake."""
        return self._host.wake(agents)

    async def cancel(self, agent: AgentRef, run_id: RunId) -> bool:
        """See AgentHost.cancel."""
        return self._host.cancel(agent, run_id)

    async def release(self, agents: Sequence[AgentRef]) -> tuple[AgentRef, ...]:
        """See AgentHost.release."""
        return await self._host.release(agents)

    async def hand_over(self, agents: Sequence[AgentRef], grace: float | None = None) -> tuple[AgentRef, ...]:
        """See AgentHost.hand_over."""
        return await self._host.hand_over(agents, grace)

    async def status(self, most: int) -> HostStatus:
        """See AgentHost.status."""
        return replace(self._host.status(most), memory=used_memory(), busy=is_busy())

    async def forget_definition(self, name: str) -> None:
        """See RemoteDefinitions.forget."""
        self._definitions.forget(name)

    async def hosted(self) -> tuple[AgentRef, ...]:
        """See AgentHost.hosted."""
        return self._host.hosted()

    async def linger(self) -> None:
        """Never return: whoever waits for it learns of this process's end at once."""
        await asyncio.Event().wait()

    async def drain(self, grace: float) -> None:
        """See AgentHost.drain."""
        await self._host.drain(grace)
        await self._slots.stop()
