"""Spans as OTLP, posted over HTTP."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from urllib.parse import urlsplit

import httpx

from owlclaw_ray.adapters.tracing.attributes import SERVICE_NAME, SERVICE_VERSION
from owlclaw_ray.adapters.tracing.content import Content
from owlclaw_ray.adapters.tracing.spans import RunSpans, Span
from owlclaw_ray.adapters.tracing.wire import Value, event_bytes, request_of, span_bytes
from owlclaw_ray.ports.tracing import ReceiverError, RefusedTracesError, RunFacts

_PASSING = frozenset({401, 403, 404, 408, 429})
"""Answers, besides those of a server in trouble, that a person or time may change: keys, addresses and limits are put right."""
_TOLD = 200


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
        self._resource: dict[str, Value] = {SERVICE_NAME: "owlclaw", SERVICE_VERSION: ours}
        self._scope = ("owlclaw_ray", ours)

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
        """See TraceReceiver.close."""
        await self._client.aclose()

    def _encoded(self, runs: Iterable[RunFacts]) -> bytes:
        spans = (_bytes_of(span) for facts in runs for span in RunSpans(facts, self._content).all())
        return gzip.compress(request_of(self._resource, self._scope, spans), compresslevel=1)


def _bytes_of(span: Span) -> bytes:
    return span_bytes(
        span.name,
        (span.trace_id, span.span_id, span.parent_id),
        (span.start, span.end),
        span.attributes,
        events=(event_bytes(each.name, each.at, each.attributes) for each in span.events),
        error=span.error,
        asks_elsewhere=span.asks_elsewhere,
    )
