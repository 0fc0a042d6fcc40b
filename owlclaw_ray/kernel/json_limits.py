"""What JSON may hold that comes from outside: what every part of the runtime can write again.

orjson reads 1,024 levels and writes 254, reads integers beyond 64 bits as floats; pickle fails near 500 levels; a store in UTF-8
takes no lone surrogates. So all of it is refused where it enters, with its place.
"""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate

import orjson

from owlclaw_ray.domain.json import JsonValue

MAX_DEPTH = 100
"""Levels of lists and objects."""
KEPT = f"at most {MAX_DEPTH} levels, finite numbers, integers of 64 bits, whole characters"
"""What JSON may hold, in words."""
_MAX_PLACE_CHARACTERS = 120
_LEAST, _MAXIMUM = -(2**63), 2**64 - 1
_MAX_DIGITS = len(str(_LEAST))
_ONLY_DIGITS = bytes(ord("0") if chr(byte) in "0123456789" else ord(" ") for byte in range(256))
_LONG_NUMBER = b"0" * 19
_TEXT = re.compile(rb'"[^"]*"')
_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")
"""A level down, or up: minus one."""


class JsonLimitError(ValueError):
    """A document is JSON, or nearly, and holds what cannot be kept: `place` (`.payload[2].name`, empty for the whole) and `what`."""

    def __init__(self, place: str, what: str) -> None:
        self.place = place if len(place) <= _MAX_PLACE_CHARACTERS else f"{place[: _MAX_PLACE_CHARACTERS // 2]}…"
        self.what = what
        super().__init__(f"{self.place.removeprefix('.') or 'the document'} {what}")


def read_json(document: bytes) -> JsonValue:
    """Return the value of a JSON document; raises orjson.JSONDecodeError if it is none, or JsonLimitError."""
    try:
        value: JsonValue = orjson.loads(document)
    except orjson.JSONDecodeError:
        check_limits(_read_leniently(document))
        raise
    if _is_deep(document):
        check_limits(value)
    if _LONG_NUMBER in document.translate(_ONLY_DIGITS):
        check_limits(_read_leniently(document))
    return value


def check_limits(value: JsonValue) -> None:
    """Raise JsonLimitError if the value, of lists and dicts, is deeper or holds others than JSON that is kept may."""
    waiting = [("", value, 1)]
    while waiting:
        place, each, level = waiting.pop()
        if isinstance(each, dict | list) and level > MAX_DEPTH:
            raise JsonLimitError(place, f"lies deeper than {MAX_DEPTH} levels")
        if isinstance(each, dict):
            for name, inner in each.items():
                _check_text(place, name)
                waiting.append((f"{place}.{name}", inner, level + 1))
        elif isinstance(each, list):
            waiting += [(f"{place}[{at}]", inner, level + 1) for at, inner in enumerate(each)]
        elif isinstance(each, str):
            _check_text(place, each)
        elif isinstance(each, float) and not math.isfinite(each):
            raise JsonLimitError(place, f"is {each}, which is no number in JSON")
        elif isinstance(each, int) and not _LEAST <= each <= _MAXIMUM:
            raise JsonLimitError(place, "is an integer beyond 64 bits: send it as a text")


def _check_text(place: str, text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise JsonLimitError(place, f"has half a character (a lone surrogate) at {error.start}") from None


def _is_deep(document: bytes) -> bool:
    """Return whether valid JSON is deeper than MAX_DEPTH, by its brackets: going through its values takes ten times as long."""
    if document.count(b"[") + document.count(b"{") <= MAX_DEPTH:
        return False
    if b"\\" in document:
        document = document.replace(rb"\\", b"").replace(rb"\"", b"")
    brackets = document.translate(None, _NO_BRACKETS).replace(b'""', b"")
    if b'"' in brackets:
        brackets = _TEXT.sub(b"", brackets)
    return max(accumulate(memoryview(brackets.translate(_STEPS)).cast("b"))) > MAX_DEPTH


def _read_leniently(document: bytes) -> JsonValue:
    """Return what Python reads of a document: NaN, half characters and long integers too; None if it is no JSON for Python either."""
    try:
        # Python does not read an integer of very many digits: it becomes one that is too large
        return json.loads(
            document, parse_int=lambda digits: int(digits) if len(digits) <= _MAX_DIGITS else _MAXIMUM + 1
        )
    except RecursionError:
        raise JsonLimitError("", f"is deeper than {MAX_DEPTH} levels") from None
    except ValueError:
        return None
