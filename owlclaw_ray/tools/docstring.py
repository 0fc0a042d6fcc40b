"""What a function's docstring says to a model: its first paragraph, and a text for each parameter."""

from __future__ import annotations

import re

from msgspec import Struct, field

_SPHINX = re.compile(r":param(?: [^:]+)? (\w+):\s*(.*)")
_GOOGLE_START = re.compile(r"(Args|Arguments|Parameters|参数)[::]\s*")
_GOOGLE_ENTRY = re.compile(r"(\w+)(?:\s*\([^)]*\))?\s*[::]\s*(.*)")


class Docstring(Struct):
    """The parts that models read."""

    summary: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def parse_docstring(text: str) -> Docstring:
    """Read a docstring (cleaned, as inspect.getdoc gives it) in Google or Sphinx style; others give a summary only."""
    summary = text.strip().split("\n\n", 1)[0]
    parsed = Docstring("" if _is_field(summary) else " ".join(summary.split()))
    lines = text.splitlines()
    _read_sphinx(lines, parsed.parameters)
    for number, line in enumerate(lines):
        if _GOOGLE_START.fullmatch(line.strip()):
            _read_google(lines[number + 1 :], parsed.parameters)
    return parsed


def _is_field(paragraph: str) -> bool:
    first = paragraph.split("\n", 1)[0].strip()
    return first.startswith(":") or _GOOGLE_START.fullmatch(first) is not None


def _read_sphinx(lines: list[str], parameters: dict[str, str]) -> None:
    name = ""
    for line in lines:
        found = _SPHINX.fullmatch(line.strip())
        if found:
            name = found[1]
            parameters[name] = found[2].strip()
        elif name and line[:1].isspace():
            parameters[name] = f"{parameters[name]} {line.strip()}".strip()
        else:
            name = ""


def _read_google(lines: list[str], parameters: dict[str, str]) -> None:
    name, indent = "", 0
    for line in lines:
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if not stripped or depth == 0:
            return
        found = _GOOGLE_ENTRY.fullmatch(stripped)
        if found and (not indent or depth <= indent):
            name, indent = found[1], depth
            parameters[name] = found[2].strip()
        elif name:
            parameters[name] = f"{parameters[name]} {stripped}".strip()
