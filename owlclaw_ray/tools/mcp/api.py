"""MCP servers, as tool workers, agent hosts and interfaces use them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Protocol

from msgspec import Struct, field

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.tool import CallProgress, ToolDefinition
from owlclaw_ray.ids import TenantId


class McpState(Enum):
    """What a server is doing."""

    CONNECTING = "connecting"
    UP = "up"
    DOWN = "down"
    """It failed, or ended, and is tried again."""
    IDLE = "idle"
    """It was stopped because nobody used it; the next call starts it."""
    STOPPED = "stopped"


class LeftOut(Struct, frozen=True):
    """A tool of a server that agents cannot be given."""

    tool: str
    """As the server calls it."""
    why: str


class McpServerView(Struct, frozen=True):
    """A server as people see it. It has no secrets."""

    name: str
    transport: str
    """`stdio` or `http`."""
    target: str
    """Its program, or its address without query and user."""
    state: McpState
    since: datetime
    problem: str = ""
    """Why it is down."""
    starts: int = 0
    """How often a connection to it was begun."""
    calls: int = 0
    """How many have ended, since its process began."""
    running: int = 0
    """How many run now."""
    tools: tuple[str, ...] = ()
    """Canonical names."""
    left_out: tuple[LeftOut, ...] = ()
    tenants: tuple[TenantId, ...] = ()
    """Whose agents alone have its tools; empty: everybody's."""


class McpCatalog(Struct, frozen=True):
    """The tools of all servers, as far as they were ever listed."""

    version: str
    """Another one for other tools."""
    tools: Mapping[str, tuple[ToolDefinition, ...]] = field(default_factory=dict)
    """By server; a server that was never reached is not here."""
    settled: bool = False
    """Whether every server was reached, or failed to be, at least once."""


class McpTrouble(Enum):
    """Why a call has no result."""

    NO_SECRET = "no_secret"  # noqa: S105 - the name of a trouble
    """The tenant lacks a secret that the server is called with: nothing happened."""
    NOT_SENT = "not_sent"
    """The server is not there: nothing happened."""
    LOST = "lost"
    """The server went away during the call."""
    LATE = "late"
    """It did not answer in time."""
    REFUSED = "refused"
    """The server answered with an error of the protocol, or with what is no result."""
    UNKNOWN_TOOL = "unknown_tool"
    """The server has no such tool (any more)."""
    BAD_ARGUMENTS = "bad_arguments"
    """The server did not take the arguments."""


class McpProblem(Struct, frozen=True):
    """What went wrong."""

    trouble: McpTrouble
    message: str
    details: JsonValue = None


class McpCall(Struct, frozen=True):
    """One call of a tool."""

    server: str
    tool: str
    """As the server calls it."""
    arguments: JsonObject
    seconds: float
    tenant: TenantId
    """Whose agent calls."""
    caller: int = 0
    """The process that waits for it: the call is cancelled when that ends. 0: the pool's own."""
    traceparent: str = ""
    """The call's span, which the server is told."""
    key: str = ""
    """By which others ask for the call's progress."""


class McpServerAccess(Protocol):
    """The servers of a node, from a tool worker's threads. Raises RuntimeUnavailableError while the node's pool is not there."""

    def catalog(self, known: str) -> McpCatalog | None:
        """Return the tools of all servers, or None if the caller knows this version of them."""
        ...

    def call(self, call: McpCall) -> JsonObject | McpProblem:
        """Return the result as the protocol has it (content, structuredContent, isError), or what went wrong."""
        ...


class McpNode(Protocol):
    """The servers of a node."""

    async def catalog(self, known: str, seconds: float) -> McpCatalog | None:
        """Return the tools of all servers as soon as they are not those of the version `known`; None after `seconds`."""
        ...

    async def progress(self, keys: Collection[str]) -> Mapping[str, CallProgress]:
        """Return the latest that servers said of these calls, by their keys; nothing of a call that ended, or runs elsewhere."""
        ...

    async def servers(self) -> Sequence[McpServerView]:
        """Return all servers, by name."""
        ...
