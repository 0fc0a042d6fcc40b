"""Distributed traces: where a run belongs in one, by the W3C Trace Context recommendation, and where its spans go.

All ids are derived, so that whoever asks for a span's id, before or after it is exported and however often, gets the same.
"""

from __future__ import annotations

import hashlib
import re
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.trigger import Trigger
from owlclaw_ray.ids import DEFAULT_TENANT, RunId, TenantId, ToolCallId

HEADER = "traceparent"
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_NO_VERSION = "ff"
_SAMPLED = 1


class TraceParent(Struct, frozen=True):
    """A span, as one process tells another of it."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits."""
    flags: int = _SAMPLED

    @classmethod
    def parse(cls, text: str) -> TraceParent | None:
        """Return what a `traceparent` header says; None if it says nothing that may be used: then a trace begins anew."""
        found = _FORM.fullmatch(text.strip())
        if found is None:
            return None
        version, trace_id, span_id, flags, rest = found.groups()
        if version == _NO_VERSION or (version == "00" and rest):
            return None
        return None if trace_id == _NO_TRACE or span_id == _NO_SPAN else cls(trace_id, span_id, int(flags, 16))

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags & _SAMPLED:02x}"


def in_trace(trigger: Trigger, header: str | None, tenant: TenantId) -> Trigger:
    """Return the trigger as part of the trace that a header `traceparent` names; one that cannot be used counts as absent.

    A trace of another tenant than the default one has an id that is derived from the tenant and the named one: by knowing an id no
    tenant gets its spans into a trace of another.
    """
    cause = None if header is None else TraceParent.parse(header)
    if cause is None:
        return trigger
    if tenant != DEFAULT_TENANT:
        cause = replace(cause, trace_id=_digest(f"{tenant}\0{cause.trace_id}")[:32])
    return replace(trigger, traceparent=str(cause))


def run_span(run_id: RunId, traceparent: str = "") -> TraceParent:
    """Return the span of a run, in the trace of whoever triggered it with this traceparent, or in one of its own.

    What is started on the run's behalf (a webhook at its end, for example) is told `str(run_span(…))`.
    """
    caller = TraceParent.parse(traceparent)
    span_id = span_of(run_id, "run")
    return TraceParent(_digest(run_id)[:32], span_id) if caller is None else replace(caller, span_id=span_id)


def span_of_run(run: Run) -> TraceParent:
    """Return as run_span."""
    return run_span(run.run_id, run.trigger.traceparent)


def session_of(run: Run) -> str:
    """Return what the run's trace is grouped with, within its tenant: what its trigger says, or the agent."""
    return run.trigger.session or run.agent.agent_id


def call_span(run: Run, call_id: ToolCallId) -> TraceParent:
    """Return the span of one of a run's tool calls: what the tool tells the services that it asks."""
    return replace(span_of_run(run), span_id=span_of(run.run_id, "tool", call_id))


def span_of(run_id: RunId, *what: str) -> str:
    """Return the id of a run's span."""
    return _digest("\0".join((run_id, *what)))[32:48]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Destination(Enum):
    """Who receives the spans."""

    LANGFUSE = "langfuse"
    OTLP = "otlp"
    """Anything that takes OTLP: a collector, Jaeger, Tempo."""


class Protocol(Enum):
    """How spans travel to a receiver of OTLP; the names are those of OTEL_EXPORTER_OTLP_PROTOCOL."""

    HTTP = "http/protobuf"
    GRPC = "grpc"


class TracingOptions(Struct, frozen=True):
    """What is exported, and where to. It holds no secrets: those are in the environment of the process that exports."""

    destination: Destination
    url: str
    """Where batches of spans are posted."""
    headers: tuple[tuple[str, str], ...] = ()
    """Their values may name variables, as `${NAME}`."""
    content: bool = True
    """Whether prompts, replies, arguments and results are exported, or only names, times, counts and errors."""
    buffer_runs: int = 100_000
    """How many ended runs may wait for a receiver that does not take them; the oldest are given up for more."""
    timeout: float = 10.0
    """Seconds that the receiver may take for a batch."""
    protocol: Protocol = Protocol.HTTP
    resource: tuple[tuple[str, str], ...] = ()
    """What is said of the process that the spans come from, beside its name and version or instead of them."""
