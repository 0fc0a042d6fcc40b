"""The body and headers of a trigger, checked by hand: this is the hot path."""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from typing import Any

import orjson
from starlette.requests import Request

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import Problem
from serve.errors import InvalidRequestError, MalformedJsonError

MAX_FOCUS = 500
MAX_WAIT_SECONDS = 300
_FIELDS = ("payload", "focus", "kind")
_KINDS = {"api": TriggerKind.API, "event": TriggerKind.EVENT}
_VISIBLE = re.compile(r"[\x21-\x7e]{1,255}")


def parse_trigger(body: bytes) -> Trigger:
    """Return the trigger that a body asks for; an empty body asks for a run without payload.

    Raises MalformedJsonError, or InvalidRequestError with every field that is wrong.
    """
    if not body:
        return Trigger(TriggerKind.API)
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedJsonError.at(error) from None
    if not isinstance(parsed, dict):
        fix = 'put it into a field: {"payload": …}'
        raise InvalidRequestError([Problem("body", f"must be a JSON object, not {_json_type(parsed)}", fix)])
    focus, kind = parsed.get("focus", ""), parsed.get("kind", "api")
    if not _focus_fits(focus) or kind.__class__ is not str or kind not in _KINDS or not parsed.keys() <= set(_FIELDS):
        raise InvalidRequestError(_problems(parsed))
    return Trigger(_KINDS[kind], parsed.get("payload"), focus)


def parse_idempotency_key(request: Request) -> str | None:
    """Return the header Idempotency-Key, None without one; raises InvalidRequestError."""
    key = request.headers.get("idempotency-key")
    if key is None or _VISIBLE.fullmatch(key):
        return key
    what = f"has {len(key)} characters" if len(key) > 255 else "is empty or has blanks or characters outside ASCII"
    raise InvalidRequestError([Problem("header Idempotency-Key", what, "1 to 255 visible ASCII characters")])


def parse_wait(request: Request) -> float | None:
    """Return the seconds of `?wait=`, None without one; raises InvalidRequestError."""
    text = request.query_params.get("wait") if request.scope["query_string"] else None
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        raise InvalidRequestError([Problem("query wait", f"is {text!r}", f"seconds from 0 to {MAX_WAIT_SECONDS}")])
    return seconds


def body_hash(agent: AgentRef, trigger: Trigger) -> str:
    """Return what must be equal for two requests to be the same one, however their JSON is laid out."""
    meaning = [agent.agent_id, trigger.kind.value, trigger.focus, trigger.payload]
    return hashlib.sha256(orjson.dumps(meaning, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _focus_fits(focus: Any) -> bool:
    return focus.__class__ is str and len(focus) <= MAX_FOCUS and "\0" not in focus


def _problems(parsed: dict[str, Any]) -> list[Problem]:
    problems = [_unknown(name) for name in parsed if name not in _FIELDS]
    focus, kind = parsed.get("focus", ""), parsed.get("kind", "api")
    if not isinstance(focus, str):
        problems.append(Problem("body.focus", f"is {_json_type(focus)}", f"a text of up to {MAX_FOCUS} characters"))
    elif len(focus) > MAX_FOCUS:
        problems.append(Problem("body.focus", f"has {len(focus)} characters", f"up to {MAX_FOCUS} characters"))
    elif "\0" in focus:
        problems.append(Problem("body.focus", "has a NUL character", "a text without it"))
    if not isinstance(kind, str) or kind not in _KINDS:
        problems.append(Problem("body.kind", f"is {orjson.dumps(kind).decode()}", '"api" (default) or "event"'))
    return problems


def _unknown(name: str) -> Problem:
    close = difflib.get_close_matches(name, _FIELDS, 1)
    hint = f"did you mean {close[0]}?" if close else f"known fields: {', '.join(_FIELDS)}"
    return Problem(f"body.{name}", "unknown field", hint)


def _json_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "an array"
        case _:
            return "an object"
