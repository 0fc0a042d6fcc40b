"""The section `hatchet` of owlclaw.yaml: the engine that keeps alarms, if there is one (S1)."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

import orjson
from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator

from owlclaw_ray.configuration.section import Section
from owlclaw_ray.domain.json import JsonObject

_PARTS = 3
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ADDRESS = re.compile(r"(?:[^\s:/]+|\[[0-9a-fA-F:]+\]):(\d{1,5})")
_NAMESPACE = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_HIGHEST_PORT = 65_535
_WHERE_FROM = "docs/hatchet.md says how to make one"


class HatchetSettings(Section):
    """Where the engine is, and how it is used. With a token alarms are kept there; without one, here."""

    model_config = ConfigDict(hide_input_in_errors=True)

    token: SecretStr | None = None
    """The API token, which also says where the engine is."""
    api_url: Annotated[str, Field(min_length=1)] | None = None
    """None: as the token says."""
    grpc_address: Annotated[str, Field(min_length=1)] | None = None
    """None: as the token says."""
    namespace: str = ""
    """Keeps installations apart that share a tenant of the engine."""
    tls: Literal["none", "tls", "mtls"] = "tls"
    tls_ca_file: Path | None = None
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_server_name: str = ""
    """None but the one in `grpc_address` unless it is set."""
    reconcile_seconds: Annotated[float, Field(ge=5, le=60)] = 30.0
    """How often the engine's alarms are compared with the schedules."""
    grace_seconds: Annotated[float, Field(ge=0, le=60)] = 3.0
    """How late the engine may be before a schedule fires without it."""
    alarms_max: Annotated[int, Field(ge=1, le=50_000)] = 5_000
    """Alarms in the engine at most."""

    @field_validator("token", mode="before")
    @classmethod
    def _token(cls, token: object) -> object:
        if token is None:
            return None
        if not isinstance(token, str) or not token:
            raise ValueError(f"is no text: {_WHERE_FROM}")
        claims = _claims(token)
        if claims is None:
            what = "is no API token of Hatchet, which is three parts with dots between them"
        elif not _UUID.fullmatch(str(claims.get("sub", ""))):
            what = "names no tenant"
        elif not _is_url(str(claims.get("server_url", ""))) or not claims.get("grpc_broadcast_address"):
            what = "does not say where the engine is"
        else:
            return token
        raise ValueError(f"{what}: {_WHERE_FROM}")

    @field_validator("api_url")
    @classmethod
    def _api_url(cls, url: str | None) -> str | None:
        if url is not None and not _is_url(url):
            raise ValueError(f"is {url!r}: write it as http://127.0.0.1:8888")
        return url

    @field_validator("grpc_address")
    @classmethod
    def _grpc_address(cls, address: str | None) -> str | None:
        if address is not None:
            found = _ADDRESS.fullmatch(address)
            if found is None or not 0 < int(found[1]) <= _HIGHEST_PORT:
                raise ValueError(f"is {address!r}: write it as 127.0.0.1:7077")
        return address

    @field_validator("namespace")
    @classmethod
    def _namespace(cls, name: str) -> str:
        if name and not _NAMESPACE.fullmatch(name):
            raise ValueError(
                f"is {name!r}: it has at most 40 small letters, digits, '-' and '_', and begins with a letter"
            )
        return name

    @model_validator(mode="after")
    def _whole(self) -> Self:
        files = {
            "tls_ca_file": self.tls_ca_file,
            "tls_cert_file": self.tls_cert_file,
            "tls_key_file": self.tls_key_file,
        }
        given = [name for name, path in files.items() if path is not None]
        if self.tls == "mtls" and len(given) < len(files):
            missing = next(name for name in files if name not in given)
            raise ValueError(f"has tls mtls but no {missing}: set hatchet.{missing}")
        if self.tls == "tls" and set(given) - {"tls_ca_file"}:
            raise ValueError("has tls_cert_file or tls_key_file, which tls does not use: set hatchet.tls to mtls")
        if self.tls == "none" and (given or self.tls_server_name):
            raise ValueError("has files or a server name for TLS, but tls is none: set hatchet.tls to tls or mtls")
        return self

    @property
    def claims(self) -> JsonObject:
        """What the token says. There must be one."""
        assert self.token is not None
        found = _claims(self.token.get_secret_value())
        assert found is not None
        return found


def _claims(token: str) -> JsonObject | None:
    parts = token.split(".")
    if len(parts) != _PARTS or not token.startswith("ey") or not token.isascii():
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = orjson.loads(base64.urlsafe_b64decode(padded))
    except ValueError:
        return None
    return claims if isinstance(claims, dict) else None


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
