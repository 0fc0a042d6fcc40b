"""Permission policies: which tool calls run, which ask, which do not run (T7)."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field
from msgspec.structs import astuple


class Verdict(Enum):
    """What a policy says of a call before anybody is asked."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Approver(Enum):
    """Who answers where the verdict is ASK."""

    PEOPLE = "people"
    """The run waits for a decision over HTTP or the command line."""
    NOBODY = "nobody"
    """Nobody is there to decide: asking is denied at once."""


class PermissionRules(Struct, frozen=True):
    """Selectors of tools: a name or a pattern with `*`, `tag:<tag>`, or `permission:<readonly|write>`."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    two_people: tuple[str, ...] = ()
    """Selectors of what two different people must allow; also `risk:<level>`, for that risk and higher ones."""
    not_by_submitter: tuple[str, ...] = ()
    """Selectors, as those, of what nobody may allow who asked for the run."""

    def together_with(self, others: PermissionRules) -> PermissionRules:
        """Return the rules of both."""
        return PermissionRules(*((*own, *more) for own, more in zip(astuple(self), astuple(others), strict=True)))


class PermissionPolicy(Struct, frozen=True):
    """What the tool calls of an agent may do without asking."""

    own: PermissionRules = field(default_factory=PermissionRules)
    """Of agent.yaml: before the others, except for their `deny`."""
    inherited: PermissionRules = field(default_factory=PermissionRules)
    """Of owlclaw.yaml, and of the tenant's tenant.yaml."""
    approver: Approver = Approver.PEOPLE
    expires: float = 86_400.0
    """Seconds that a person has to decide."""
