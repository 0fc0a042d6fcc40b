"""The settings of traces, and where they lead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from owlclaw_ray.configuration.limits import Count, Seconds
from owlclaw_ray.configuration.placeholders import names_in, stray_in
from owlclaw_ray.domain.tracing import Destination, TracingOptions
from owlclaw_ray.errors import Problem

_LANGFUSE_KEYS = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
_LANGFUSE_HOSTS = ("LANGFUSE_BASE_URL", "LANGFUSE_HOST")
_LANGFUSE_CLOUD = "https://cloud.langfuse.com"
_LANGFUSE_PATH = "/api/public/otel/v1/traces"
_OTLP_URL, _OTLP_BASE = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
_OTLP_PATH = "/v1/traces"
_KEY = "tracing.export"


class TracingSettings(BaseModel):
    """Traces of runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    export: Literal["auto", "langfuse", "otlp", "off"] = "auto"
    """`auto`: to Langfuse if the environment has its keys, else to an OTLP endpoint if one is named, else nowhere."""
    endpoint: Annotated[str, Field(min_length=1)] | None = None
    """Of an OTLP receiver, without `/v1/traces`; None: what the environment says."""
    headers: dict[str, str] = Field(default_factory=dict)
    content: bool = True
    buffer_runs: Count = 100_000
    timeout_seconds: Seconds = 10.0

    @field_validator("endpoint")
    @classmethod
    def _address(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and not _is_address(endpoint):
            raise ValueError(f"is {endpoint!r}, which is no address: write it as http://127.0.0.1:4318")
        return endpoint

    @field_validator("headers")
    @classmethod
    def _placeholders(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if stray_in(value):
                raise ValueError(f"has {name} with a ${{ that begins no ${{NAME}}: write variables as ${{NAME}}")
        return headers

    @model_validator(mode="after")
    def _endpoint_is_used(self) -> Self:
        if self.endpoint is not None and self.export in {"langfuse", "off"}:
            raise ValueError(f"has an endpoint, which export {self.export} does not use: remove one of them")
        return self

    def options(self, environ: Mapping[str, str]) -> TracingOptions | None:
        """Return what is exported and where to, None for nothing. `problems` has found nothing wrong."""
        url = self._langfuse(environ) if self._to_langfuse(environ) else self._otlp(environ)
        if self.export == "off" or url is None:
            return None
        destination = Destination.LANGFUSE if self._to_langfuse(environ) else Destination.OTLP
        return TracingOptions(
            destination, url, tuple(self.headers.items()), self.content, self.buffer_runs, self.timeout_seconds
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
        options = self.options(environ)
        if options is None:
            return []
        if not _is_address(options.url):
            return [
                Problem(_KEY, f"leads to {options.url!r}, which is no address", "use http://host:port or https://…")
            ]
        unset = [name for _, value in options.headers for name in names_in(value) if name not in environ]
        return [Problem("tracing.headers", f"needs the variable {name}, which is not set", "set it") for name in unset]

    def _to_langfuse(self, environ: Mapping[str, str]) -> bool:
        has_keys = all(environ.get(each) for each in _LANGFUSE_KEYS)
        return self.export == "langfuse" or (self.export == "auto" and self.endpoint is None and has_keys)

    def _langfuse(self, environ: Mapping[str, str]) -> str:
        host = next((environ[each] for each in _LANGFUSE_HOSTS if environ.get(each)), _LANGFUSE_CLOUD)
        return f"{host.rstrip('/')}{_LANGFUSE_PATH}"

    def _otlp(self, environ: Mapping[str, str]) -> str | None:
        if self.endpoint is None and environ.get(_OTLP_URL):
            return environ[_OTLP_URL]
        base = self.endpoint or environ.get(_OTLP_BASE)
        return f"{base.rstrip('/')}{_OTLP_PATH}" if base else None


def _is_address(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in {"http", "https"} and bool(parts.netloc)
