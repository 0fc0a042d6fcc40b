"""Names of tools: canonical ones with dots inside, and the ones that providers accept (T2)."""

from __future__ import annotations

import re

from owlclaw_ray.domain.heartbeat import PENDING_EVENTS
from owlclaw_ray.domain.skill import LOAD_SKILL
from owlclaw_ray.domain.tool import READ_RESULT
from owlclaw_ray.errors import Problem

BUILT_IN_NAMES = frozenset(
    {"schedule_once", "schedule_cron", "cancel_schedule", "remember", "recall", "query_state", "log_decision"}
)
"""The only tools whose canonical name has no dot."""
INTERNAL_NAMES = frozenset({"internal.read_artifact", READ_RESULT, LOAD_SKILL})
"""The runtime's other tools. No other name begins as theirs: agents have them whatever their definition allows."""
HIDDEN_NAMES = frozenset({PENDING_EVENTS})
"""What the runtime calls itself, and no model knows of."""

_NAMESPACE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_CANONICAL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_WIRE_LENGTH = 64
_STATE = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def canonical_name(name: str, namespace: str) -> str:
    """Return the canonical name: a dotted one as it is, an undotted one inside the application's namespace."""
    return name if "." in name else f"{namespace}.{name}"


def wire_name(canonical: str) -> str:
    """Return the provider-safe form: dots become double underscores. A registry knows the way back."""
    return canonical.replace(".", "__")


def namespace_problems(name: str) -> list[Problem]:
    """Return what is wrong with an application's name, which is the first part of its tools' names."""
    if _NAMESPACE.fullmatch(name):
        return []
    fix = "use a letter, then letters, digits, '_' or '-'; at most 32, such as host_watch"
    return [Problem(f"OwlClaw({name!r})", "is no application name", fix)]


def tool_name_problems(canonical: str) -> list[Problem]:
    """Return why model providers would reject the name, if they would."""
    where = f"tool {canonical!r}"
    if not _CANONICAL.fullmatch(canonical):
        fix = "use letters, digits, '_' and '-', with dots between parts, starting with a letter, such as reports.write"
        return [Problem(where, "has a name that model providers reject", fix)]
    length = len(wire_name(canonical))
    if length > _WIRE_LENGTH:
        what = f"has a name of {length} characters (a dot counts as two)"
        return [Problem(where, what, f"model providers accept {_WIRE_LENGTH}: shorten it")]
    return []


def state_name_problems(name: str, kind: str = "state") -> list[Problem]:
    """Return what is wrong with the name of a state, or of what is named like one (T16)."""
    if _STATE.fullmatch(name):
        return []
    return [Problem(f"{kind} {name!r}", f"is no {kind} name", "use 1 to 128 letters, digits and any of _.:-")]
