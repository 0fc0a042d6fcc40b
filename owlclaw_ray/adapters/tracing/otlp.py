"""Spans as OTLP, posted over HTTP."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from urllib.parse import urlsplit

import httpx
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from owlclaw_ray.adapters.tracing.attributes import SERVICE_NAME, SERVICE_VERSION
from owlclaw_ray.adapters.tracing.content import Content
from owlclaw_ray.adapters.tracing.spans import RunSpans, Span
from owlclaw_ray.ports.tracing import ReceiverError, RefusedTracesError, RunFacts

_PASSING = frozenset({401, 403, 404, 408, 429})
"""Answers, besides those of a server in trouble, that a person or time may change: keys, addresses and limits are put right."""
_TOLD = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


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
        self._resource = Resource({SERVICE_NAME: "owlclaw", SERVICE_VERSION: version("owlclaw-ray")})
        self._scope = InstrumentationScope("owlclaw_ray", version("owlclaw-ray"))

    async def send(self, runs: Sequence[RunFacts]) -> None:
        """See TraceReceiver.send."""
        body = await asyncio.to_thread(self._encoded, runs)
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
        spans = [self._readable(span) for facts in runs for span in RunSpans(facts, self._content).all()]
        return gzip.compress(encode_spans(spans).SerializeToString(), compresslevel=1)

    def _readable(self, span: Span) -> ReadableSpan:
        error = span.error
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
            resource=self._resource,
            attributes=span.attributes,
            events=[Event(each.name, each.attributes, _nanoseconds(each.at)) for each in span.events],
            kind=SpanKind.CLIENT if span.asks_elsewhere else SpanKind.INTERNAL,
            status=Status(StatusCode.UNSET) if error is None else Status(StatusCode.ERROR, error),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
            instrumentation_scope=self._scope,
        )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1_000
