"""Sections of IDENTITY.md, by the titles of their second-level headings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

CAPABILITIES = frozenset({"my capabilities", "我的能力"})
CONSTRAINTS = frozenset({"my constraints", "constraints", "我的约束", "约束"})

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def section(text: str, titles: Collection[str]) -> str | None:
    """Return the text of the sections with one of the titles (case does not matter), or None if there is none.

    A section reaches to the next heading of the first or second level. Headings inside code fences are text.
    """
    parts: list[str] | None = None
    inside = False
    for line, level, title in _lines(text):
        if level in {1, 2}:
            inside = level == 2 and title.casefold() in titles
            if inside:
                parts = [*(parts or []), ""]
        elif inside and parts is not None:
            parts[-1] += f"{line}\n"
    if parts is None:
        return None
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _lines(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield each line with the level and title of the heading that it is; level 0 for other lines."""
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        heading = None if fence else _HEADING.fullmatch(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence):
            fence = ""
        yield (line, len(heading[1]), heading[2].strip()) if heading else (line, 0, "")
