"""Agents: their names, their definitions, and what of them outlives an activation."""

from __future__ import annotations

import hashlib
import re
from enum import Enum
from fnmatch import fnmatchcase

from msgspec import Struct, field
from msgspec.structs import replace

from owlclaw_ray.domain.endpoint import Endpoint, RealModel, endpoint_of
from owlclaw_ray.domain.governance import Breaker, Governance, ToolRate, matches
from owlclaw_ray.domain.heartbeat import Heartbeat, HeartbeatState
from owlclaw_ray.domain.permission import PermissionPolicy
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.errors import UserError
from owlclaw_ray.ids import DEFAULT_TENANT, AgentId, TenantId

AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}(:[\w.@=+-]{1,128})?")
"""`definition` or `definition:key`."""
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_.-~")
"""What stands for itself in the name of a folder."""
_MAX_FOLDER_CHARACTERS = 200
INTERNAL = "internal."
"""How the names of the runtime's own tools beside the built-in ones begin."""
RECENT_OUTCOMES = 5
"""How many one-line outcomes of past runs stay with an agent (R2)."""


class InvalidAgentNameError(UserError):
    """The text is no agent id."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"{text!r} is no agent id: it must be a definition name (lower-case letters, digits, '_', '-'; at most 64) "
            "with an optional ':key' (letters, digits and any of _.@=+- ; at most 128), such as trader or trader:AAPL"
        )

    def __reduce__(self) -> tuple[type[InvalidAgentNameError], tuple[str]]:
        return (type(self), (self.text,))


class AgentRef(Struct, frozen=True):
    """Which agent: its tenant, and its id `definition` or `definition:key`."""

    tenant: TenantId
    agent_id: AgentId

    @classmethod
    def parse(cls, text: str, tenant: TenantId = DEFAULT_TENANT) -> AgentRef:
        """Return the reference that `text` names, or raise InvalidAgentNameError."""
        if not AGENT_ID.fullmatch(text):
            raise InvalidAgentNameError(text)
        return cls(tenant, AgentId(text))

    @property
    def definition(self) -> str:
        """The name of the agent's definition."""
        return self.agent_id.partition(":")[0]

    @property
    def qualified_definition(self) -> str:
        """What its definition is looked up by: the name, with the tenant before it if that is not the default one, as in `acme/trader`."""
        return self.definition if self.tenant == DEFAULT_TENANT else f"{self.tenant}/{self.definition}"

    @property
    def key(self) -> str:
        """What tells this agent from others of its definition; empty for the definition's only one."""
        return self.agent_id.partition(":")[2]

    @property
    def folder(self) -> str:
        """The agent's folder below `data_dir/agents`, on any file system another one for every agent: `<tenant>/<agent>`.

        All but lower-case letters, digits and `_.-~` is percent-encoded: where case does not count, or dots at the end, as on
        macOS and network drives, two agents would share one folder. A name that is too long for a file system ends in a
        digest of the whole.
        """
        return f"{tenant_folder(self.tenant)}/{_folder_name(self.agent_id)}"

    def __str__(self) -> str:
        return self.agent_id if self.tenant == DEFAULT_TENANT else f"{self.tenant}/{self.agent_id}"


def tenant_folder(tenant: TenantId) -> str:
    """Return the folder in which the folders of a tenant's agents are."""
    return _folder_name(tenant)


def _folder_name(name: str) -> str:
    body = name.rstrip(".")
    encoded = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in body.encode())
    encoded += "%2E" * (len(name) - len(body))
    if len(encoded) <= _MAX_FOLDER_CHARACTERS:
        return encoded or "%"
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    beginning = re.sub("%[0-9A-F]?$", "", encoded[: _MAX_FOLDER_CHARACTERS - len(digest) - 2])
    return f"{beginning}%~{digest}"


class Isolation(Enum):
    """How an agent shares its actor."""

    DEDICATED = "dedicated"
    """One agent an actor."""
    SHARED = "shared"
    """Up to `agents_per_actor` agents an actor, each with its own serial run loop."""


class Limits(Struct, frozen=True):
    """What a run, and what an agent, may use (R5, T8). Times in seconds."""

    tool_calls: int = 50
    turns: int = 50
    model_timeout: float = 60.0
    run_timeout: float = 300.0
    tool_timeout: float = 30.0
    short_term_tokens: int = 2_000
    """Of the trigger's text in the prompt; and of what records of turns may take that do not fit into it any more."""
    memory_tokens: int = 2_000
    """Of memories in the prompt."""
    skill_tokens: int = 4_000
    """Of the texts of skills in the prompt."""
    skill_list_tokens: int = 2_000
    """Of names and descriptions of the others."""
    schedules_per_run: int = 20
    active_schedules: int = 100
    queued_runs: int = 1_000
    """One more trigger is refused; schedules fire all the same."""
    children_per_run: int = 16
    """How many runs of other agents a run may start."""


class ModelChoice(Struct, frozen=True):
    """Which models a definition uses, in the order of trying, and how they are called."""

    chain: tuple[str, ...]
    """The first is the model, the rest its fallback chain; `scripted:<path or name>` or a litellm model name."""
    temperature: float | None = None
    max_tokens: int | None = None
    stream: bool = False
    endpoints: tuple[Endpoint, ...] = ()
    """Of the providers that are asked in another way than their variables say."""


class ToolChoice(Struct, frozen=True):
    """Which of the tools that there are a definition's agents may be given (T5): patterns of canonical names."""

    allow: tuple[str, ...] = ("*",)
    """Of the tools beside the built-in and internal ones."""
    deny: tuple[str, ...] = ()
    """Of all tools; it goes before `allow`."""

    def refusal(self, tool: str) -> str:
        """Return why agents are not given the tool, or nothing."""
        denied = next((pattern for pattern in self.deny if fnmatchcase(tool, pattern)), None)
        if denied is not None:
            return f"the definition denies {denied}"
        own = "." not in tool or tool.startswith(INTERNAL)
        if own or matches(tool, self.allow):
            return ""
        return f"the definition allows only {', '.join(self.allow) or 'the built-in tools'}"


class StateChoice(Struct, frozen=True):
    """Which of the application's states a definition's agents may query (T16): patterns of their names."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    """It goes before `allow`."""

    def refusal(self, state: str) -> str:
        """Return why agents may not query the state, or nothing."""
        denied = next((pattern for pattern in self.deny if fnmatchcase(state, pattern)), None)
        if denied is not None:
            return f"tools.states denies {denied}"
        return "" if matches(state, self.allow) else f"tools.states allows only {', '.join(self.allow) or 'none'}"


EVERY_STATE = StateChoice()


class AgentDefinition(Struct, frozen=True):
    """What kind of agent: the parsed content of `agents/<name>/`, checked and within its size limits."""

    name: str
    version: str
    """Hash of everything that the definition is made of; another version is another text."""
    folder: str
    soul: str
    """SOUL.md in full."""
    capabilities: str
    """The section `## My Capabilities` or `## 我的能力` of IDENTITY.md."""
    constraints: str
    """The section `## My Constraints` or `## 我的约束` of IDENTITY.md; empty if there is none."""
    model: ModelChoice
    limits: Limits = field(default_factory=Limits)
    isolation: Isolation = Isolation.DEDICATED
    skills: tuple[Skill, ...] = ()
    tools: ToolChoice = field(default_factory=ToolChoice)
    permissions: PermissionPolicy = field(default_factory=PermissionPolicy)
    preload_memories: int = 5
    """How many memories are looked up before the first model call (M8); 0 turns it off."""
    timezone: str = "UTC"
    """The IANA zone in which the agent's days begin: what yesterday is, and the day on which something was remembered."""
    governance: Governance = field(default_factory=Governance)
    heartbeat: Heartbeat | None = None
    callback_url: str = ""
    """Who is told of the end of every run, by a webhook; empty: nobody but whom triggers name."""
    routes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Models, each with its fallbacks, by the types of tasks that they are for instead of `model` (G6)."""
    states: StateChoice = EVERY_STATE
    warnings: tuple[str, ...] = ()
    """What was wrong but did not stop the loading, such as a skill with broken frontmatter: file, line, problem."""

    @property
    def models(self) -> tuple[str, ...]:
        """The names of all models that runs may ask, `cheaper` ones of budgets aside."""
        return tuple(dict.fromkeys((*self.model.chain, *(model for _, chain in self.routes for model in chain))))

    @property
    def real_models(self) -> tuple[RealModel, ...]:
        """Those of them that are no scripts."""
        real = (model for model in self.models if not model.startswith("scripted:"))
        return tuple(RealModel(model, endpoint_of(model, self.model.endpoints)) for model in real)


class AgentState(Struct, frozen=True):
    """What an agent keeps from one activation to the next. Saved with the end of each run."""

    recent_outcomes: tuple[str, ...] = ()
    """One line each for the last runs, oldest first; at most RECENT_OUTCOMES."""
    runs: int = 0
    breakers: tuple[Breaker, ...] = ()
    paces: tuple[ToolRate, ...] = ()
    pulse: HeartbeatState | None = None
    """None before the first heartbeat."""

    def after_run(self, outcome: str) -> AgentState:
        """Return the state after one more run that ended with this one-line outcome."""
        recent = (*self.recent_outcomes, outcome)[-RECENT_OUTCOMES:]
        return replace(self, recent_outcomes=recent, runs=self.runs + 1)
