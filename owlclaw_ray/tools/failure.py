"""Failures of tools that the model can act on."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from owlclaw_ray.domain.agent_tools import CHILD_FAILED
from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.domain.tool import ToolError
from owlclaw_ray.errors import ToolExecutionError
from owlclaw_ray.policy.budgets import NOT_STARTED_ERRORS
from owlclaw_ray.tools.json_result import to_json


class ToolFailureError(ToolExecutionError):
    """A tool could not do what it was asked. Becomes the error of the call's result: `type`, message and details as given."""

    def __init__(self, type_: str, message: str, *, retryable: bool = False, details: JsonValue = None) -> None:
        self.type, self.retryable, self.details = type_, retryable, details
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ToolFailureError, retryable=self.retryable, details=self.details), (self.type, str(self))


MESSAGE_CHARACTERS = 2_000
"""How much of one message is passed on."""
RESERVED = NOT_STARTED_ERRORS | {"uncertain", CHILD_FAILED}
"""Types of errors that say what the runtime did with a call: of a tool's own, none is taken for one of these."""

_TYPE = re.compile(r"[a-z][a-z0-9_]{0,63}")


def plain_error(error: ToolError, own: frozenset[str] = frozenset()) -> ToolError:
    """Return the error with a type, a short message and details that are JSON; raises NotJsonError if these are none.

    A type that is none, or is RESERVED and not in `own`, becomes `execution_failed`.
    """
    said: object = error.type
    known = isinstance(said, str) and _TYPE.fullmatch(said) and (said not in RESERVED or said in own)
    return ToolError(
        error.type if known else "execution_failed",
        short_message(str(error.message)),
        retryable=bool(error.retryable),
        details=to_json(error.details),
    )


def short_message(message: str) -> str:
    """Return a message that can be passed on, with a mark at its end if it was longer."""
    if len(message) > MESSAGE_CHARACTERS:
        message = f"{message[:MESSAGE_CHARACTERS]}…"
    return message.encode("utf-8", "replace").decode()
