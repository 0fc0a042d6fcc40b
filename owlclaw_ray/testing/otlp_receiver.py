"""A local receiver of OTLP over real HTTP, which decodes what arrives, and is slow or refuses as it is told."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from msgspec import Struct
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

_OK = 200


class ReceivedEvent(Struct, frozen=True):
    """An event of a span."""

    name: str
    time: int
    attributes: Mapping[str, Any]


class ReceivedSpan(Struct, frozen=True):
    """A span as it came over the wire. Ids are in hexadecimal, times in nanoseconds since 1970."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    kind: str
    attributes: Mapping[str, Any]
    failed: bool
    message: str
    events: tuple[ReceivedEvent, ...]
    service: str


class ReceivedBatch(Struct, frozen=True):
    """One request. Header names are in lower case."""

    path: str
    headers: Mapping[str, str]
    spans: tuple[ReceivedSpan, ...]


@dataclass
class OtlpServer:
    """Listens on a free loopback port, in threads of its own, from `with` to the end of the block.

    `answer` gets each decoded batch and returns the status to answer with; it may wait. Batches that are answered with another
    status than 200 are in `batches` too.
    """

    answer: Callable[[ReceivedBatch], int] = lambda _: _OK
    batches: list[ReceivedBatch] = field(default_factory=list)
    _server: ThreadingHTTPServer = field(init=False)
    _arrived: threading.Condition = field(default_factory=threading.Condition)

    def __enter__(self) -> Self:
        receive = self._receive

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                """Decode the batch and answer."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receive(self.path, {key.lower(): value for key, value in self.headers.items()}, body)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The endpoint, without the path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def spans(self) -> tuple[ReceivedSpan, ...]:
        """All spans that came, in their order."""
        return tuple(span for batch in tuple(self.batches) for span in batch.spans)

    def wait_for(self, arrived: Callable[[Sequence[ReceivedSpan]], bool], seconds: float = 60.0) -> None:
        """Return as soon as that holds of the spans that came; raises TimeoutError if it does not within that time."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: arrived(self.spans), seconds):
                raise TimeoutError(f"after {seconds:g} s {len(self.spans)} spans had come, and not what was waited for")

    def _receive(self, path: str, headers: Mapping[str, str], body: bytes) -> int:
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        batch = ReceivedBatch(path, headers, tuple(_spans(request)))
        with self._arrived:
            self.batches.append(batch)
            self._arrived.notify_all()
        return self.answer(batch)


def _spans(request: ExportTraceServiceRequest) -> list[ReceivedSpan]:
    return [
        _span(span, _attributes(resource.resource.attributes).get("service.name", ""))
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _span(span: trace_pb2.Span, service: str) -> ReceivedSpan:
    return ReceivedSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        _attributes(span.attributes),
        span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        span.status.message,
        tuple(ReceivedEvent(each.name, each.time_unix_nano, _attributes(each.attributes)) for each in span.events),
        service,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
