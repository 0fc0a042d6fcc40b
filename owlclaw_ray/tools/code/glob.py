"""Globs over paths below a folder: `*` and `?` within a name, `**` across folders, `[ab]`, `{one,other}`."""

from __future__ import annotations

import re

_PART = re.compile(r"\*\*/|\*\*|\*|\?|\[[!^]?[^\]/]+\]|\{[^{}]*\}|.", re.DOTALL)


def glob_pattern(glob: str) -> re.Pattern[str]:
    """Return what matches a whole path below the folder, with slashes; a glob without a slash is about the name alone."""
    body = "".join(map(_translated, _PART.findall(glob.removeprefix("/").removeprefix("./"))))
    anywhere = "" if "/" in glob else "(?:.*/)?"
    return re.compile(f"{anywhere}{body}", re.DOTALL)


_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _translated(part: str) -> str:
    if part in _WILDCARDS:
        return _WILDCARDS[part]
    if part.startswith("[") and len(part) > 1:
        return _class(part)
    if part.startswith("{") and len(part) > 1:
        choices = part[1:-1].split(",")
        return "(?:" + "|".join("".join(map(_translated, _PART.findall(one))) for one in choices) + ")"
    return re.escape(part)


def _class(part: str) -> str:
    negated = "^" if part[1] in "!^" else ""
    inside = re.sub(r"[^\w\s-]", lambda found: f"\\{found[0]}", part[1 + bool(negated) : -1])
    return f"(?!/)[{negated}{inside}]" if _is_class(inside) else re.escape(part)


def _is_class(inside: str) -> bool:
    try:
        re.compile(f"[{inside}]")
    except re.error:
        return False
    return True
