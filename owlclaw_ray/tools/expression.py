r"""Regular expressions that others write, matched in time that grows with the text, not with a power of it or worse.

The engine behind pydantic's patterns has that property. It takes no look-around and no back-references, and reads `&&`, `--`, `~~`
and `[` inside of classes, and `\<` and `\>`, in its own way: such expressions go to the interpreter's engine, where a text may
be no longer than SLOW_CHARACTERS, and only if no repeated group holds a repetition or alternatives.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Protocol

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import SchemaError

SLOW_CHARACTERS = 1_000
_KEPT = 4_096
_READ_DIFFERENTLY = re.compile(r"\[[^\]]*\[|&&|--|~~|\\[<>]")
_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?[^)]*?[:=!>]|\?[^)]*\))?|\)|\||[*+?]|\{\d*,?\d*\}|.", re.DOTALL
)


class Expression(Protocol):
    """Matches texts."""

    def found_in(self, text: str) -> bool:
        """Return whether any part of the text matches."""
        ...


class _Linear:
    def __init__(self, pattern: str) -> None:
        self._texts: TypeAdapter[str] = TypeAdapter(Annotated[str, Field(pattern=pattern)])

    def found_in(self, text: str) -> bool:
        try:
            self._texts.validate_python(text.encode("utf-8", "replace").decode())
        except ValidationError:
            return False
        return True


class _Backtracking:
    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def found_in(self, text: str) -> bool:
        return len(text) <= SLOW_CHARACTERS and self._pattern.search(text) is not None


@lru_cache(maxsize=_KEPT)
def expression(pattern: str) -> Expression:
    """Return what matches the pattern, compiled once; raises re.error for one that is none."""
    return _linear(pattern) or _Backtracking(pattern)


def is_exponential(pattern: str) -> bool:
    """Return whether the pattern may take exponential time."""
    if _linear(pattern) is not None:
        return False
    # It may if it repeats a group that holds a repetition or alternatives.
    opened, closed = [False], False
    for part in _TOKEN.findall(pattern):
        repeats = part[0] in "*+?{" and len(part) < len(pattern)
        if repeats and closed and part != "?":
            return True
        if part == ")" and len(opened) > 1:
            closed = opened.pop()
            opened[-1] = opened[-1] or closed
            continue
        closed = False
        if part[0] == "(" and not part.endswith(")"):
            opened.append(False)
        elif repeats or part == "|":
            opened[-1] = True
    return False


def whole_text(pattern: str) -> Expression:
    """Return what matches only texts that fit from end to end, in linear time; raises SchemaError for what that engine does not take."""
    return _Linear(f"(?s)^(?:{pattern})$")


@lru_cache(maxsize=_KEPT)
def _linear(pattern: str) -> _Linear | None:
    if _READ_DIFFERENTLY.search(pattern):
        return None
    try:
        return _Linear(pattern)
    except SchemaError:
        return None
