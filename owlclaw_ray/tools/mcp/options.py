"""Which MCP servers there are. Plain facts: they travel to every worker, with the names of secrets and never their values."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from owlclaw_ray.ids import TenantId

CONNECT_SECONDS = 20.0
HEALTH_SECONDS = 30.0
BACKOFF_SECONDS = 0.5
BACKOFF_LIMIT_SECONDS = 30.0


class Annotations(Enum):
    """What is made of what a server says of its own tools."""

    DISTRUST = "distrust"
    """Only what calls for more caution is believed."""
    TRUST = "trust"
    """All of it is believed: a tool that says that it only reads is not asked about."""


class Command(Struct, frozen=True):
    """A server that is a program, spoken to over its stdin and stdout."""

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    """Beside PATH, HOME, TMPDIR and LANG. Values may have `${NAME}`."""
    folder: str = "/"


class Address(Struct, frozen=True):
    """A server that is reached over streamable HTTP."""

    url: str
    """May have `${NAME}`, as the values of headers may."""
    headers: tuple[tuple[str, str], ...] = ()
    secret_headers: tuple[tuple[str, str], ...] = ()
    """In their values `${NAME}` is a secret of the tenant whose agent calls. Who only lists the tools does not send them."""


Endpoint: TypeAlias = Command | Address


def shown_target(endpoint: Endpoint) -> str:
    """Return the program, or the address without query and user: without what may be secret."""
    if isinstance(endpoint, Command):
        return endpoint.argv[0]
    parts = urlsplit(endpoint.url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class ToolRule(Struct, frozen=True):
    """What the configuration says of a server's tools, whatever the server says. None: it says nothing."""

    tools: str
    """A pattern of the names that the server gives them."""
    enabled: bool = True
    permission: str | None = None
    effect: str | None = None
    tags: tuple[str, ...] = ()
    timeout: float | None = None


class McpServerOptions(Struct, frozen=True):
    """One server."""

    name: str
    endpoint: Endpoint
    annotations: Annotations = Annotations.DISTRUST
    tags: tuple[str, ...] = ()
    timeout: float | None = None
    rules: tuple[ToolRule, ...] = ()
    tenants: frozenset[TenantId] = frozenset()
    """Whose agents have its tools; for all others there is no such server. Empty: everybody's."""

    def is_for(self, tenant: TenantId) -> bool:
        """Return whether there is this server for the agents of a tenant."""
        return not self.tenants or tenant in self.tenants


class McpOptions(Struct, frozen=True):
    """All servers, and how connections to them are kept. Times in seconds."""

    servers: tuple[McpServerOptions, ...]
    connect: float = CONNECT_SECONDS
    """How long a server may take to be ready, and for a sign of life."""
    health: float = HEALTH_SECONDS
    """How often a server that does nothing is asked for a sign of life."""
    backoff: float = BACKOFF_SECONDS
    """The first pause before a server is started again; it doubles, with jitter, up to the next one."""
    backoff_limit: float = BACKOFF_LIMIT_SECONDS
    idle: float | None = None
    """After so long without a call a server is stopped, until the next one; None: never."""
