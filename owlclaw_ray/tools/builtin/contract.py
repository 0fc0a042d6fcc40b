"""What a built-in tool is, what it is told about its caller, and what it gives back."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from owlclaw_ray.domain.agent import EVERY_STATE, AgentRef, StateChoice
from owlclaw_ray.domain.embedding import EmbeddedCall
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.domain.lineage import Lineage
from owlclaw_ray.domain.quota import KeyQuota
from owlclaw_ray.domain.tool import Effect, Permission, ToolClass, ToolDefinition, ToolOrigin
from owlclaw_ray.errors import UserError
from owlclaw_ray.ids import RunId
from owlclaw_ray.tools.builtin.arguments import ArgumentModel
from owlclaw_ray.tools.large_output import INLINE_BYTES, INLINE_LIMIT
from owlclaw_ray.tools.signature import arguments_of_model


class Caller(Protocol):
    """Who calls, as ToolInvocation and CallContext both say it."""

    @property
    def agent(self) -> AgentRef:
        """The agent whose run makes the call."""
        ...

    @property
    def run_id(self) -> RunId:
        """The run that makes the call."""
        ...

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at one call; other calls have others. What the call makes gets its id from it."""
        ...

    @property
    def active_schedules(self) -> int:
        """How many active schedules the agent may have."""
        ...

    @property
    def no_embedding(self) -> str:
        """Why no provider may be asked for vectors for the call; empty if one may."""
        ...

    @property
    def key_quotas(self) -> tuple[KeyQuota, ...]:
        """What the keys may use for which the run counts."""
        ...

    @property
    def timezone(self) -> str:
        """The IANA zone in which the agent's days begin."""
        ...

    @property
    def states(self) -> StateChoice:
        """Which states the agent's definition lets it query."""
        ...

    @property
    def lineage(self) -> Lineage | None:
        """What bounds an agent that another one started; None for others."""
        ...

    @property
    def submitters(self) -> tuple[str, ...]:
        """The principals that asked for the run."""
        ...


class CallContext(Struct, frozen=True):
    """A caller outside the runtime's own dispatch: scripts and tests."""

    agent: AgentRef
    run_id: RunId
    idempotency_key: str
    active_schedules: int = 100
    no_embedding: str = ""
    key_quotas: tuple[KeyQuota, ...] = ()
    timezone: str = "UTC"
    states: StateChoice = EVERY_STATE
    lineage: Lineage | None = None
    submitters: tuple[str, ...] = ()


class BuiltInOutcome(Struct, frozen=True):
    """What a call gave, and what the host is to commit with it."""

    content: JsonObject
    records: tuple[LedgerRecord, ...] = ()
    embeddings: tuple[EmbeddedCall, ...] = ()
    """Calls for vectors that were made for it."""


class LimitReachedError(UserError):
    """The agent has used up what it may have of something. The message says what would make room."""


class ForbiddenError(UserError):
    """A rule keeps the agent from it. The message names the rule."""


class BuiltInDeclaration(Struct, frozen=True):
    """What is known of a built-in tool without running it."""

    name: str
    description: str
    arguments: type[ArgumentModel]
    effect: Effect
    tool_class: ToolClass
    inline_bytes: int = INLINE_BYTES
    """How large a result the model gets as it is."""

    def definition(self) -> ToolDefinition:
        """Return the tool's definition. All are readonly: they change nothing outside the runtime."""
        return ToolDefinition(
            name=self.name,
            description=self.description,
            input_schema=arguments_of_model(self.arguments, self.name).schema,
            permission=Permission.READONLY,
            effect=self.effect,
            tool_class=self.tool_class,
            tags=frozenset({"builtin"}),
            metadata={INLINE_LIMIT: self.inline_bytes} if self.inline_bytes != INLINE_BYTES else {},
            origin=ToolOrigin.BUILT_IN,
        )
