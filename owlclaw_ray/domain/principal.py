"""Who a request acts for, and what that one may do.

A scope is `<resource>:<verb>`, such as `runs:read`. Every verb of a resource includes `read`, `admin` includes all of them, and `*`
is every scope there is. Patterns narrow a principal to some agents: `agent:trader` is that agent, `agent:trader:*` every agent whose id
begins like that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.quota import KeyQuota
from owlclaw_ray.domain.text import NAME
from owlclaw_ray.errors import AccessDeniedError, InvalidAccessError
from owlclaw_ray.ids import DEFAULT_TENANT, KeyId, TenantId

VERBS: Mapping[str, tuple[str, ...]] = {
    "runs": ("read", "write"),
    "agents": ("read", "write"),
    "memories": ("read", "write"),
    "schedules": ("read", "write"),
    "approvals": ("read", "decide"),
    "webhooks": ("read", "write"),
    "ledger": ("read",),
    "secrets": ("read", "write"),
    "keys": ("read", "admin"),
    "tenants": ("read", "admin"),
    "system": ("read", "admin"),
}
"""The verbs of each resource. `webhooks`: what comes in, and the callbacks that go out. `system`: nodes, MCP servers and metrics."""
ALL = "*"
MAX_NAME = 100
OF_OPERATORS = frozenset({"tenants", "system"})
"""Resources that belong to no tenant: they are for principals of the default tenant."""
WITHOUT_AGENTS = frozenset({"secrets", "keys", "tenants", "system"})
"""Resources that are no agent's, which a principal that is narrowed to some agents may not have."""
SCOPES = frozenset(f"{resource}:{verb}" for resource, verbs in VERBS.items() for verb in verbs)

_READ = frozenset(f"{resource}:read" for resource in VERBS if resource not in WITHOUT_AGENTS)
_OPERATE = _READ | {"runs:write", "schedules:write", "webhooks:write"}
ROLES: Mapping[str, frozenset[str]] = {
    "viewer": _READ,
    "operator": _OPERATE,
    "approver": _READ | {"approvals:decide"},
    "developer": _OPERATE | {"agents:write", "memories:write", "approvals:decide", "secrets:write"},
    "admin": frozenset({ALL}),
}
"""Named sets of scopes."""
TENANT_ID = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
"""A regular expression: what a host could be called, too."""
PATTERN = r"agent:(\*|[a-z0-9][a-z0-9_-]{0,63}(\*|:\*|:[\w.@=+-]{1,128}\*?)?)"
"""A regular expression, of Python."""
_PATTERN = re.compile(PATTERN)


class PrincipalKind(Enum):
    """What a principal is."""

    KEY = "key"
    """Whoever has an access key."""
    PERSON = "person"
    AGENT = "agent"
    """An agent, in what its own tools do."""
    SYSTEM = "system"
    """The runtime itself, or whoever is on its machine while no key exists."""


def keys_among(principals: Iterable[str]) -> tuple[KeyId, ...]:
    """Return the keys among principals as triggers and schedules name them: by kind and id."""
    prefix = f"{PrincipalKind.KEY.value}:"
    return tuple(KeyId(each.removeprefix(prefix)) for each in principals if each.startswith(prefix))


class Principal(Struct, frozen=True):
    """Who a request acts for."""

    tenant: TenantId
    kind: PrincipalKind
    id: str
    name: str = ""
    """For people."""
    scopes: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    """The agents that it is narrowed to; empty: all of its tenant."""
    quota: KeyQuota | None = None
    """What it may have and start, if it is a key that says so."""

    def may(self, scope: str) -> bool:
        """Return whether it has the scope."""
        resource, _, verb = scope.partition(":")
        if resource in OF_OPERATORS and self.tenant != DEFAULT_TENANT:
            return False
        if self.patterns and resource in WITHOUT_AGENTS:
            return False
        if ALL in self.scopes or scope in self.scopes or f"{resource}:admin" in self.scopes:
            return True
        return verb == "read" and any(f"{resource}:{each}" in self.scopes for each in VERBS[resource])

    def sees(self, agent: AgentRef) -> bool:
        """Return whether it may have to do with the agent."""
        return agent.tenant == self.tenant and (
            not self.patterns or any(_matches(pattern, agent.agent_id) for pattern in self.patterns)
        )

    def sees_definition(self, name: str) -> bool:
        """Return whether it may have to do with an agent of that definition."""
        return not self.patterns or any(_concerns(pattern, name) for pattern in self.patterns)

    def require(self, scope: str) -> None:
        """Raise AccessDeniedError unless it has the scope."""
        if not self.may(scope):
            raise AccessDeniedError(f"{self} has no scope {scope}", scope)

    def require_operator(self) -> None:
        """Raise AccessDeniedError if what it does would change what all tenants share."""
        if self.tenant != DEFAULT_TENANT:
            raise AccessDeniedError(
                f"{self} belongs to tenant {self.tenant!r}: what all tenants share is for operators"
            )

    def require_agent(self, agent: AgentRef) -> None:
        """Raise AccessDeniedError unless it may have to do with the agent."""
        if not self.sees(agent):
            raise AccessDeniedError(f"{self} is for {', '.join(self.patterns)}, not for agent {agent.agent_id!r}")

    def require_all_agents(self) -> None:
        """Raise AccessDeniedError if it is narrowed to some agents."""
        if self.patterns:
            raise AccessDeniedError(f"{self} is for {', '.join(self.patterns)}: ask for one of these agents")

    def require_grant(self, scopes: Collection[str], patterns: Sequence[str]) -> None:
        """Raise AccessDeniedError if somebody with these scopes and patterns could do what this one cannot."""
        beyond = sorted(scope for scope in scopes if (ALL not in self.scopes if scope == ALL else not self.may(scope)))
        if beyond:
            raise AccessDeniedError(f"{self} cannot give what it does not have: {', '.join(beyond)}", beyond[0])
        if self.patterns and not (patterns and all(_within(each, self.patterns) for each in patterns)):
            raise AccessDeniedError(f"{self} is for {', '.join(self.patterns)}, and cannot give more")

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.id}" + (f" ({self.name})" if self.name else "")


LOCAL = Principal(DEFAULT_TENANT, PrincipalKind.SYSTEM, "local", scopes=frozenset({ALL}))
"""Whoever reaches the server while no key exists, which is on its own machine only."""


def agent_principal(agent: AgentRef) -> str:
    """Return an agent as the ledger names it where its own tools do something."""
    return str(Principal(agent.tenant, PrincipalKind.AGENT, agent.agent_id))


def parse_scopes(given: Sequence[str]) -> frozenset[str]:
    """Return the scopes that names of scopes and roles stand for; raises InvalidAccessError."""
    scopes: set[str] = set()
    for each in given:
        if each in ROLES:
            scopes |= ROLES[each]
        elif each in SCOPES or each == ALL:
            scopes.add(each)
        else:
            raise InvalidAccessError(
                "scopes",
                f"{each!r} is no scope",
                f"roles: {', '.join(ROLES)}; scopes: {', '.join(sorted(SCOPES))}, {ALL}",
            )
    if not scopes:
        raise InvalidAccessError(
            "scopes", "are missing", f"name a role: {', '.join(ROLES)}; or scopes such as runs:read"
        )
    return frozenset(scopes)


def parse_patterns(given: Sequence[str], scopes: Collection[str]) -> tuple[str, ...]:
    """Return the patterns without repetitions; raises InvalidAccessError if one is none, or beside scopes that know no agents."""
    for each in given:
        if not _PATTERN.fullmatch(each):
            right = "agent:trader for one agent, agent:trader:* for all whose ids begin like that"
            raise InvalidAccessError("agents", f"{each!r} is no pattern", right)
    beside = sorted(scope for scope in scopes if scope == ALL or scope.partition(":")[0] in WITHOUT_AGENTS)
    if given and beside:
        raise InvalidAccessError(
            "agents", f"cannot narrow {', '.join(beside)}", "leave these scopes out, or the agents"
        )
    return tuple(dict.fromkeys(given))


def check_name(given: str) -> None:
    """Raise InvalidAccessError unless it is a name that people can read: of a key, or of a tenant."""
    if len(given) > MAX_NAME or not re.fullmatch(NAME, given):
        raise InvalidAccessError("name", "is no name", f"one line of 1 to {MAX_NAME} characters, no blank at its ends")


def parse_tenant(given: str) -> TenantId:
    """Return the id of a tenant; raises InvalidAccessError if no tenant can have it."""
    if not re.fullmatch(TENANT_ID, given):
        raise InvalidAccessError("tenant", f"{given!r} is no id", "1 to 63 of a-z, 0-9 and '-', not '-' at its ends")
    return TenantId(given)


def tenants_problem(given: Sequence[str]) -> str:
    """Return what is wrong with a list of the tenants that something is for, or the empty text; each must be one that there may be."""
    if not given:
        return "names no tenant: name some, or leave it out for all"
    wrong = next((each for each in given if not re.fullmatch(TENANT_ID, each)), None)
    what = "which is no id of a tenant: 1 to 63 of a-z, 0-9 and '-', not '-' at its ends"
    return "" if wrong is None else f"has {wrong!r}, {what}"


def _matches(pattern: str, agent_id: str) -> bool:
    wanted = pattern.removeprefix("agent:")
    return agent_id.startswith(wanted[:-1]) if wanted.endswith(ALL) else agent_id == wanted


def _concerns(pattern: str, definition: str) -> bool:
    """Return whether the pattern matches an agent of the definition."""
    wanted = pattern.removeprefix("agent:")
    name, colon, _ = wanted.partition(":")
    if not colon and wanted.endswith(ALL):
        return definition.startswith(wanted[:-1])
    return name == definition


def _within(pattern: str, patterns: Sequence[str]) -> bool:
    """Return whether one of the patterns matches every agent that this one matches."""
    return any(each == pattern or (each.endswith(ALL) and pattern.startswith(each[:-1])) for each in patterns)
