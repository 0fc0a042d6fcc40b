"""Spans as OTLP, sent over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from owlclaw_ray.store.run_ends import RunFacts
from owlclaw_ray.telemetry.tracing.api import ReceiverError, RefusedTracesError
from owlclaw_ray.telemetry.tracing.otlp import OtlpSpans

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_REFUSED = frozenset({grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE})
"""What the receiver will say of the same batch at any time."""
_TOO_LARGE = "larger than max"
"""In what a server says of a message that is over its limit, with the code of one that has no room now."""
_TOLD = 200


class GrpcReceiver:
    """Implements TraceReceiver over gRPC, encrypted unless the URL begins with http://; one call a batch, within `timeout` seconds."""

    def __init__(self, url: str, headers: Mapping[str, str], spans: OtlpSpans, timeout: float) -> None:
        parts = urlsplit(url)
        self._where, self._spans, self._timeout = parts.netloc, spans, timeout
        self._metadata = tuple((name.lower(), value) for name, value in headers.items())
        options = {"compression": grpc.Compression.Gzip}
        self._channel = (
            grpc.aio.secure_channel(self._where, grpc.ssl_channel_credentials(), **options)
            if parts.scheme == "https"
            else grpc.aio.insecure_channel(self._where, **options)
        )
        self._export = self._channel.unary_unary(
            _EXPORT, ExportTraceServiceRequest.SerializeToString, ExportTraceServiceResponse.FromString
        )

    async def send(self, runs: Sequence[RunFacts]) -> None:
        """See TraceReceiver.send."""
        request = await asyncio.to_thread(self._spans.of, runs)
        try:
            await self._export(request, timeout=self._timeout, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            message = f"{self._where}: {error.code().name}: {(error.details() or '')[:_TOLD]}"
            if error.code() in _REFUSED or _TOO_LARGE in message:
                raise RefusedTracesError(message) from error
            raise ReceiverError(message) from error

    async def close(self) -> None:
        """See TraceReceiver.close."""
        await self._channel.close()
