"""Tools: what they are, how they are called, what comes back."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.ids import TenantId, ToolCallId

REMEMBER = "remember"
QUERY_STATE = "query_state"
RECALL = "recall"
READ_RESULT = "internal.read_result"


class Permission(Enum):
    """What a call may change."""

    READONLY = "readonly"
    """Nothing outside the runtime. Consecutive readonly calls run in parallel."""
    WRITE = "write"
    """Something outside; a barrier between other calls."""


class Effect(Enum):
    """What a repetition does."""

    PURE = "pure"
    """Nothing: it may be repeated freely."""
    IDEMPOTENT = "idempotent"
    """Nothing more than the first time, under the same idempotency key."""
    ONCE = "once"
    """It acts again: it is never repeated silently."""


class ToolOrigin(Enum):
    """Who vouches for a tool. Registering a tool of one's own grants it; what comes from elsewhere asks before it writes (T7)."""

    BUILT_IN = "built_in"
    APPLICATION = "application"
    """A function of the application."""
    EXTERNAL = "external"
    """Everything else: code tools, declarative tools, MCP servers, plug-ins."""


DANGEROUS, NETWORK, SENSITIVE, AGENT = "dangerous", "network", "sensitive", "agent"
"""Tags that mean something to the runtime: the first three ask, calls of agent tools run beside each other."""


class ToolClass(Enum):
    """Which calls share a task."""

    QUICK = "quick"
    """Milliseconds, no user code: batched into one task."""
    ALONE = "alone"
    """User code, or slow: one task each."""
    MEMORY = "memory"
    """Long-term memory, no user code: one task each, in slots that nothing else takes."""
    STATE = "state"
    """State providers, user code that answers questions: one task each, in slots that nothing else takes."""


class ToolDefinition(Struct, frozen=True):
    """One callable, from whatever source (T1)."""

    name: str
    """Canonical, unique."""
    description: str
    input_schema: JsonObject
    permission: Permission
    effect: Effect
    tool_class: ToolClass = ToolClass.ALONE
    tags: frozenset[str] = frozenset()
    timeout: float | None = None
    """Seconds; None takes the definition's `limits.tool_timeout`."""
    metadata: JsonObject = field(default_factory=dict)
    origin: ToolOrigin = ToolOrigin.EXTERNAL
    tenants: frozenset[TenantId] = frozenset()
    """Whose agents have it; for those of all others there is no such tool. Empty: everybody's."""

    def is_for(self, tenant: TenantId) -> bool:
        """Return whether there is this tool for the agents of a tenant."""
        return not self.tenants or tenant in self.tenants

    @property
    def wire_name(self) -> str:
        """The name that providers accept: dots become double underscores (T2)."""
        return self.name.replace(".", "__")

    def openai_form(self) -> JsonObject:
        """Return the function-calling schema in OpenAI form."""
        return {
            "type": "function",
            "function": {"name": self.wire_name, "description": self.description, "parameters": self.input_schema},
        }


class ToolCall(Struct, frozen=True):
    """A call as the model asked for it."""

    call_id: ToolCallId = field(name="id")
    name: str
    """As the model wrote it: the wire name."""
    arguments: str
    """JSON text as the model wrote it; it may be malformed."""


class ToolError(Struct, frozen=True):
    """Why a call failed, in words that the model can act on."""

    type: str
    """`invalid_arguments`, `tool_not_available`, `timeout`, `execution_failed`, `uncertain`, `not_executed`, `denied`, `limit_reached`,
    `rate_limited`, `circuit_open`, `budget_exhausted`."""
    message: str
    retryable: bool = False
    details: JsonValue = None


class ToolResult(Struct, frozen=True):
    """What a call gave (T4)."""

    call_id: ToolCallId
    content: JsonValue = None
    error: ToolError | None = None
    metadata: JsonObject = field(default_factory=dict)

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return self.error is not None


class CallProgress(Struct, frozen=True, omit_defaults=True):
    """How far a call is that has not ended, in its tool's words and numbers, as far as these said anything."""

    progress: float | None = None
    total: float | None = None
    message: str = ""
