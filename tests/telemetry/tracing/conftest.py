from __future__ import annotations

import socket
from contextlib import asynccontextmanager

import pytest

from owlclaw_ray.domain.tracing import Destination, TracingOptions
from owlclaw_ray.ledger.redaction import Redactor, TenantRedactors
from owlclaw_ray.telemetry.trace_export import TraceExport
from owlclaw_ray.telemetry.tracing.content import ContentAttributes
from owlclaw_ray.telemetry.tracing.destinations import receiver_of
from owlclaw_ray.testing.otlp_receiver import OtlpServer


@pytest.fixture
def receiver():
    with OtlpServer() as server:
        yield server


@pytest.fixture
def exporting(receiver):
    """Makes the export of a store to the receiver."""

    @asynccontextmanager
    async def made(ends, *, mask=None, redactors=None, environ=None, notes=None, **options):
        options = {"destination": Destination.OTLP, "url": f"{receiver.url}/v1/traces", **options}
        chosen = TracingOptions(**options)
        content = ContentAttributes(redactors or TenantRedactors(Redactor), mask, shown=chosen.content)
        there = receiver_of(chosen, content, environ or {})
        export = TraceExport(
            ends,
            notes or ends,
            there,
            buffer_runs=chosen.buffer_runs,
            jitter=lambda: 0.0,
        )
        await export.begin()
        yield export
        await there.close()

    return made


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
