"""The body of a score, checked by hand so that everything wrong is said at once."""

from __future__ import annotations

from typing import Any

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.score import (
    LARGEST,
    MAX_COMMENT_CHARACTERS,
    MAX_NAME_CHARACTERS,
    MAX_WORD_CHARACTERS,
    Judgement,
)
from owlclaw_ray.errors import Problem
from serve.errors import InvalidRequestError
from serve.json_body import read_json
from serve.shapes import NOT_BLANK, Text

NAME, WORD, COMMENT = (
    Text(MAX_NAME_CHARACTERS, 1, NOT_BLANK),
    Text(MAX_WORD_CHARACTERS, 1, NOT_BLANK),
    Text(MAX_COMMENT_CHARACTERS),
)
VALUE: JsonObject = {
    "anyOf": [{"type": "number", "minimum": -LARGEST, "maximum": LARGEST}, {"type": "boolean"}, WORD.schema]
}
_FIELDS = ("name", "value", "comment")


def parse_score(body: bytes) -> Judgement:
    """Return what a body says of a run; raises MalformedJsonError, or InvalidRequestError with every field that is wrong."""
    parsed = read_json(body or b"{}")
    if not isinstance(parsed, dict):
        raise InvalidRequestError(
            [Problem("body", "must be a JSON object", 'such as {"name": "helpful", "value": true}')]
        )
    problems = _problems(parsed)
    if problems:
        raise InvalidRequestError(problems)
    value = parsed["value"]
    return Judgement(parsed["name"], float(value) if value.__class__ is int else value, parsed.get("comment", ""))


def _problems(parsed: dict[str, Any]) -> list[Problem]:
    known = f"known fields: {', '.join(_FIELDS)}"
    problems = [Problem(f"body.{name}", "unknown field", known) for name in parsed if name not in _FIELDS]
    if not NAME.fits(parsed.get("name")):
        fix = f"a text of 1 to {MAX_NAME_CHARACTERS} characters that are not all blank, without NUL"
        problems.append(Problem("body.name", _missing_or("is no name", parsed, "name"), fix))
    if not _is_value(parsed.get("value")):
        fix = f"a number from {-LARGEST:g} to {LARGEST:g}, true, false, or a text of 1 to {MAX_WORD_CHARACTERS} characters"
        problems.append(Problem("body.value", _missing_or("is no value", parsed, "value"), fix))
    if not COMMENT.fits(parsed.get("comment", "")):
        fix = f"a text of up to {MAX_COMMENT_CHARACTERS:,} characters, without NUL"
        problems.append(Problem("body.comment", "cannot be kept", fix))
    return problems


def _missing_or(what: str, parsed: dict[str, Any], name: str) -> str:
    return what if name in parsed else "is missing"


def _is_value(value: Any) -> bool:
    if value.__class__ in {int, float}:
        return bool(-LARGEST <= value <= LARGEST)
    return isinstance(value, bool) or WORD.fits(value)
