"""Globs over paths below a folder: `*` and `?` within a name, `**` across folders, `[ab]`, `{one,other}`.

As in a shell, a class has a member (`]` if it comes first), and a bracket that begins none stands for itself.
"""

from __future__ import annotations

import re

from owlclaw_ray.tools.expression import Expression, whole_text

_PART = re.compile(r"\*\*/|\*\*|\*|\?|\[(?>[!^]?)[^/][^\]/]*\]|\{[^{}]*\}|.", re.DOTALL)


def glob_pattern(glob: str) -> Expression:
    """Return what matches a whole path below the folder, with slashes; a glob without a slash is about the name alone."""
    body = "".join(map(_translated, _PART.findall(glob.removeprefix("/").removeprefix("./"))))
    anywhere = "" if "/" in glob else "(?:.*/)?"
    return whole_text(f"{anywhere}{body}")


_RANGE = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _translated(part: str) -> str:
    if part in _WILDCARDS:
        return _WILDCARDS[part]
    if part.startswith("[") and len(part) > 1:
        return _class(part)
    if part.startswith("{") and len(part) > 1:
        choices = part[1:-1].split(",")
        return "(?:" + "|".join("".join(map(_translated, _PART.findall(one))) for one in choices) + ")"
    return "".join(map(_literal, part))


def _class(part: str) -> str:
    negated = "^" if part[1] in "!^" else ""
    ranges = _RANGE.findall(part[1 + bool(negated) : -1])
    if any(low > high for low, high, _ in ranges if low):
        return "".join(map(_literal, part))
    inside = "".join(f"{_literal(low)}-{_literal(high)}" if low else _literal(one) for low, high, one in ranges)
    return f"[[{negated}{inside}]&&[^/]]"


def _literal(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"
