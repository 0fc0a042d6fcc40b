"""Spans as OTLP, and how they are posted over HTTP."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from owlclaw_ray.store.run_ends import RunFacts
from owlclaw_ray.telemetry.tracing.api import ReceiverError, RefusedTracesError
from owlclaw_ray.telemetry.tracing.attributes import SERVICE_NAME, SERVICE_VERSION
from owlclaw_ray.telemetry.tracing.content import ContentAttributes
from owlclaw_ray.telemetry.tracing.spans import RunSpans, Span, Value

_TRANSIENT = frozenset({401, 403, 404, 408, 429})
"""Answers, besides those of a server in trouble, that a person or time may change: keys, addresses and limits are put right."""
_TOLD = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class OtlpSpans:
    """Makes the messages of OTLP. `resource`: attributes of the process, beside its name and version or instead of them."""

    def __init__(self, content: ContentAttributes, resource: Iterable[tuple[str, str]] = ()) -> None:
        self._content, self._version = content, version("owlclaw-ray")
        self._resource: dict[str, Value] = {SERVICE_NAME: "owlclaw", SERVICE_VERSION: self._version, **dict(resource)}

    def of(self, runs: Iterable[RunFacts]) -> ExportTraceServiceRequest:
        """Return the spans of these runs as one message; raises RefusedTracesError if none can be made of them."""
        request = ExportTraceServiceRequest()
        try:
            ours = request.resource_spans.add()
            _put(ours.resource.attributes, self._resource)
            scoped = ours.scope_spans.add()
            scoped.scope.name, scoped.scope.version = "owlclaw_ray", self._version
            for facts in runs:
                for span in RunSpans(facts, self._content).all():
                    _write(scoped.spans.add(), span)
        except Exception as error:
            raise RefusedTracesError(f"no spans can be made of it: {type(error).__name__}: {error}") from error
        return request


class OtlpReceiver:
    """Implements TraceReceiver over HTTP: one request a batch, answered within `timeout` seconds as a whole or given up."""

    def __init__(self, url: str, headers: Mapping[str, str], spans: OtlpSpans, timeout: float) -> None:
        self._url, self._spans, self._timeout = url, spans, timeout
        self._client = httpx.AsyncClient(
            headers={
                **headers,
                "Content-Type": "application/x-protobuf",
                "Content-Encoding": "gzip",
            },
            timeout=timeout,
        )

    async def send(self, runs: Sequence[RunFacts]) -> None:
        """See TraceReceiver.send."""
        body = await asyncio.to_thread(lambda: gzip.compress(self._spans.of(runs).SerializeToString(), compresslevel=1))
        if refusal := await refusal_of(self._client.post(self._url, content=body), self._url, self._timeout):
            raise RefusedTracesError(refusal)

    async def close(self) -> None:
        """See TraceReceiver.close."""
        await self._client.aclose()


async def refusal_of(answering: Awaitable[httpx.Response], url: str, seconds: float) -> str:
    """Return what the server at `url` says against a request for good, or nothing if it took it.

    Raises ReceiverError if it does not answer within `seconds` as a whole, or time or a person may change its answer.
    """
    where = urlsplit(url).netloc
    try:
        async with asyncio.timeout(seconds):
            answer = await answering
    except TimeoutError as error:
        raise ReceiverError(f"{where} did not answer within {seconds:g} s") from error
    except httpx.HTTPError as error:
        raise ReceiverError(f"{where}: {type(error).__name__}: {error}") from error
    if answer.is_success:
        return ""
    message = f"{where} answered {answer.status_code}: {answer.text[:_TOLD]}"
    if answer.status_code in _TRANSIENT or not answer.is_client_error:
        raise ReceiverError(message)
    return message


def _write(message: trace_pb2.Span, span: Span) -> None:
    """Fill the message in its place: objects that are made apart are copied into it once more."""
    message.name = _whole(span.name)
    message.trace_id = bytes.fromhex(span.trace_id)
    message.span_id = bytes.fromhex(span.span_id)
    message.parent_span_id = bytes.fromhex(span.parent_id)
    message.kind = trace_pb2.Span.SPAN_KIND_CLIENT if span.asks_elsewhere else trace_pb2.Span.SPAN_KIND_INTERNAL
    message.start_time_unix_nano, message.end_time_unix_nano = _nanoseconds(span.start), _nanoseconds(span.end)
    _put(message.attributes, span.attributes)
    for each in span.events:
        event = message.events.add()
        event.name, event.time_unix_nano = _whole(each.name), _nanoseconds(each.at)
        _put(event.attributes, each.attributes)
    if span.error is not None:
        message.status.code, message.status.message = trace_pb2.Status.STATUS_CODE_ERROR, _whole(span.error)


def _put(pairs: Any, attributes: Mapping[str, Value]) -> None:
    for key, value in attributes.items():
        pair = pairs.add()
        pair.key = key
        match value:
            case str():
                pair.value.string_value = _whole(value)
            case bool():
                pair.value.bool_value = value
            case int():
                pair.value.int_value = value
            case float():
                pair.value.double_value = value
            case list():
                for each in value:
                    pair.value.array_value.values.add().string_value = _whole(each)


def _whole(text: str) -> str:
    """Return the text with a question mark for each half of a character, which no protobuf text may have."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND * 1_000
