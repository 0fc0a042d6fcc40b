"""The settings of traces, and where they lead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from owlclaw_ray.configuration.limits import Count, Seconds
from owlclaw_ray.configuration.placeholders import names_in
from owlclaw_ray.configuration.section import Headers, Section
from owlclaw_ray.domain.tracing import Destination, Protocol, TracingOptions
from owlclaw_ray.errors import Problem

_LANGFUSE_KEYS = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
_LANGFUSE_HOSTS = ("LANGFUSE_BASE_URL", "LANGFUSE_HOST")
_LANGFUSE_CLOUD = "https://cloud.langfuse.com"
_LANGFUSE_PATH = "/api/public/otel/v1/traces"
_OTLP_URL, _OTLP_BASE = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
_OTLP_PATH = "/v1/traces"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SERVICE, _RESOURCE = "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"
_KEY = "tracing.export"


class TracingSettings(Section):
    """Traces of runs."""

    export: Literal["auto", "langfuse", "otlp", "off"] = "auto"
    """`auto`: to Langfuse if the environment has its keys, else to an OTLP endpoint if one is named, else nowhere."""
    endpoint: Annotated[str, Field(min_length=1)] | None = None
    """Of an OTLP receiver, without `/v1/traces`; None: what the environment says."""
    headers: Headers = Field(default_factory=dict)
    content: bool = True
    buffer_runs: Count = 100_000
    timeout_seconds: Seconds = 10.0

    @field_validator("endpoint")
    @classmethod
    def _address(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and not _is_address(endpoint):
            raise ValueError(f"is {endpoint!r}, which is no address: write it as http://127.0.0.1:4318")
        return endpoint

    @model_validator(mode="after")
    def _endpoint_is_used(self) -> Self:
        if self.endpoint is not None and self.export in {"langfuse", "off"}:
            raise ValueError(f"has an endpoint, which export {self.export} does not use: remove one of them")
        return self

    def options(self, environ: Mapping[str, str]) -> TracingOptions | None:
        """Return what is exported and where to, None for nothing. `problems` has found nothing wrong."""
        to_langfuse = self._to_langfuse(environ)
        host = next((environ[each] for each in _LANGFUSE_HOSTS if environ.get(each)), _LANGFUSE_CLOUD)
        url = f"{host.rstrip('/')}{_LANGFUSE_PATH}" if to_langfuse else self._otlp(environ)
        if self.export == "off" or url is None:
            return None
        return TracingOptions(
            Destination.LANGFUSE if to_langfuse else Destination.OTLP,
            url,
            tuple(self.headers.items()),
            self.content,
            self.buffer_runs,
            self.timeout_seconds,
            Protocol.HTTP if to_langfuse else _protocol(environ),
            _resource(environ),
        )

    def problems(self, environ: Mapping[str, str]) -> list[Problem]:
        """Return what the environment lacks for these settings."""
        missing = [each for each in _LANGFUSE_KEYS if not environ.get(each)]
        if self.export == "langfuse" and missing:
            return [Problem(_KEY, f"is langfuse, and {' and '.join(missing)} are not set", "set them, or choose otlp")]
        if self.export == "auto" and len(missing) == 1:
            [has] = set(_LANGFUSE_KEYS) - set(missing)
            what = f"finds {has} without {missing[0]}"
            return [Problem(_KEY, what, f"set {missing[0]} too, or set {_KEY} to otlp or off")]
        if self.export == "otlp" and self._otlp(environ) is None:
            fix = f"set tracing.endpoint, or the variable {_OTLP_BASE}"
            return [Problem(_KEY, "is otlp, and there is no endpoint", fix)]
        wrong = self._wrong_variables(environ)
        options = None if wrong else self.options(environ)
        if options is None:
            return wrong
        if not _is_address(options.url):
            return [
                Problem(_KEY, f"leads to {options.url!r}, which is no address", "use http://host:port or https://…")
            ]
        unset = [name for _, value in options.headers for name in names_in(value) if name not in environ]
        return [Problem("tracing.headers", f"needs the variable {name}, which is not set", "set it") for name in unset]

    def _wrong_variables(self, environ: Mapping[str, str]) -> list[Problem]:
        """Return what is wrong with the standard variables that are used."""
        if self.export == "off":
            return []
        name, written = _first_set(_PROTOCOLS, environ)
        if written and not self._to_langfuse(environ) and written not in {each.value for each in Protocol}:
            known = " or ".join(each.value for each in Protocol)
            return [Problem(name, f"is {written!r}, which is not spoken here", f"set it to {known}")]
        try:
            _resource(environ)
        except ValueError as error:
            return [Problem(_RESOURCE, str(error), "write name=value pairs with commas between them")]
        return []

    def _to_langfuse(self, environ: Mapping[str, str]) -> bool:
        has_keys = all(environ.get(each) for each in _LANGFUSE_KEYS)
        return self.export == "langfuse" or (self.export == "auto" and self.endpoint is None and has_keys)

    def _otlp(self, environ: Mapping[str, str]) -> str | None:
        if self.endpoint is None and environ.get(_OTLP_URL):
            return environ[_OTLP_URL]
        base = self.endpoint or environ.get(_OTLP_BASE)
        if not base or _protocol(environ) is Protocol.GRPC:
            return base
        return f"{base.rstrip('/')}{_OTLP_PATH}"


def _first_set(names: Iterable[str], environ: Mapping[str, str]) -> tuple[str, str]:
    return next(((name, environ[name].strip()) for name in names if environ.get(name)), ("", ""))


def _protocol(environ: Mapping[str, str]) -> Protocol:
    _, written = _first_set(_PROTOCOLS, environ)
    return Protocol.GRPC if written == Protocol.GRPC.value else Protocol.HTTP


def _resource(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return what the standard variables say of this process, the name of the service last; raises ValueError."""
    found: dict[str, str] = {}
    for pair in filter(str.strip, environ.get(_RESOURCE, "").split(",")):
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():
            raise ValueError(f"has {pair.strip()!r}, which is no name=value")
        found[unquote(name.strip())] = unquote(value.strip())
    if service := environ.get(_SERVICE, "").strip():
        found["service.name"] = service
    return tuple(found.items())


def _is_address(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in {"http", "https"} and bool(parts.netloc)
