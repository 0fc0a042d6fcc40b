"""What a call acts on, in its normal form: people allow a tool for a target, never for all that it could do (T7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import orjson
from msgspec import Struct

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.errors import ConfigurationError, Problem


class CallTarget(Struct, frozen=True):
    """What one call acts on, and where it works, if that says more."""

    scope: str
    """Equal for calls that whoever allows one of them may allow together: a resolved path, a host, an executable with its folder."""
    cwd: str = ""


Target: TypeAlias = Sequence[str] | Callable[[JsonObject], CallTarget] | None
"""The names of the arguments that say it, a function of the arguments that does, or None: all arguments say it."""


def target_of(target: Target, arguments: JsonObject) -> CallTarget:
    """Return the target of a call with these arguments."""
    if callable(target):
        return target(arguments)
    names = arguments if target is None else target
    scope = {name: arguments.get(name) for name in names}
    return CallTarget(orjson.dumps(scope, option=orjson.OPT_SORT_KEYS).decode())


def check_target(target: Target, schema: JsonObject, where: str) -> None:
    """Raise ConfigurationError if the target names what the tool does not take."""
    known = schema.get("properties", {})
    unknown = [] if target is None or callable(target) else [name for name in target if name not in known]
    if unknown:
        what = f"names {', '.join(map(repr, unknown))}, which the tool does not take"
        raise ConfigurationError([Problem(f"{where}: target", what, f"use some of {', '.join(known) or 'none'}")])
