"""The body and headers of a trigger, checked by hand: this is the hot path."""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from typing import Any

import orjson
from msgspec.structs import replace
from starlette.requests import Request

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.callback import MAX_URL
from owlclaw_ray.domain.json import LARGE
from owlclaw_ray.domain.schedule import MAX_FOCUS
from owlclaw_ray.domain.tracing import HEADER, in_trace
from owlclaw_ray.domain.trigger import (
    ENQUEUED,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MAX_DEADLINE_SECONDS,
    MAX_LABEL_CHARACTERS,
    MAX_TASK_TYPE,
    Admission,
    BusyPolicy,
    Trigger,
    TriggerKind,
)
from owlclaw_ray.errors import Problem
from serve.errors import InvalidRequestError
from serve.json_body import read_json
from serve.shapes import Text, whole

FOCUS = Text(MAX_FOCUS)
TASK_TYPE = Text(MAX_TASK_TYPE)
LABEL = Text(MAX_LABEL_CHARACTERS, 1, r"^[ -~]+$")
KEY = Text(255, 1, r"^[!-~]+$")
CALLBACK_URL = Text(MAX_URL, 1, r"^https?://[!-~]+$")
MAX_WAIT_SECONDS = 300
MAX_BATCH = 500
_SHOWN = 80
"""Longest JSON that is repeated to whom sent it."""
_ADMISSION_FIELDS = ("busy", "priority", "deadline_seconds", "callback_url")
_LABELS = ("session", "user")
_FIELDS = ("payload", "focus", "kind", "task_type", *_LABELS, *_ADMISSION_FIELDS)
_KINDS = {"api": TriggerKind.API, "event": TriggerKind.EVENT}
_POLICIES = {policy.value: policy for policy in BusyPolicy}
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


def parse_trigger(body: bytes) -> tuple[Trigger, Admission]:
    """Return the trigger that a body asks for, and its admission; an empty body asks for a run without payload.

    Raises MalformedJsonError, or InvalidRequestError with every field that is wrong.
    """
    if not body:
        return Trigger(TriggerKind.API), ENQUEUED
    parsed = read_json(body)
    if not isinstance(parsed, dict):
        fix = 'put it into a field: {"payload": …}'
        raise InvalidRequestError([Problem("body", f"must be a JSON object, not {json_type(parsed)}", fix)])
    trigger, admission = trigger_of(parsed)
    return trigger.compact() if len(body) > LARGE else trigger, admission


def trigger_of(parsed: dict[str, Any]) -> tuple[Trigger, Admission]:
    """Return the trigger that an object asks for, and its admission; raises InvalidRequestError with every field that is wrong."""
    focus, kind, task_type = parsed.get("focus", ""), parsed.get("kind", "api"), parsed.get("task_type", "")
    known = kind.__class__ is str and kind in _KINDS and parsed.keys() <= set(_FIELDS)
    if not known or not FOCUS.fits(focus) or not TASK_TYPE.fits(task_type):
        raise InvalidRequestError(_problems(parsed))
    admission = ENQUEUED if parsed.keys().isdisjoint(_ADMISSION_FIELDS) else _admission(parsed)
    trigger = Trigger(_KINDS[kind], parsed.get("payload"), focus, task_type=task_type)
    return trigger if parsed.keys().isdisjoint(_LABELS) else _labelled(trigger, parsed), admission


def caused_by(request: Request, trigger: Trigger) -> Trigger:
    """Return the trigger as part of the trace that the request belongs to."""
    return in_trace(trigger, request.headers.get(HEADER))


def parse_idempotency_key(request: Request) -> str | None:
    """Return the header Idempotency-Key, None without one; raises InvalidRequestError."""
    return checked_key(request.headers.get("idempotency-key"), "header Idempotency-Key")


def checked_key(key: object, where: str) -> str | None:
    """Return an Idempotency-Key that came from there, None for none; raises InvalidRequestError."""
    if key is None or KEY.fits(key):
        return key
    what = "is empty or has blanks or characters outside ASCII"
    if isinstance(key, str) and len(key) > KEY.most:
        what = f"has {len(key)} characters"
    raise InvalidRequestError([Problem(where, what, f"{KEY.least} to {KEY.most} visible ASCII characters")])


def parse_wait(request: Request) -> float | None:
    """Return the seconds of `?wait=`, None without one; raises InvalidRequestError."""
    text = request.query_params.get("wait") if request.scope["query_string"] else None
    if text is None:
        return None
    seconds = float(text) if _SECONDS.fullmatch(text) else math.nan
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        raise InvalidRequestError([Problem("query wait", f"is {text!r}", f"seconds from 0 to {MAX_WAIT_SECONDS}")])
    return seconds


def body_hash(agent: AgentRef, trigger: Trigger, admission: Admission) -> str:
    """Return what must be equal for two requests to be the same one, however their JSON is laid out."""
    meaning = [agent.agent_id, trigger.kind.value, trigger.focus, trigger.payload]
    if admission != ENQUEUED:
        meaning += [admission.busy.value, admission.priority, admission.deadline]
    if admission.callback_url:
        meaning.append(admission.callback_url)
    if trigger.task_type:
        meaning.append({"task_type": trigger.task_type})
    if trigger.session or trigger.user:
        meaning.append({"session": trigger.session, "user": trigger.user})
    return hashlib.sha256(orjson.dumps(meaning, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _labelled(trigger: Trigger, parsed: dict[str, Any]) -> Trigger:
    problems = _label_problems(parsed)
    if problems:
        raise InvalidRequestError(problems)
    return replace(trigger, session=parsed.get("session", ""), user=parsed.get("user", ""))


def _label_problems(parsed: dict[str, Any]) -> list[Problem]:
    fix = f"a text of 1 to {MAX_LABEL_CHARACTERS} visible ASCII characters and blanks"
    return [
        Problem(f"body.{name}", f"is {_shown(parsed[name])}", fix)
        for name in _LABELS
        if name in parsed and not LABEL.fits(parsed[name])
    ]


def _admission(parsed: dict[str, Any]) -> Admission:
    problems = _admission_problems(parsed)
    if problems:
        raise InvalidRequestError(problems)
    busy, deadline = parsed.get("busy", BusyPolicy.ENQUEUE.value), parsed.get("deadline_seconds")
    seconds = None if deadline is None else float(deadline)
    return Admission(_POLICIES[busy], int(parsed.get("priority", 0)), seconds, parsed.get("callback_url", ""))


def _problems(parsed: dict[str, Any]) -> list[Problem]:
    problems = [_unknown(name) for name in parsed if name not in _FIELDS]
    focus, kind = parsed.get("focus", ""), parsed.get("kind", "api")
    if not isinstance(focus, str):
        problems.append(Problem("body.focus", f"is {json_type(focus)}", f"a text of up to {MAX_FOCUS} characters"))
    elif len(focus) > MAX_FOCUS:
        problems.append(Problem("body.focus", f"has {len(focus)} characters", f"up to {MAX_FOCUS} characters"))
    elif "\0" in focus:
        problems.append(Problem("body.focus", "has a NUL character", "a text without it"))
    if not isinstance(kind, str) or kind not in _KINDS:
        problems.append(Problem("body.kind", f"is {_shown(kind)}", '"api" (default) or "event"'))
    if not TASK_TYPE.fits(parsed.get("task_type", "")):
        what = f"is {_shown(parsed['task_type'])}"
        problems.append(Problem("body.task_type", what, f"a text of up to {MAX_TASK_TYPE} characters"))
    return problems + _label_problems(parsed) + _admission_problems(parsed)


def _admission_problems(parsed: dict[str, Any]) -> list[Problem]:
    problems = []
    if "busy" in parsed and not _is_policy(parsed["busy"]):
        problems.append(Problem("body.busy", f"is {_shown(parsed['busy'])}", f"one of {', '.join(_POLICIES)}"))
    if "priority" in parsed and not _is_priority(parsed["priority"]):
        fix = f"a whole number from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}"
        problems.append(Problem("body.priority", f"is {_shown(parsed['priority'])}", fix))
    if "deadline_seconds" in parsed and not _is_deadline(parsed["deadline_seconds"]):
        fix = f"seconds, over 0 and up to {MAX_DEADLINE_SECONDS:.0f}"
        problems.append(Problem("body.deadline_seconds", f"is {_shown(parsed['deadline_seconds'])}", fix))
    if "callback_url" in parsed and not CALLBACK_URL.fits(parsed["callback_url"]):
        fix = f"a URL with https:// or http://, of up to {MAX_URL:,} visible ASCII characters"
        problems.append(Problem("body.callback_url", f"is {_shown(parsed['callback_url'])}", fix))
    return problems


def _is_policy(value: Any) -> bool:
    return isinstance(value, str) and value in _POLICIES


def _is_priority(value: Any) -> bool:
    number = whole(value)
    return number is not None and LOWEST_PRIORITY <= number <= HIGHEST_PRIORITY


def _is_deadline(value: Any) -> bool:
    return value.__class__ in {int, float} and 0 < value <= MAX_DEADLINE_SECONDS


def _unknown(name: str) -> Problem:
    close = difflib.get_close_matches(name, _FIELDS, 1)
    hint = f"did you mean {close[0]}?" if close else f"known fields: {', '.join(_FIELDS)}"
    return Problem(f"body.{name}", "unknown field", hint)


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= _SHOWN else json_type(value)


def json_type(value: Any) -> str:
    """Return what a JSON value is, for people."""
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
