"""From a trigger to the run in the store: what every way in does the same."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.definitions.api import Definitions
from owlclaw_ray.domain.agent import AgentDefinition, AgentRef
from owlclaw_ray.domain.callback import NO_CALLBACKS
from owlclaw_ray.domain.heartbeat import Heartbeat
from owlclaw_ray.domain.quota import AGENTS, KeyQuota
from owlclaw_ray.domain.trigger import ENQUEUED, Admission, BusyPolicy, Trigger
from owlclaw_ray.errors import (
    AgentBusyError,
    CallbackRefusedError,
    IdempotencyConflictError,
    OwlClawError,
    QueueFullError,
    StoreUnavailableError,
    UserError,
)
from owlclaw_ray.ids import IdSource, RunId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runs.callback_rules import TenantCallbackRules
from owlclaw_ray.store.commands import (
    AgentBusy,
    CommandFailed,
    IdempotencyClaim,
    IdempotencyConflict,
    Outcome,
    QueueFull,
    QuotaReached,
    RunAccepted,
    SubmitRun,
)

IDEMPOTENCY_WINDOW = timedelta(hours=24)
_OPEN_SECONDS = 0.1
"""For how long a quota of runs that are not over is taken to be reached: any of them may end."""
_RATE_SECONDS = 5.0
"""For how long one of a minute is, at most: it may be made larger."""
_KNOWN_QUOTAS = 10_000


class Dispatcher(Protocol):
    """Reaches agents where they are."""

    async def wake(self, agents: Sequence[AgentRef]) -> None:
        """Have the agents look for their runs. A wake may be lost: whoever holds the agents also looks by himself."""
        ...

    async def cancel(self, agent: AgentRef, run_id: RunId) -> None:
        """Tell the agent's host to end the run."""
        ...


class Submission(Struct, frozen=True):
    """A trigger that is ready for the store."""

    command: SubmitRun
    scripted: bool


class Submissions:
    """Makes commands of triggers, and of what the store says of them what callers are told."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        definitions: Definitions,
        callbacks: TenantCallbackRules | None,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._dispatcher, self._definitions, self._callbacks = dispatcher, definitions, callbacks
        self._clock, self._ids = clock, ids
        self._messages: set[asyncio.Task[None]] = set()
        self._reached: dict[str, tuple[QuotaReached, float]] = {}
        """Quotas that were reached, each with the moment of the monotonic clock until which nobody asks the store again."""

    async def prepare(
        self,
        agent: AgentRef,
        trigger: Trigger,
        admission: Admission = ENQUEUED,
        *,
        idempotency_key: str | None = None,
        body_hash: str = "",
    ) -> Submission:
        """Return what to submit; raises UnknownAgentError, DefinitionError, CallbackRefusedError, StoreUnavailableError."""
        definition = await self._definitions.get(agent.qualified_definition)
        now = self._clock.now()
        claim = None
        if idempotency_key is not None:
            claim = IdempotencyClaim(idempotency_key, body_hash, now + IDEMPOTENCY_WINDOW)
        command = SubmitRun(
            RunId(self._ids.make("run")),
            agent,
            trigger,
            now,
            claim,
            busy=admission.busy,
            priority=admission.priority,
            deadline=None if admission.deadline is None else now + timedelta(seconds=admission.deadline),
            queue_limit=definition.limits.queued_runs,
            callback_urls=await self._told(agent.tenant, definition, admission),
            quota=admission.quota,
        )
        return Submission(command, is_scripted(definition))

    async def heartbeat_of(self, agent: AgentRef) -> Heartbeat | None:
        """Return the heartbeats that the agent's definition gives it; raises UnknownAgentError, DefinitionError."""
        return (await self._definitions.get(agent.qualified_definition)).heartbeat

    def concluded(self, submission: Submission, outcome: Outcome) -> RunAccepted | OwlClawError:
        """Return what the caller is told, agents being woken meanwhile."""
        agent = submission.command.agent
        match outcome:
            case RunAccepted() as accepted:
                if not accepted.duplicate and not accepted.follows:
                    self.behind(self._dispatcher.wake([agent]))
                if accepted.interrupted is not None:
                    self.behind(self._dispatcher.cancel(agent, accepted.interrupted))
                return replace(accepted, scripted=submission.scripted)
            case IdempotencyConflict(key):
                return IdempotencyConflictError(key)
            case AgentBusy(run_id):
                return AgentBusyError(agent.agent_id, run_id)
            case QueueFull(limit):
                return QueueFullError(agent.agent_id, limit)
            case QuotaReached() as reached:
                self._note_reached(submission.command, reached)
                return reached.error(self._clock.now())
            case CommandFailed(message):
                return UserError(f"the trigger cannot be stored: {message}")
            case other:
                return StoreUnavailableError(f"the trigger was not stored: {other}")

    def check_quotas(self, agent: AgentRef, admission: Admission) -> None:
        """Raise QuotaReachedError for a quota that was found reached a moment ago: a flood of refusals costs no commits.

        Not for triggers that may be there already, or join a queued run: the store alone knows that.
        """
        if not self._reached or admission.busy is BusyPolicy.COALESCE:
            return
        now, quota = self._clock.monotonic(), admission.quota
        for subject in (_tenant(agent), "" if quota is None else _key(quota)):
            found = self._reached.get(subject)
            if found is not None and now < found[1]:
                raise found[0].error(self._clock.now())

    def _note_reached(self, command: SubmitRun, reached: QuotaReached) -> None:
        if reached.quota == AGENTS:
            return  # those that there are may be triggered
        now, at = self._clock.monotonic(), self._clock.now()
        if len(self._reached) >= _KNOWN_QUOTAS:
            self._reached = {name: each for name, each in self._reached.items() if now < each[1]}
        subject = _key(command.quota) if reached.of_key and command.quota is not None else _tenant(command.agent)
        lasts = _OPEN_SECONDS if reached.until is None else (reached.until - at).total_seconds()
        self._reached[subject] = (reached, now + min(lasts, _RATE_SECONDS))

    def behind(self, message: Coroutine[Any, Any, None]) -> None:
        """Send it without holding up the caller, for whom the commit is enough."""
        task = asyncio.create_task(message)
        self._messages.add(task)
        task.add_done_callback(self._messages.discard)

    async def _told(self, tenant: TenantId, definition: AgentDefinition, admission: Admission) -> tuple[str, ...]:
        urls = tuple(dict.fromkeys(filter(None, (admission.callback_url, definition.callback_url))))
        for url in urls:
            why = NO_CALLBACKS if self._callbacks is None else await self._callbacks.problem(tenant, url)
            if why:
                raise CallbackRefusedError(url, why)
        return urls


def _tenant(agent: AgentRef) -> str:
    return f"tenant {agent.tenant}"


def _key(quota: KeyQuota) -> str:
    return f"key {quota.key_id}"


def is_scripted(definition: AgentDefinition) -> bool:
    """Return whether a script and no model answers the definition's agents."""
    return definition.model.chain[0].startswith("scripted:")
