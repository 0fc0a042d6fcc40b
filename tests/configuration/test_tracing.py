"""Where the settings and the environment send traces, and what they lack."""

from __future__ import annotations

import tomllib

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.tracing import Destination, TracingOptions
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.settings import load_runtime_settings
from owlclaw_ray.telemetry.tracing import destinations
from owlclaw_ray.telemetry.tracing.destinations import check_installed
from tests.docs.snippets import ROOT

KEYS = {"LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk"}
COLLECTOR = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318/"}


def led(tmp_path, environ, **tracing):
    variables = {f"OWLCLAW_TRACING__{key.upper()}": value for key, value in tracing.items()}
    options = load_runtime_settings(tmp_path, environ | variables).tracing.options(environ)
    return None if options is None else (options.destination.value, options.url)


@pytest.mark.parametrize(
    ("environ", "tracing", "there"),
    [
        ({}, {}, None),
        (KEYS, {}, ("langfuse", "https://cloud.langfuse.com/api/public/otel/v1/traces")),
        (
            KEYS | COLLECTOR | {"LANGFUSE_BASE_URL": "http://127.0.0.1:3000/"},
            {},
            ("langfuse", "http://127.0.0.1:3000/api/public/otel/v1/traces"),
        ),
        (KEYS | {"LANGFUSE_HOST": "http://h"}, {}, ("langfuse", "http://h/api/public/otel/v1/traces")),
        (COLLECTOR, {}, ("otlp", "http://127.0.0.1:4318/v1/traces")),
        (COLLECTOR | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/in"}, {}, ("otlp", "http://t/in")),
        (KEYS | COLLECTOR, {"export": "otlp"}, ("otlp", "http://127.0.0.1:4318/v1/traces")),
        (KEYS | COLLECTOR, {"endpoint": "http://c:1"}, ("otlp", "http://c:1/v1/traces")),
        (KEYS | COLLECTOR, {"export": "off"}, None),
        (COLLECTOR | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, {}, ("otlp", "http://127.0.0.1:4318/")),
        (
            KEYS | {"OTEL_EXPORTER_OTLP_PROTOCOL": "thrift"},
            {},
            ("langfuse", "https://cloud.langfuse.com/api/public/otel/v1/traces"),
        ),
    ],
)
def test_traces_go_where_the_settings_say_and_else_where_the_environment_says(tmp_path, environ, tracing, there):
    assert led(tmp_path, environ, **tracing) == there


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({"OWLCLAW_TRACING__EXPORT": "langfuse"}, "LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY are not set"),
        ({"LANGFUSE_PUBLIC_KEY": "pk"}, "finds LANGFUSE_PUBLIC_KEY without LANGFUSE_SECRET_KEY"),
        ({"OWLCLAW_TRACING__EXPORT": "otlp"}, "is otlp, and there is no endpoint"),
        ({"OWLCLAW_TRACING__ENDPOINT": "localhost:4318"}, "is 'localhost:4318', which is no address"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"}, "leads to 'localhost:4318/v1/traces', which is no address"),
        (COLLECTOR | {"OWLCLAW_TRACING__HEADERS": '{"a": "${GONE}"}'}, "needs the variable GONE, which is not set"),
        (COLLECTOR | {"OWLCLAW_TRACING__HEADERS": '{"a": "${ gone}"}'}, r"has a \$\{ in a that names no variable"),
        (COLLECTOR | {"OWLCLAW_TRACING__HEADERS": '{"a b": "c"}'}, "has 'a b', which is no name of a header"),
        (
            {"OWLCLAW_TRACING__EXPORT": "off", "OWLCLAW_TRACING__ENDPOINT": "http://c"},
            "has an endpoint, which export off does not use",
        ),
        (COLLECTOR | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "is 'http/json', which is not spoken here"),
        (COLLECTOR | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "thrift"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
        (
            COLLECTOR | {"OTEL_RESOURCE_ATTRIBUTES": "a=b,c"},
            "OTEL_RESOURCE_ATTRIBUTES.* has 'c', which is no name=value",
        ),
        ({"OWLCLAW_TRACING__BUFFER_RUNS": "0"}, "tracing.buffer_runs|OWLCLAW_TRACING__BUFFER_RUNS"),
    ],
)
def test_what_is_missing_or_contradicts_itself_is_an_error_at_the_start(tmp_path, environ, problem):
    with pytest.raises(ConfigurationError, match=problem):
        load_runtime_settings(tmp_path, environ)


def test_without_the_sdk_of_langfuse_an_error_names_the_command_that_installs_it(monkeypatch):
    options = TracingOptions(Destination.LANGFUSE, "http://127.0.0.1:3000/api/public/otel/v1/traces")
    check_installed(options)
    monkeypatch.setattr(destinations, "find_spec", lambda _: None)

    check_installed(replace(options, destination=Destination.OTLP))
    with pytest.raises(ConfigurationError, match=r"pip install -e '\.\[langfuse\]'"):
        check_installed(options)


def test_the_extra_that_the_error_names_brings_the_sdk():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["langfuse"][0].startswith("langfuse>=")
