"""EventTools: what waits for an agent, as its heartbeats ask (R7). Models do not know of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

import orjson

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.heartbeat import PENDING_EVENTS, EventSourceKind
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import ScheduleKind, ScheduleStatus
from owlclaw_ray.domain.tool import Effect, Permission, ToolClass, ToolDefinition
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import QueryFunction
from owlclaw_ray.store.queries import RunFilter, ScheduleFilter, WaitingDeliveries
from owlclaw_ray.tools.json_result import to_json
from owlclaw_ray.tools.large_output import INLINE_LIMIT
from owlclaw_ray.tools.states import StateProviders

_MAXIMUM = 100
"""What one source may say is pending: more of it changes nothing about whether the agent wakes."""
_MAX_BYTES = 256 * 1024
"""What one source may say, as JSON."""
_RESULT_BYTES = 64 * 1024 * 1024
"""What all may say together without becoming an artifact: the answer is the runtime's to read."""

logger = logging.getLogger(__name__)


class EventTools:
    """Implements ToolAdapter. A source that fails is a problem of its own; the others are asked all the same."""

    source: ClassVar[str] = "the event sources"

    def __init__(
        self,
        *,
        sources: StateProviders,
        read: QueryFunction,
        rows: Callable[[str, str, int], Sequence[JsonObject]],
        environ: Mapping[str, str],
        clock: Clock,
    ) -> None:
        """`read` asks the store; `rows` returns the first rows of a query that changes nothing, of the database of a URL."""
        self._sources, self._read, self._rows = sources, read, rows
        self._environ, self._clock = environ, clock

    @staticmethod
    def definitions() -> tuple[ToolDefinition, ...]:
        """See ToolSource.definitions."""
        return (
            ToolDefinition(
                PENDING_EVENTS,
                "What waits for the agent.",
                {"type": "object"},
                Permission.READONLY,
                Effect.PURE,
                ToolClass.ALONE,
                tags=frozenset({"internal", "readonly"}),
                metadata={INLINE_LIMIT: _RESULT_BYTES},
            ),
        )

    def run(self, invocation: ToolInvocation) -> JsonObject:
        """See ToolAdapter.run: the events that are pending, and what was wrong with sources."""
        asked = orjson.loads(invocation.arguments)
        events: list[JsonObject] = []
        problems: list[JsonObject] = []
        for name in asked["sources"]:
            kind = EventSourceKind(name)
            for label, ask in self._asks(kind, invocation.agent, asked):
                try:
                    pending = _bounded(to_json(ask()))
                except Exception as error:  # noqa: BLE001 - sources are the application's and raise anything; the others are asked
                    logger.warning("the event source %s of %s failed: %r", label, invocation.agent, error)
                    problems.append({"source": label, "message": f"{type(error).__name__}: {error}"})
                    continue
                if pending:
                    events.append({"source": label, "pending": pending})
        return {"events": events, "problems": problems}

    def _asks(
        self, kind: EventSourceKind, agent: AgentRef, asked: JsonObject
    ) -> Iterator[tuple[str, Callable[[], JsonValue]]]:
        match kind:
            case EventSourceKind.INBOX:
                yield kind.value, lambda: self._delivered(agent)
            case EventSourceKind.QUEUE:
                yield kind.value, lambda: self._queued(agent)
            case EventSourceKind.SCHEDULES:
                yield kind.value, lambda: self._due(agent)
            case EventSourceKind.DATABASE:
                yield kind.value, lambda: self._of_database(asked["url_variable"], asked["query"])
            case EventSourceKind.EVENTS:
                for name in self._sources.names:
                    yield f"{kind.value}.{name}", lambda name=name: self._sources.query(name, agent)  # type: ignore[misc]

    def _delivered(self, agent: AgentRef) -> JsonValue:
        """Return the oldest webhooks that wait, as many as may be said; the others wait for the next time."""
        told: list[JsonObject] = []
        size = 0
        for each in self._read(WaitingDeliveries(agent, _MAXIMUM)):
            event = {
                "delivery_id": each.delivery_id,
                "source": each.source,
                "received_at": each.received_at.isoformat(),
                **(each.event or {}),
                **({"failures": each.failures} if each.failures else {}),
            }
            size += len(orjson.dumps(event)) + 1
            if size >= _MAX_BYTES:
                break
            told.append(event)
        return told

    def _queued(self, agent: AgentRef) -> JsonValue:
        found = self._read(RunFilter(agent.tenant, agent, RunStatus.QUEUED, limit=_MAXIMUM))
        return [
            {"run_id": run.run_id, "trigger": run.trigger.kind.value, "focus": run.trigger.focus}
            for run in sorted(found, key=lambda each: each.run_id)
        ]

    def _due(self, agent: AgentRef) -> JsonValue:
        now = self._clock.now()
        active = self._read(ScheduleFilter(agent.tenant, agent, ScheduleStatus.ACTIVE))
        return [
            {"schedule_id": each.schedule_id, "focus": each.focus, "due_at": due.isoformat()}
            for each in active
            if each.kind is not ScheduleKind.HEARTBEAT
            and (due := each.next_due) is not None
            and due + each.delay <= now
        ]

    def _of_database(self, variable: str, query: str) -> JsonValue:
        url = self._environ.get(variable)
        if not url:
            raise ValueError(f"the environment variable {variable} is not set; it must hold the URL of the database")
        return list(self._rows(url, query, _MAXIMUM))


def _bounded(pending: JsonValue) -> JsonValue:
    size = len(orjson.dumps(pending))
    if size > _MAX_BYTES:
        raise ValueError(
            f"says {size} bytes, and {_MAX_BYTES} are allowed: return what names the events, not their contents"
        )
    return pending
