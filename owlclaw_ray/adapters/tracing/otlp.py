"""Spans as OTLP, posted over HTTP."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from urllib.parse import urlsplit

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

from owlclaw_ray.adapters.tracing.attributes import SERVICE_NAME, SERVICE_VERSION
from owlclaw_ray.adapters.tracing.content import Content
from owlclaw_ray.adapters.tracing.spans import RunSpans, Span, Value
from owlclaw_ray.ports.tracing import ReceiverError, RefusedTracesError, RunFacts

_PASSING = frozenset({401, 403, 404, 408, 429})
"""Answers, besides those of a server in trouble, that a person or time may change: keys, addresses and limits are put right."""
_TOLD = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OtlpReceiver:
    """Implements TraceReceiver: one request a batch, answered within `timeout` seconds as a whole or given up."""

    def __init__(self, url: str, headers: Mapping[str, str], content: Content, timeout: float) -> None:
        self._url, self._content, self._timeout = url, content, timeout
        self._client = httpx.AsyncClient(
            headers={
                **headers,
                "Content-Type": "application/x-protobuf",
                "Content-Encoding": "gzip",
            },
            timeout=timeout,
        )
        ours = version("owlclaw-ray")
        self._resource = Resource(attributes=_pairs({SERVICE_NAME: "owlclaw", SERVICE_VERSION: ours}))
        self._scope = InstrumentationScope(name="owlclaw_ray", version=ours)

    async def send(self, runs: Sequence[RunFacts]) -> None:
        """See TraceReceiver.send."""
        try:
            body = await asyncio.to_thread(self._encoded, runs)
        except Exception as error:
            raise RefusedTracesError(f"no spans can be made of it: {type(error).__name__}: {error}") from error
        where = urlsplit(self._url).netloc
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._client.post(self._url, content=body)
        except TimeoutError as error:
            raise ReceiverError(f"{where} did not answer within {self._timeout:g} s") from error
        except httpx.HTTPError as error:
            raise ReceiverError(f"{where}: {type(error).__name__}: {error}") from error
        if answer.is_success:
            return
        message = f"{where} answered {answer.status_code}: {answer.text[:_TOLD]}"
        if answer.status_code in _PASSING or not answer.is_client_error:
            raise ReceiverError(message)
        raise RefusedTracesError(message)

    async def close(self) -> None:
        """Release the connections."""
        await self._client.aclose()

    def _encoded(self, runs: Iterable[RunFacts]) -> bytes:
        spans = [_message(span) for facts in runs for span in RunSpans(facts, self._content).all()]
        scoped = ScopeSpans(scope=self._scope, spans=spans)
        request = ExportTraceServiceRequest(
            resource_spans=[ResourceSpans(resource=self._resource, scope_spans=[scoped])]
        )
        return gzip.compress(request.SerializeToString(), compresslevel=1)


def _message(span: Span) -> trace_pb2.Span:
    error = span.error
    status = trace_pb2.Status()
    if error is not None:
        status = trace_pb2.Status(code=trace_pb2.Status.STATUS_CODE_ERROR, message=error)
    kind = trace_pb2.Span.SPAN_KIND_CLIENT if span.asks_elsewhere else trace_pb2.Span.SPAN_KIND_INTERNAL
    return trace_pb2.Span(
        name=span.name,
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id),
        kind=kind,
        start_time_unix_nano=_nanoseconds(span.start),
        end_time_unix_nano=_nanoseconds(span.end),
        attributes=_pairs(span.attributes),
        events=[
            trace_pb2.Span.Event(
                name=each.name, time_unix_nano=_nanoseconds(each.at), attributes=_pairs(each.attributes)
            )
            for each in span.events
        ],
        status=status,
    )


def _pairs(attributes: Mapping[str, Value]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: Value) -> AnyValue:
    match value:
        case str():
            return AnyValue(string_value=value.encode("utf-8", "replace").decode())
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case _:
            return AnyValue(array_value=ArrayValue(values=[_value(each) for each in value]))


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1_000
