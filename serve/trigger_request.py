"""The body and headers of a trigger: this is the hot path."""

from __future__ import annotations

import hashlib
import math
import re

import orjson
from msgspec import ValidationError, convert
from msgspec.structs import replace
from starlette.requests import Request

from owlclaw_ray import wire
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import LARGE
from owlclaw_ray.domain.tracing import HEADER, in_trace
from owlclaw_ray.domain.trigger import ENQUEUED, Admission, BusyPolicy, Trigger, TriggerKind
from owlclaw_ray.errors import Problem
from owlclaw_ray.runtime.api import TriggerRequest
from serve.errors import InvalidRequestError
from serve.parameters import principal_of, submitters_of, tenant_of
from serve.request_bodies import checked, read_json

MAX_WAIT_SECONDS = 300
_ADMISSION_FIELDS = ("busy", "priority", "deadline_seconds", "callback_url")
_KINDS = {"api": TriggerKind.API, "event": TriggerKind.EVENT}
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


def parse_trigger(body: bytes) -> tuple[Trigger, Admission]:
    """Return the trigger that a body asks for, and its admission; an empty body asks for a run without payload.

    Raises MalformedJsonError, or InvalidRequestError with every field that is wrong.
    """
    if not body:
        return Trigger(TriggerKind.API), ENQUEUED
    trigger, admission = trigger_of(checked(read_json(body), wire.TriggerRequest))
    return trigger.compact() if len(body) > LARGE else trigger, admission


def trigger_of(asked: wire.TriggerRequest) -> tuple[Trigger, Admission]:
    """Return the trigger that is asked for, and its admission."""
    trigger = Trigger(
        _KINDS[asked.get("kind", "api")],
        asked.get("payload"),
        asked.get("focus", ""),
        task_type=asked.get("task_type", ""),
        session=asked.get("session", ""),
        user=asked.get("user", ""),
    )
    if asked.keys().isdisjoint(_ADMISSION_FIELDS):
        return trigger, ENQUEUED
    busy, seconds = BusyPolicy(asked.get("busy", "enqueue")), asked.get("deadline_seconds")
    return trigger, Admission(busy, asked.get("priority", 0), seconds, asked.get("callback_url", ""))


def caused_by(request: Request, trigger: Trigger) -> Trigger:
    """Return the trigger as part of the trace that the request belongs to, and as what its principal asks for."""
    traced, submitters = in_trace(trigger, request.headers.get(HEADER), tenant_of(request)), submitters_of(request)
    return replace(traced, submitters=submitters) if submitters else traced


def request_of(
    request: Request, agent: AgentRef, trigger: Trigger, admission: Admission, key: str | None
) -> TriggerRequest:
    """Return what the principal of the request asks the runtime for, within the quota of its key. `key`: the Idempotency-Key."""
    hashed, quota = "" if key is None else body_hash(agent, trigger, admission), principal_of(request).quota
    if quota is not None:
        admission = replace(admission, quota=quota)
    return TriggerRequest(agent, caused_by(request, trigger), admission, key, hashed)


def parse_idempotency_key(request: Request) -> str | None:
    """Return the header Idempotency-Key, None without one; raises InvalidRequestError."""
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    try:
        return convert(key, wire.IdempotencyKey)
    except ValidationError:
        what = f"has {len(key)} characters" if len(key) > 255 else "is empty or has blanks or characters outside ASCII"
        raise InvalidRequestError(
            [Problem("header Idempotency-Key", what, "1 to 255 visible ASCII characters")]
        ) from None


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
