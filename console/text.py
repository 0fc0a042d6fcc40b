"""What models, tools and callers wrote, as text that people can read and that can do nothing.

Markup is escaped by the templates. Here is what escaping leaves: characters that move the cursor, change colours, turn the direction of
writing or are not there to the eye become visible, and what is too long is cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TypeAlias

import orjson
from markupsafe import Markup, escape
from msgspec import Struct

from owlclaw_ray.domain.json import JsonValue

MOST_CHARACTERS = 4_000
"""Of one text on a page with many."""
_LINE = 2_000
_LONGEST = 2 * MOST_CHARACTERS
"""Of whatever no template cuts, such as names: no value makes a page large."""
_ON_ONE_LINE = 72
_LAID_OUT = 100_000
"""Longer JSON stays on one line: laying it out takes longer than anybody reads."""
_DEEPEST = 32
"""Levels of JSON that have lines of their own."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')
_DELETE = 0x7F

_Table: TypeAlias = dict[int, str]


def _table() -> _Table:
    named = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"} | {_DELETE: "␡"}
    coded = [
        *range(0x80, 0xA0),  # C1 controls, which terminals know as escape sequences
        0x00AD,
        0x034F,
        0x061C,
        0x115F,
        0x1160,
        0x17B4,
        0x17B5,
        *range(0x180B, 0x1810),
        0x200B,
        0x200E,
        0x200F,
        *range(0x2028, 0x202F),  # separators of lines, and what turns the direction of writing
        *range(0x2060, 0x2070),
        0x2800,  # blanks that are letters
        0x3164,
        0xFEFF,
        0xFFA0,
        *range(0xFFF9, 0xFFFC),
        *range(0x1D173, 0x1D17B),
        *range(0xE0000, 0xE0080),  # tags: text that only programs see
    ]
    return named | {code: f"⟨U+{code:04X}⟩" for code in coded}


_VISIBLE = _table()
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,}")
"""Selectors of variants, of which a letter has one at most: more of them are text that only programs see."""
_IN_FIELDS = {code: f"&#{code};" for code in _VISIBLE if code not in range(0x80, 0xA0)} | {0: _VISIBLE[0]}
"""References; those to C1 controls mean other characters, and there is none to NUL, which no field holds."""
_IN_JSON = {code: json.dumps(chr(code))[1:-1] for code in _VISIBLE if code >= _DELETE}


def visible(text: str) -> str:
    """Return the text with all that is invisible, or does something, made visible. Line feeds and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return _SELECTORS.sub(_coded, text.replace("\r\n", "\n").translate(_VISIBLE))


def _coded(found: re.Match[str]) -> str:
    return "".join(f"⟨U+{ord(each):04X}⟩" for each in found[0])


def _escaped(text: str) -> str:
    """Return JSON in which what is not seen is escaped."""
    return _SELECTORS.sub(lambda found: json.dumps(found[0])[1:-1], text.translate(_IN_JSON))


def finalised(value: object) -> object:
    """Return what a template shows for a value: markup as it is, all else as visible text, of which no more than any page needs."""
    if value is None:
        return ""
    if isinstance(value, Markup):
        return value
    text = str(value)
    return visible(text) if len(text) <= _LONGEST else f"{visible(text[:_LONGEST])}…"


def whole(text: str) -> Markup:
    """Return what a template shows of a text that it has cut itself."""
    return Markup(str(escape(visible(text))))  # noqa: S704 - it is escaped


def field(value: object) -> Markup:
    """Return what the value of a field is, or what is copied, exactly: sent back it means the same. Its source can do nothing."""
    return Markup(str(escape("" if value is None else str(value))).translate(_IN_FIELDS))  # noqa: S704 - it is escaped


class Clipped(Struct, frozen=True):
    """The beginning of a text."""

    text: str
    left: int
    """How many characters are not in it."""


def clipped(text: str, most: int = MOST_CHARACTERS) -> Clipped:
    """Return the beginning of the text: at most so many characters, and of no line more than 2,000."""
    begin, left = text[:most], max(0, len(text) - most)
    if len(begin) <= _LINE:
        return Clipped(begin, left)
    lines = [(line[:_LINE], max(0, len(line) - _LINE)) for line in begin.split("\n")]
    return Clipped("\n".join(line for line, _ in lines), left + sum(cut for _, cut in lines))


def brief(text: str, most: int = 160) -> str:
    """Return the text as one line of a table."""
    line = " ".join(text[: most * 4].split())
    return f"{line[: most - 1]}…" if len(line) > most or len(text) > most * 4 else line


def pretty(value: JsonValue) -> str:
    """Return JSON as people read it, and can write it back: what is not seen is escaped.

    JSON in a text is laid out as it is written: its numbers keep their digits, its names their order and their repetitions.
    """
    if isinstance(value, str):
        if len(value) > _LAID_OUT:
            return value
        try:
            said = orjson.loads(value)
        except orjson.JSONDecodeError:
            return str(value)
        if isinstance(said, str):
            return said
        if not isinstance(said, list | dict):
            return str(value)
        return _escaped(_laid_out(_TOKEN.findall(value)))
    text = json_text(value)
    return text if not _ON_ONE_LINE < len(text) <= _LAID_OUT else _escaped(_laid_out(_TOKEN.findall(text)))


def json_text(value: JsonValue) -> str:
    """Return JSON on one line, in which what is not seen is escaped."""
    try:
        text = orjson.dumps(value, default=str).decode()
    except orjson.JSONEncodeError:  # nested deeper than it writes, or a number that is larger
        text = json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))
    return _escaped(text)


def _laid_out(tokens: Sequence[str]) -> str:
    """Return JSON on one line if it is short, else with a line for each part, down to some depth."""
    said = [orjson.dumps(orjson.loads(each)).decode() if "\\" in each else each for each in tokens]
    line = "".join(said)
    if len(line) <= _ON_ONE_LINE:
        return line
    parts, depth, begins = list[str](), 0, True
    for at, each in enumerate(said):
        opens, closes = each in {"{", "["}, each in {"}", "]"}
        empty = closes and said[at - 1] in {"{", "["}
        depth -= closes
        if not empty and (begins or (closes and depth < _DEEPEST)):
            parts.append(f"\n{'  ' * depth}")
        depth += opens
        parts.append(": " if each == ":" else each)
        begins = (opens or each == ",") and depth <= _DEEPEST
    return "".join(parts).removeprefix("\n")


def bytes_of(page: str) -> bytes:
    """Return UTF-8; of half characters, which have none, question marks."""
    return page.encode("utf-8", "replace")
