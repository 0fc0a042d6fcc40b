"""Where spans go, and what is needed to send them there."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from urllib.parse import unquote

from owlclaw_ray.configuration.placeholders import filled, names_in
from owlclaw_ray.domain.tracing import Destination, Protocol, TracingOptions
from owlclaw_ray.errors import ConfigurationError, Problem, install_hint
from owlclaw_ray.telemetry.tracing.api import ScoreReceiver, TraceReceiver
from owlclaw_ray.telemetry.tracing.content import ContentAttributes

_KEYS = PUBLIC_KEY, SECRET_KEY = "LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"
_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")


def check_installed(options: TracingOptions) -> None:
    """Raise ConfigurationError, with the command that installs it, if what sends spans there is not installed."""
    if options.destination is Destination.LANGFUSE and find_spec("langfuse") is None:
        what = "sends traces to langfuse, and langfuse is not installed"
        fix = f"{install_hint('langfuse')}, or set tracing.export to otlp or off"
        raise ConfigurationError([Problem("tracing.export", what, fix)])
    if options.protocol is Protocol.GRPC and find_spec("grpc") is None:
        what = "sends traces over gRPC (OTEL_EXPORTER_OTLP_PROTOCOL), and grpcio is not installed"
        fix = f"{install_hint('otlp-grpc')}, or set the variable to http/protobuf"
        raise ConfigurationError([Problem("tracing.export", what, fix)])


def receiver_of(options: TracingOptions, content: ContentAttributes, environ: Mapping[str, str]) -> TraceReceiver:
    """Return the receiver of the spans; `environ` has the keys. Raises ConfigurationError for what is not installed or not set."""
    check_installed(options)
    from owlclaw_ray.telemetry.tracing.otlp import OtlpReceiver, OtlpSpans

    headers = _headers(options, environ)
    spans = OtlpSpans(content, options.resource)
    if options.protocol is Protocol.GRPC:
        from owlclaw_ray.telemetry.tracing.otlp_grpc import GrpcReceiver

        return GrpcReceiver(options.url, headers, spans, options.timeout)
    return OtlpReceiver(options.url, headers, spans, options.timeout)


def scores_of(options: TracingOptions, content: ContentAttributes, environ: Mapping[str, str]) -> ScoreReceiver:
    """Return the receiver of scores, where traces go to Langfuse; raises ConfigurationError as `receiver_of`."""
    check_installed(options)
    from owlclaw_ray.telemetry.tracing.langfuse_scores import LangfuseScores

    return LangfuseScores(options.url, _headers(options, environ), content, options.timeout)


def _headers(options: TracingOptions, environ: Mapping[str, str]) -> dict[str, str]:
    to_langfuse = options.destination is Destination.LANGFUSE
    _check_set(_KEYS if to_langfuse else (), "tracing.export", environ)
    _check_set([name for _, value in options.headers for name in names_in(value)], "tracing.headers", environ)
    headers = {key: filled(value, environ) for key, value in options.headers}
    if to_langfuse:
        return {**langfuse_headers(environ[PUBLIC_KEY], environ[SECRET_KEY]), **headers}
    # the standard variables hold `name=value` pairs between commas, encoded as in a URL
    written = next((environ[each] for each in _HEADERS if environ.get(each)), "")
    pairs = (pair.partition("=") for pair in written.split(",") if "=" in pair)
    standard = {unquote(key).strip().lower(): unquote(value).strip() for key, _, value in pairs}
    return {**standard, **headers}


def langfuse_headers(public_key: str, secret_key: str) -> dict[str, str]:
    """Return the headers that identify a project to Langfuse: those that its SDK sends with every batch.

    The SDK's client itself is of no use here: it starts and ends spans as they happen, under ids of its own making, and does
    not report whether they arrived.
    """
    import langfuse

    token = base64.b64encode(f"{public_key}:{secret_key}".encode()).decode()
    return {
        "Authorization": f"Basic {token}",
        "x-langfuse-sdk-name": "python",
        "x-langfuse-sdk-version": langfuse.__version__,
        "x-langfuse-public-key": public_key,
        "x-langfuse-ingestion-version": "4",
    }


def _check_set(names: Iterable[str], where: str, environ: Mapping[str, str]) -> None:
    problems = [
        Problem(where, f"needs the variable {name}, which is not set", "set it")
        for name in names
        if not environ.get(name)
    ]
    if problems:
        raise ConfigurationError(problems)
