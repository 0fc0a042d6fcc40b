"""The bodies of new schedules and backfills, checked by hand so that everything of the wrong shape is said at once."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import orjson

from owlclaw_ray.domain.schedule import MAX_FOCUS, OverlapPolicy, ScheduleRequest
from owlclaw_ray.errors import Problem
from serve.errors import InvalidRequestError
from serve.json_body import read_json
from serve.shapes import NOT_BLANK, Text, moment, whole
from serve.trigger_request import TASK_TYPE

FOCUS = Text(MAX_FOCUS, 1, NOT_BLANK)
CRON = Text(200, 1)
TIMEZONE = Text(64, 1)
_OVERLAPS = {each.value: each for each in OverlapPolicy}
_A_TIME = "a time with its zone, such as 2026-11-03T09:30:00Z"


def _one_of(text: Text) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not text.fits(value):
            raise TypeError(value)
        return value

    return read


def _whole(value: Any) -> int:
    number = whole(value)
    if number is None:
        raise TypeError(value)
    return number


def _number(value: Any) -> float:
    if value.__class__ not in {int, float} or not math.isfinite(value):
        raise TypeError(value)
    return float(value)


def _number_or_null(value: Any) -> float | None:
    return None if value is None else _number(value)


def _overlap(value: Any) -> OverlapPolicy:
    return _OVERLAPS[value]


_Read = tuple[Callable[[Any], Any], str]
_SCHEDULE: dict[str, _Read] = {
    "focus": (_one_of(FOCUS), f"a text of 1 to {FOCUS.most} characters that are not all blank, without NUL"),
    "at": (moment, _A_TIME),
    "delay_seconds": (_number, "a number of seconds"),
    "interval_seconds": (_whole, "a whole number of seconds"),
    "cron_expression": (_one_of(CRON), f"a text of 1 to {CRON.most} characters"),
    "timezone": (_one_of(TIMEZONE), "an IANA zone, such as Asia/Shanghai"),
    "jitter_seconds": (_whole, "a whole number of seconds"),
    "overlap": (_overlap, f"one of {', '.join(_OVERLAPS)}"),
    "catch_up_seconds": (_number_or_null, "a number of seconds, or null"),
    "task_type": (_one_of(TASK_TYPE), f"a text of up to {TASK_TYPE.most} characters, without NUL"),
}
_BACKFILL: dict[str, _Read] = {"since": (moment, _A_TIME), "until": (moment, _A_TIME)}


def parse_schedule(body: bytes) -> ScheduleRequest:
    """Return what a body asks for; raises MalformedJsonError, or InvalidRequestError with every field that is wrong."""
    return ScheduleRequest(**_read(body, _SCHEDULE, ("focus",)))


def parse_backfill(body: bytes) -> tuple[datetime, datetime]:
    """Return from when to when; raises as parse_schedule."""
    found = _read(body, _BACKFILL, tuple(_BACKFILL))
    return found["since"], found["until"]


def _read(body: bytes, fields: dict[str, _Read], required: Sequence[str]) -> dict[str, Any]:
    parsed = read_json(body or b"{}")
    if not isinstance(parsed, dict):
        raise InvalidRequestError([Problem("body", "must be a JSON object", f"with {', '.join(fields)}")])
    problems = [_unknown(name, fields) for name in parsed if name not in fields]
    problems += [Problem(f"body.{name}", "is missing", fields[name][1]) for name in required if name not in parsed]
    found: dict[str, Any] = {}
    for name, (read, right) in fields.items():
        if name in parsed:
            try:
                found[name] = read(parsed[name])
            except (ValueError, TypeError, KeyError):
                problems.append(Problem(f"body.{name}", f"is {_shown(parsed[name])}", right))
    if problems:
        raise InvalidRequestError(problems)
    return found


def _unknown(name: str, fields: dict[str, _Read]) -> Problem:
    close = difflib.get_close_matches(name, fields, 1)
    hint = f"did you mean {close[0]}?" if close else f"known fields: {', '.join(fields)}"
    return Problem(f"body.{name}", "unknown field", hint)


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 80 else f"{text[:80]}…"
