"""Queries of code.search that mean the same to ripgrep and to Python.

Both match bytes, line by line. A regular expression is confined to what the two engines read alike: a regular language, so that
whether a line matches does not depend on how an engine searches. Everything else is refused by name.
"""

from __future__ import annotations

import re

from msgspec import Struct

from owlclaw_ray.errors import ToolArgumentsError

_MAX_REPEATS = 1_000
_ESCAPE = "\\"
_TOKEN = re.compile(
    r"(?P<class>\[\^?(?:\\.|[^\]\\\[])+\])"
    r"|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<or>\|)"
    r"|(?P<repeat>(?:[*+?]|\{\d{1,4}(?:,(?:\d{1,4})?)?\})\??)"
    r"|(?P<anchor>[\^$]|\\[bB])"
    r"|(?P<one>\\[dDwWsSt]|\\[^\w\s]|[^\\\[\](){}*+?|^$])",
    re.DOTALL,
)
_IN_CLASS = re.compile(r"\\[dDwWsSt]|\\[^\w\s]|[^\\]", re.DOTALL)


class LineQuery(Struct, frozen=True):
    """What to look for in a line."""

    expression: str
    """Both engines take it; it is ASCII. Characters beyond that are written as their bytes, which all versions read alike."""
    compiled: re.Pattern[bytes]
    """Finds it in the bytes of a line."""

    @classmethod
    def of(cls, text: str, *, is_regex: bool) -> LineQuery:
        """Return the query; raises ToolArgumentsError for what only one of the engines understands."""
        if "\n" in text or "\r" in text:
            raise _refused("it must be one line")
        expression = _checked(text) if is_regex else _as_bytes(text)
        try:
            return cls(expression, re.compile(expression.encode()))
        except (re.error, OverflowError, RecursionError) as error:
            raise _refused(f"it is no regular expression: {error}") from error


def _as_bytes(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def _checked(text: str) -> str:
    """Return the expression with every character beyond ASCII as a group of its bytes."""
    parts: list[str] = []
    at, before = 0, "open"
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise _refused(
                f"{text[at : at + 10]!r} is not supported (escape it with a backslash if it is meant literally)"
            )
        kind, part = found.lastgroup, found[0]
        if kind == "repeat":
            _check_repeat(part, before)
        if kind == "class":
            _check_class(part)
        if (part == "^" and before not in {"open", "or"}) or (parts[-1:] == ["$"] and kind not in {"close", "or"}):
            raise _refused("^ must begin a choice, and $ must end one")
        if kind == "open" and text.startswith("(?", at) and part == "(":
            raise _refused("groups like (?=, (?!, (?P< and flags are not supported")
        parts.append(part if part.isascii() else f"(?:{_as_bytes(part.removeprefix(_ESCAPE))})")
        at, before = found.end(), kind
    return "".join(parts)


def _check_repeat(part: str, before: str) -> None:
    if before in {"open", "or", "anchor", "repeat"}:
        raise _refused(f"{part!r} has nothing to repeat")
    if any(int(number) > _MAX_REPEATS for number in re.findall(r"\d+", part)):
        raise _refused(f"{part!r} repeats more than {_MAX_REPEATS} times")


def _check_class(part: str) -> None:
    inside = part[1:-1].removeprefix("^")
    if not inside.isascii():
        raise _refused(f"{part!r} has characters beyond ASCII: write (?:a|b) for [ab]")
    if any(pair in inside for pair in ("&&", "--", "~~", "||")) or "".join(_IN_CLASS.findall(inside)) != inside:
        raise _refused(f"{part!r} is a set that is not supported")


def _refused(why: str) -> ToolArgumentsError:
    return ToolArgumentsError("code.search", [f"query: {why}"])
