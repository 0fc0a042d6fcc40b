"""Where a run comes from that another agent's run asked for, and what its agent is bound by from then on."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from fnmatch import fnmatchcase

from msgspec import Struct

from owlclaw_ray.domain.agent import INTERNAL, AgentRef
from owlclaw_ray.ids import AgentId, RunId, TenantId, derived_id

MAX_DEPTH = 1
"""How many runs may stand above a run. The roles' blacklists say the same: what was started starts nobody."""


class ChildRole(Enum):
    """What a started agent is to the one that started it."""

    SUB_AGENT = "sub_agent"
    """An agent of another definition, for one assignment."""
    FORK = "fork"
    """An agent of the same definition that knows what its parent's run knew."""
    WORKER = "worker"
    """A named agent that is given one assignment after another. Without a word about tools it only reads."""


class Lineage(Struct, frozen=True):
    """The ancestry of a run, durable with its trigger, and what its ancestors let it use."""

    root_run: RunId
    parent_run: RunId
    parent: AgentId
    """The agent whose run waits for this one."""
    depth: int
    """1 for the child of a run that nobody started."""
    role: ChildRole
    grants: tuple[tuple[str, ...], ...] = ()
    """Lists of patterns of canonical names. A tool with a dot in its name, but an internal one, has to match one of each."""
    named_tools: bool = False
    """Whether whoever started it said which tools it may use."""
    submitters: tuple[str, ...] = ()
    """The principals that asked for the runs above."""

    def grants_tool(self, tool: str) -> bool:
        """Return whether every ancestor lets the run use the tool. Nobody keeps it from what reads its own results and skills."""
        own = "." not in tool or tool.startswith(INTERNAL)
        return own or all(_matches(tool, patterns) for patterns in self.grants)

    def grants_state(self, state: str) -> bool:
        """Return whether every ancestor lets the run query the state: as the tool `query_state.<state>`, or all by `query_state`."""
        return all("query_state" in patterns or _matches(f"query_state.{state}", patterns) for patterns in self.grants)


def child_run_id(idempotency_key: str) -> RunId:
    """Return the id of the run that a call starts: the same however often the call is made."""
    return RunId(derived_id("run", idempotency_key))


def child_agent(tenant: TenantId, definition: str, parent: AgentId, name: str) -> AgentRef:
    """Return the agent of that definition which `parent` knows by this name (letters, digits, '_' and '-').

    No two agents share a child: the name is what follows the key's last dot, the parent what comes before it. And no agents can
    wait for each other in a ring: the name of the one that is waited for holds that of the one that waits.
    """
    plain, short = child_prefixes(parent)
    key = f"{plain}{name}"
    if len(key) > _MAX_KEY_CHARACTERS:
        key = f"{short}{name}"
    return AgentRef.parse(f"{definition}:{key}", tenant)


def child_prefixes(parent: AgentId) -> tuple[str, str]:
    """Return how the keys of an agent's children begin, and how those begin that would be too long with that."""
    return f"{parent.replace(':', '.', 1)}.", f"{derived_id('family', parent)}."


_MAX_KEY_CHARACTERS = 128


def _matches(tool: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in patterns)
