"""Traces over gRPC, to a receiver that decodes what arrives, with what the standard variables say."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from owlclaw_ray.domain.tracing import Destination, Protocol, TracingOptions
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.ledger.redaction import Redactor, TenantRedactors
from owlclaw_ray.settings import load_runtime_settings
from owlclaw_ray.telemetry.trace_export import TraceExport
from owlclaw_ray.telemetry.tracing import destinations
from owlclaw_ray.telemetry.tracing.content import ContentAttributes
from owlclaw_ray.telemetry.tracing.destinations import check_installed, receiver_of
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.definitions.writing import write_definition

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


class Collector:
    """Takes batches, or answers with `code`."""

    def __init__(self):
        self.requests, self.metadata, self.code, self.details = [], [], None, ""

    def export(self, request, context):
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        if self.code is not None:
            context.abort(self.code, self.details)
        return ExportTraceServiceResponse()


@pytest.fixture
def collector():
    made, server = Collector(), grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(
        made.export, ExportTraceServiceRequest.FromString, ExportTraceServiceResponse.SerializeToString
    )
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"Export": handler})])
    made.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield made
    server.stop(0).wait()


@pytest.fixture
async def export_of(collector, tmp_path):
    """Makes the export of a store as the environment has it."""
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20abc",
        "OTEL_SERVICE_NAME": "till",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=shop%20floor,service.name=other",
    }
    options = load_runtime_settings(tmp_path, variables).tracing.options(variables)
    receiver = receiver_of(options, ContentAttributes(TenantRedactors(Redactor)), variables)

    async def made(ends):
        export = TraceExport(ends, ends, receiver, buffer_runs=100, jitter=lambda: 0.0)
        await export.begin()
        return export

    yield made
    await receiver.close()


@pytest.fixture
async def runtime(tmp_path):
    write_definition(tmp_path / "agents" / "watch", agent="model: scripted:echo\n")
    async with in_process_runtime(agents_dir=tmp_path / "agents", data_dir=tmp_path / "data") as running:
        yield running


async def test_a_run_arrives_with_the_headers_and_the_resource_of_the_standard_variables(collector, export_of, runtime):
    export = await export_of(runtime.store)

    await runtime.trigger("watch")
    await export.step()

    [request] = collector.requests
    [told] = request.resource_spans
    resource = {each.key: each.value.string_value for each in told.resource.attributes}
    assert (resource["service.name"], resource["deployment.environment"]) == ("till", "shop floor")
    assert "invoke_agent watch" in [span.name for span in told.scope_spans[0].spans]
    assert collector.metadata[0]["authorization"] == "Bearer abc"
    assert export.counts.exported == 1


@pytest.mark.parametrize(
    ("answer", "counts"),
    [
        ((grpc.StatusCode.UNAVAILABLE, "busy"), (0, 0, 1)),
        ((grpc.StatusCode.UNAUTHENTICATED, "who are you"), (0, 0, 1)),
        ((grpc.StatusCode.RESOURCE_EXHAUSTED, "no room now"), (0, 0, 1)),
        ((grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 4)"), (0, 1, 0)),
        ((grpc.StatusCode.INVALID_ARGUMENT, "no such span"), (0, 1, 0)),
    ],
)
async def test_what_a_receiver_may_take_later_waits_and_what_it_will_never_take_is_given_up_and_counted(
    collector, export_of, runtime, answer, counts
):
    export = await export_of(runtime.store)
    collector.code, collector.details = answer
    await runtime.trigger("watch")

    await export.step()
    seen = export.counts
    assert (seen.exported, seen.dropped, seen.failures) == counts

    collector.code = None
    await export.step()
    assert export.counts.exported == (0 if seen.dropped else 1)


def test_without_grpc_an_error_names_the_command_that_installs_it(monkeypatch):
    options = TracingOptions(Destination.OTLP, "http://127.0.0.1:4317", protocol=Protocol.GRPC)
    check_installed(options)
    monkeypatch.setattr(destinations, "find_spec", lambda name: None if name == "grpc" else name)

    with pytest.raises(ConfigurationError, match=r"pip install -e '\.\[otlp-grpc\]'"):
        check_installed(options)
