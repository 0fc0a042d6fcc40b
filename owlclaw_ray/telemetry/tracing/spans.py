"""From the journal of a run to its spans: the run, its model calls, its tool calls, its calls for vectors, and its waits.

Times are the journal's. A fact is written down when what it tells of has ended, and says how long that took: the end of a span is
the time of its fact, its beginning so much earlier, though never before the run's own. Ids are derived from the run's, so
that a trace that is exported again is the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

import orjson
from msgspec import Struct

from owlclaw_ray.domain.embedding import EmbeddingPurpose
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.domain.run import RunError, RunResult, RunStatus, Usage
from owlclaw_ray.domain.tracing import TraceParent, call_span, session_of, span_of, span_of_run
from owlclaw_ray.ids import ToolCallId, derived_id
from owlclaw_ray.store.run_ends import RunFacts
from owlclaw_ray.telemetry.tracing import attributes as name
from owlclaw_ray.telemetry.tracing.content import ContentAttributes

Value: TypeAlias = str | bool | int | float | list[str]

_ENDED_WELL = frozenset({RunStatus.COMPLETED, RunStatus.SKIPPED, RunStatus.CANCELLED})


class SpanEvent(Struct, frozen=True):
    """Something that happened during a span."""

    name: str
    at: datetime
    attributes: Mapping[str, Value]


class Span(Struct, frozen=True):
    """One observation, as every receiver gets it."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty for the root of a trace."""
    start: datetime
    end: datetime
    attributes: Mapping[str, Value]
    asks_elsewhere: bool = False
    """Whether it is a call of another service."""
    error: str | None = None
    """What went wrong, if something did; it may be empty."""
    events: tuple[SpanEvent, ...] = ()


class RunSpans:
    """The spans of one run."""

    def __init__(self, facts: RunFacts, content: ContentAttributes) -> None:
        self._facts, self._run = facts, facts.run
        self._content = content.of_run(facts.run.agent.tenant, _said_in(facts))
        self._here = span_of_run(facts.run)
        self._began = facts.run.started_at or facts.run.created_at
        tenant = facts.run.agent.tenant
        self._everywhere: dict[str, Value] = {
            name.SESSION: f"{tenant}/{session_of(facts.run)}",
            name.USER: f"{tenant}/{facts.run.trigger.user}" if facts.run.trigger.user else tenant,
            name.RUN_ID: self._run.run_id,
        }
        self._cause = TraceParent.parse(self._run.trigger.traceparent)
        if self._cause is None:
            self._everywhere |= self._trace()

    def all(self) -> tuple[Span, ...]:
        """Return the run's span, then those within it, in the order of their ends."""
        return (self._root(), *self._model_calls(), *self._tool_calls(), *self._embeddings(), *self._waits())

    def _root(self) -> Span:
        run = self._run
        result = run.result or RunResult(run.status)
        usage = sum((Usage(**each.data["usage"]) for each in self._facts.indexing), result.usage)
        attributes = {
            **self._identity(result),
            name.RUN_STATUS: run.status.value,
            name.RUN_TURNS: result.turns,
            name.RUN_TOOL_CALLS: result.tool_calls,
            name.RUN_INPUT_TOKENS: usage.prompt_tokens,
            name.RUN_OUTPUT_TOKENS: usage.completion_tokens,
            name.RUN_CACHED_TOKENS: usage.cached_tokens,
            name.RUN_COST: usage.cost,
            name.QUEUE_MS: round((self._began - run.created_at) / timedelta(milliseconds=1)),
            **self._said(result),
        }
        error = None
        if run.status not in _ENDED_WELL:
            failed = result.error or RunError(run.status.value, run.status.value)
            attributes[name.ERROR_TYPE], error = failed.type, self._content.error(failed.type, failed.message)
        return self._span(
            f"invoke_agent {run.agent.definition}",
            self._here.span_id,
            (self._began, run.finished_at or self._began),
            attributes,
            parent_id="" if self._cause is None else self._cause.span_id,
            error=error,
        )

    def _identity(self, result: RunResult) -> dict[str, Value]:
        run, trigger = self._run, self._run.trigger
        attributes: dict[str, Value] = {
            name.OPERATION: "invoke_agent",
            name.LANGFUSE_TYPE: "agent",
            name.AGENT_ID: run.agent.agent_id,
            name.AGENT_NAME: run.agent.definition,
            name.CONVERSATION: session_of(run),
            name.TENANT: run.agent.tenant,
            name.TRIGGER_KIND: trigger.kind.value,
            name.SCRIPTED: result.scripted,
        }
        if result.model:
            attributes |= {name.PROVIDER: provider_of(result.model), name.REQUEST_MODEL: result.model}
        if trigger.source:
            attributes[name.TRIGGER_SOURCE] = trigger.source
        if trigger.lineage is not None:
            attributes[name.PARENT_RUN] = trigger.lineage.parent_run
        return attributes

    def _said(self, result: RunResult) -> dict[str, Value]:
        if not self._content.shown:
            return {}
        trigger = self._run.trigger
        asked: JsonObject = {"trigger": trigger.kind.value, "focus": trigger.focus, "payload": trigger.payload}
        said: dict[str, Value] = {
            name.INPUT_MESSAGES: self._content.json([_message("user", [_text(orjson.dumps(asked).decode())])])
        }
        if trigger.focus:
            said[name.TRIGGER_FOCUS] = self._content.text(trigger.focus)
        if result.final_text:
            said[name.OUTPUT_MESSAGES] = self._content.json([_message("assistant", [_text(result.final_text)], "stop")])
        return said

    def _trace(self) -> dict[str, Value]:
        """Return what Langfuse finds the trace by, on each span as its SDK does: metadata as JSON from its version 5 on.

        That of a caller's trace is the caller's business.
        """
        run = self._run
        scripted = run.result is not None and run.result.scripted
        facts = {"agent_id": run.agent.agent_id, "tenant": run.agent.tenant, "trigger": run.trigger.kind.value}
        metadata = {
            f"{name.LANGFUSE_TRACE_METADATA}.{key}": orjson.dumps(value).decode() for key, value in facts.items()
        }
        tags = [run.trigger.kind.value, *(["scripted"] if scripted else [])]
        return {name.LANGFUSE_TRACE_NAME: run.agent.definition, name.LANGFUSE_TRACE_TAGS: tags, **metadata}

    def _model_calls(self) -> Iterator[Span]:
        turn, latest, asked, system = 0, self._began, [], ""
        failures: dict[str, LedgerRecord] = {record.record_id: record for record in self._facts.failures}
        for entry in self._facts.journal:
            match entry.kind:
                case EntryKind.PROMPT_BUILT:
                    system = entry.data["system"]
                    asked = [_message("user", [_text(entry.data["user"])])]
                case EntryKind.MODEL_REPLIED:
                    record_id = derived_id("rec", self._run.run_id, "model_call", str(turn)) if failures else ""
                    record = failures.pop(record_id, None)
                    yield self._replied(entry, turn, record, asked, system if turn == 0 else "")
                    asked, turn = [], turn + 1
                case EntryKind.TOOL_FINISHED:
                    answer = entry.data.get("error", entry.data.get("content"))
                    response = {"type": "tool_call_response", "id": entry.data["call_id"], "response": answer}
                    asked.append(_message("tool", [response]))
            latest = entry.at
        for record in failures.values():
            if "error" in record.data:
                yield self._unanswered(record, latest)

    def _replied(
        self,
        entry: JournalEntry,
        turn: int,
        record: LedgerRecord | None,
        asked: Sequence[JsonObject],
        system: str,
    ) -> Span:
        data, model = entry.data, entry.data["model"]
        usage, calls = data["usage"], data["tool_calls"]
        finish = "tool_call" if calls else "stop"
        attributes: dict[str, Value] = {
            **self._asking(model),
            name.RESPONSE_MODEL: model,
            name.FINISH_REASONS: [finish],
            name.INPUT_TOKENS: usage["prompt_tokens"],
            name.OUTPUT_TOKENS: usage["completion_tokens"],
            name.CACHED_TOKENS: usage["cached_tokens"],
            **_cost(usage),
            name.SCRIPTED: data["scripted"],
        }
        if self._content.shown:
            parts = [_text(data["text"])] if data["text"] else []
            parts += [
                {"type": "tool_call", **{key: call[key] for key in ("id", "name", "arguments")}} for call in calls
            ]
            attributes[name.OUTPUT_MESSAGES] = self._content.json([_message("assistant", parts, finish)])
            attributes[name.INPUT_MESSAGES] = self._content.json(list(asked))
            if system in self._facts.blobs:
                attributes[name.SYSTEM_INSTRUCTIONS] = self._content.prompt(system, [_text(self._facts.blobs[system])])
        times = self._times(entry, data["asked_ms"] if "asked_ms" in data else data["duration_ms"])
        events = self._failed_attempts({} if record is None else record.data, times[0])
        span_id = span_of(self._run.run_id, "model", str(turn))
        return self._span(f"chat {model}", span_id, times, attributes, asks_elsewhere=True, events=events)

    def _unanswered(self, record: LedgerRecord, since: datetime) -> Span:
        """Return the model call that the run ended with: nothing came of it but an error."""
        result = self._run.result
        kind = "cancelled" if result is None or result.error is None else result.error.type
        built = (entry.data["model"] for entry in self._facts.journal if entry.kind is EntryKind.PROMPT_BUILT)
        attributes = {**self._asking(record.data.get("model") or next(built, "")), name.ERROR_TYPE: kind}
        span_id = span_of(self._run.run_id, "model", record.record_id)
        times = (min(since, record.at), record.at)
        why = self._content.error(kind, str(record.data["error"]))
        label = f"chat {attributes.get(name.REQUEST_MODEL, '')}".strip()
        return self._span(label, span_id, times, attributes, asks_elsewhere=True, error=why)

    def _asking(self, model: str) -> dict[str, Value]:
        attributes: dict[str, Value] = {name.OPERATION: "chat", name.LANGFUSE_TYPE: "generation"}
        if model:
            attributes |= {name.PROVIDER: provider_of(model), name.REQUEST_MODEL: model}
        return attributes

    def _tool_calls(self) -> Iterator[Span]:
        for entry in self._facts.journal:
            if entry.kind is not EntryKind.TOOL_FINISHED:
                continue
            data = entry.data
            call_id, tool, error = ToolCallId(data["call_id"]), data["tool"], data.get("error")
            attributes: dict[str, Value] = {
                name.OPERATION: "execute_tool",
                name.LANGFUSE_TYPE: "tool",
                name.TOOL_NAME: tool,
                name.TOOL_TYPE: "function",
                name.TOOL_CALL_ID: call_id,
                name.TOOL_ATTEMPTS: data.get("metadata", {}).get("attempts", 1),
            }
            if self._content.shown:
                attributes[name.TOOL_ARGUMENTS] = self._content.text(str(data.get("executed", data["arguments"])))
                attributes[name.TOOL_RESULT] = self._content.json(data.get("content") if error is None else error)
            if error is not None:
                attributes[name.ERROR_TYPE] = error["type"]
            yield self._span(
                f"execute_tool {tool}",
                call_span(self._run, call_id).span_id,
                self._times(entry, data["duration_ms"]),
                attributes,
                error=None if error is None else self._content.error(error["type"], error["message"]),
            )

    def _embeddings(self) -> Iterator[Span]:
        """Return the calls for vectors: in a tool call, at the run's start, and of what it remembered."""
        for entry in self._facts.journal:
            for number, call in enumerate(entry.data.get("embeddings", ())):
                parent, within = self._here, (self._began, entry.at)
                if entry.kind is EntryKind.TOOL_FINISHED:
                    parent = call_span(self._run, ToolCallId(entry.data["call_id"]))
                    within = self._times(entry, entry.data["duration_ms"])
                times = _inside(within, datetime.fromisoformat(call["at"]), call["duration_ms"])
                yield self._embedding(call, EmbeddingPurpose.RECALL, times, parent, f"{entry.seq}.{number}")
        for record in self._facts.indexing:
            times = _inside((self._began, record.at), record.at, record.data["duration_ms"])
            yield self._embedding(record.data, EmbeddingPurpose.INDEX, times, self._here, record.record_id)

    def _embedding(
        self,
        call: JsonObject,
        purpose: EmbeddingPurpose,
        times: tuple[datetime, datetime],
        parent: TraceParent,
        which: str,
    ) -> Span:
        model, usage = call["model"], call["usage"]
        attributes: dict[str, Value] = {
            name.OPERATION: "embeddings",
            name.LANGFUSE_TYPE: "embedding",
            name.PROVIDER: provider_of(model),
            name.REQUEST_MODEL: model,
            name.INPUT_TOKENS: usage["prompt_tokens"],
            **_cost(usage),
            name.EMBEDDING_PURPOSE: purpose.value,
        }
        return self._span(
            f"embeddings {model}",
            span_of(self._run.run_id, "embedding", which),
            times,
            attributes,
            parent_id=parent.span_id,
            asks_elsewhere=True,
            events=self._failed_attempts(call, times[0]),
        )

    def _failed_attempts(self, call: JsonObject, since: datetime) -> tuple[SpanEvent, ...]:
        return tuple(
            SpanEvent(
                name.ATTEMPT_FAILED,
                since + timedelta(milliseconds=each.get("after_ms", 0)),
                {name.REQUEST_MODEL: each["model"], name.REASON: self._content.error("failed", each["error"])},
            )
            for each in call.get("failed_attempts", ())
        )

    def _waits(self) -> Iterator[Span]:
        since: JournalEntry | None = None
        for entry in self._facts.journal:
            if entry.kind is EntryKind.RUN_WAITING:
                since = entry
            elif since is not None and entry.kind is EntryKind.RUN_CONTINUED:
                yield self._wait(since, entry.at)
                since = None
        if since is not None and self._run.finished_at is not None:
            yield self._wait(since, self._run.finished_at)

    def _wait(self, since: JournalEntry, until: datetime) -> Span:
        what = "approvals" if since.data.get("approvals") else "runs"
        attributes: dict[str, Value] = {name.LANGFUSE_TYPE: "span", name.WAITS_FOR: what}
        span_id = span_of(self._run.run_id, "wait", str(since.seq))
        return self._span(f"wait for {what}", span_id, (since.at, until), attributes)

    def _times(self, entry: JournalEntry, duration_ms: int) -> tuple[datetime, datetime]:
        return max(entry.at - timedelta(milliseconds=duration_ms), min(self._began, entry.at)), entry.at

    def _span(
        self,
        label: str,
        span_id: str,
        times: tuple[datetime, datetime],
        attributes: Mapping[str, Value],
        *,
        parent_id: str | None = None,
        asks_elsewhere: bool = False,
        error: str | None = None,
        events: tuple[SpanEvent, ...] = (),
    ) -> Span:
        told = {**self._everywhere, **attributes}
        if error is not None:
            told |= {name.LANGFUSE_LEVEL: "ERROR", name.LANGFUSE_STATUS_MESSAGE: error}
        parent = self._here.span_id if parent_id is None else parent_id
        return Span(
            label, self._here.trace_id, span_id, parent, times[0], times[1], told, asks_elsewhere, error, events
        )


def _said_in(facts: RunFacts) -> JsonValue:
    """Return everything that was said in a run, but for its system prompt."""
    trigger, result = facts.run.trigger, facts.run.result
    error = "" if result is None or result.error is None else result.error.message
    entries = [
        [each.data["user"], *each.data.get("embeddings", ())] if each.kind is EntryKind.PROMPT_BUILT else each.data
        for each in facts.journal
    ]
    calls = [each.data for each in (*facts.failures, *facts.indexing)]
    return [trigger.payload, trigger.focus, "" if result is None else result.final_text, error, entries, calls]


def _inside(within: tuple[datetime, datetime], end: datetime, duration_ms: int) -> tuple[datetime, datetime]:
    """Return the times of what ended then, moved as little as it takes to be inside: two processes wrote them down."""
    began, until = within
    start = max(began, end - timedelta(milliseconds=duration_ms))
    end = min(until, start + timedelta(milliseconds=duration_ms))
    return min(start, end), end


def _cost(usage: JsonObject) -> dict[str, Value]:
    """Return what a call cost, and how Langfuse adds it up: tokens from a cache are not among the others there."""
    cached = usage["cached_tokens"]
    details = {"input": max(0, usage["prompt_tokens"] - cached), "output": usage["completion_tokens"]}
    if cached:
        details["input_cached_tokens"] = cached
    return {
        name.COST: usage["cost"],
        name.LANGFUSE_USAGE: orjson.dumps(details).decode(),
        name.LANGFUSE_COST: orjson.dumps({"total": usage["cost"]}).decode(),
    }


def provider_of(model: str) -> str:
    """Return whose a model is, from its litellm name."""
    provider, slash, _ = model.partition("/")
    if model.startswith("scripted:"):
        return "scripted"
    return provider if slash else "openai"


def _message(role: str, parts: list[JsonObject], finish: str = "") -> JsonObject:
    message: JsonObject = {"role": role, "parts": parts}
    return {**message, "finish_reason": finish} if finish else message


def _text(content: str) -> JsonObject:
    return {"type": "text", "content": content}
