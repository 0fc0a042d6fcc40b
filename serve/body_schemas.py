"""The JSON schemas of request bodies: the fields of `wire`, with the limits that the checks of bodies have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import TypeAdapter

from owlclaw_ray import wire
from owlclaw_ray.domain.approval import Decision
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.schedule import (
    MAX_DELAY_SECONDS,
    MAX_INTERVAL_SECONDS,
    MAX_JITTER_SECONDS,
    MIN_INTERVAL_SECONDS,
)
from owlclaw_ray.domain.trigger import HIGHEST_PRIORITY, LOWEST_PRIORITY, MAX_DEADLINE_SECONDS
from serve.approval_request import BY, REASON
from serve.memory_request import CONTENT, MAX_ARCHIVED, MAX_TAGS, TAG
from serve.parameters import AGENT_PATTERN
from serve.schedule_request import CRON, FOCUS
from serve.score_request import COMMENT as SCORE_COMMENT
from serve.score_request import NAME, VALUE
from serve.shapes import ID
from serve.trigger_request import CALLBACK_URL, KEY, LABEL, MAX_BATCH, TASK_TYPE
from serve.trigger_request import FOCUS as TRIGGER_FOCUS


def reference(name: str) -> JsonObject:
    """Return what stands for a schema of the document's components."""
    return {"$ref": f"#/components/schemas/{name}"}


def _schema(shape: type, limits: Mapping[str, Mapping[str, Any]]) -> JsonObject:
    """Return the schema of a type of `wire` that has no other fields, with more said of some."""
    schema = TypeAdapter(shape).json_schema()
    schema["additionalProperties"] = False
    for field, limit in limits.items():
        schema["properties"][field] |= limit
    return schema


def _variant(schema: JsonObject, title: str, required: list[str], fields: Mapping[str, JsonObject]) -> JsonObject:
    """Return one of the forms of an object that has several: with those fields, its own or the schema's."""
    return {**schema, "title": title, "required": required, "properties": dict(fields)}


_TRIGGER_LIMITS: Mapping[str, Mapping[str, Any]] = {
    "focus": TRIGGER_FOCUS.schema,
    "kind": {"default": "api"},
    "task_type": TASK_TYPE.schema,
    "session": LABEL.schema,
    "user": LABEL.schema,
    "busy": {"default": "enqueue"},
    "priority": {"minimum": LOWEST_PRIORITY, "maximum": HIGHEST_PRIORITY, "default": 0},
    "deadline_seconds": {"exclusiveMinimum": 0, "maximum": MAX_DEADLINE_SECONDS},
    "callback_url": {**CALLBACK_URL.schema, "format": "uri"},
}
_TRIGGER = _schema(wire.TriggerRequest, _TRIGGER_LIMITS)
_BATCH_TRIGGER = _schema(
    wire.BatchTrigger, {**_TRIGGER_LIMITS, "agent": {"pattern": AGENT_PATTERN}, "idempotency_key": KEY.schema}
)
_BATCH: JsonObject = {
    "type": "object",
    "required": ["triggers"],
    "additionalProperties": False,
    "properties": {
        "triggers": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_BATCH,
            "items": {
                "anyOf": [
                    reference("BatchTrigger"),
                    {"description": "Anything else is answered with its own `problem`."},
                ]
            },
        }
    },
}

_SCORE = _schema(wire.ScoreRequest, {"name": NAME.schema, "value": VALUE, "comment": SCORE_COMMENT.schema})

_ANY_DECISION = _schema(wire.DecisionRequest, {"reason": REASON.schema, "by": BY.schema})
_ALLOWING = [each.value for each in Decision if each is not Decision.DENY]
_DECISION_FIELDS = _ANY_DECISION["properties"]
_DECISIONS = {
    each["title"]: each
    for each in (
        _variant(_ANY_DECISION, "AllowRequest", ["decision"], {**_DECISION_FIELDS, "decision": {"enum": _ALLOWING}}),
        _variant(
            _ANY_DECISION,
            "DenyRequest",
            ["decision"],
            {
                "decision": {"const": Decision.DENY.value},
                "reason": _DECISION_FIELDS["reason"],
                "by": _DECISION_FIELDS["by"],
            },
        ),
    )
}

_ANY_SCHEDULE = _schema(
    wire.ScheduleRequest,
    {
        "focus": FOCUS.schema,
        "at": {"format": "date-time"},
        "delay_seconds": {"exclusiveMinimum": 0, "maximum": MAX_DELAY_SECONDS},
        "interval_seconds": {"minimum": MIN_INTERVAL_SECONDS, "maximum": MAX_INTERVAL_SECONDS},
        "cron_expression": {
            "format": "cron",
            "description": f"Five fields, or a name such as @daily; up to {CRON.most} characters.",
        },
        "timezone": {"format": "iana-time-zone", "default": "UTC"},
        "jitter_seconds": {"minimum": 0, "maximum": MAX_JITTER_SECONDS, "default": 0},
        "overlap": {"default": "buffer_one"},
        "catch_up_seconds": {
            "anyOf": [{"type": "number", "minimum": 0, "maximum": MAX_INTERVAL_SECONDS}, {"type": "null"}]
        },
        "task_type": TASK_TYPE.schema,
    },
)
_OF_ALL = ("focus", "overlap", "catch_up_seconds", "task_type")
_NO_JITTER: JsonObject = {"type": "integer", "minimum": 0, "maximum": 0}
_NO_ZONE: JsonObject = {"const": "UTC"}


def _schedule(title: str, when: str, **others: JsonObject) -> JsonObject:
    fields = {**{name: _ANY_SCHEDULE["properties"][name] for name in ("jitter_seconds", "timezone")}, **others}
    fields |= {name: _ANY_SCHEDULE["properties"][name] for name in (when, *_OF_ALL)}
    return _variant(_ANY_SCHEDULE, title, ["focus", when], fields)


_SCHEDULES = {
    each["title"]: each
    for each in (
        _schedule("ScheduleAt", "at", jitter_seconds=_NO_JITTER, timezone=_NO_ZONE),
        _schedule("ScheduleAfter", "delay_seconds", jitter_seconds=_NO_JITTER, timezone=_NO_ZONE),
        _schedule("ScheduleEvery", "interval_seconds", timezone=_NO_ZONE),
        _schedule("ScheduleCron", "cron_expression"),
    )
}
_BACKFILL = _schema(wire.BackfillRequest, {"since": {"format": "date-time"}, "until": {"format": "date-time"}})

_TAGS: JsonObject = {"maxItems": MAX_TAGS, "items": TAG.schema}
_MEMORY = _schema(wire.MemoryRequest, {"content": CONTENT.schema, "tags": _TAGS})
_ANY_CHANGE = _schema(wire.MemoryChange, {"content": CONTENT.schema, "tags": _TAGS})
_CHANGES = {
    title: _variant(_ANY_CHANGE, title, [field], _ANY_CHANGE["properties"])
    for title, field in (("ContentChange", "content"), ("TagsChange", "tags"))
}
_ARCHIVE = _schema(wire.ArchiveRequest, {"memory_ids": {"minItems": 1, "maxItems": MAX_ARCHIVED, "items": ID.schema}})

SCHEMAS: Mapping[str, JsonObject] = {
    "TriggerRequest": _TRIGGER,
    "BatchTrigger": _BATCH_TRIGGER,
    "BatchRequest": _BATCH,
    "ScoreRequest": _SCORE,
    **_DECISIONS,
    "DecisionRequest": {"oneOf": [reference(name) for name in _DECISIONS]},
    **_SCHEDULES,
    "ScheduleRequest": {"oneOf": [reference(name) for name in _SCHEDULES]},
    "BackfillRequest": _BACKFILL,
    "MemoryRequest": _MEMORY,
    **_CHANGES,
    "MemoryChange": {"anyOf": [reference(name) for name in _CHANGES]},
    "ArchiveRequest": _ARCHIVE,
}
"""By the name of the type of `wire`, as the OpenAPI document's `components.schemas` has them; forms of one type have names of their own."""
_ENUMS: Mapping[tuple[str, ...], str] = {
    get_args(each): name for name, each in vars(wire).items() if get_origin(each) is Literal
}


def name_enums(document: JsonObject) -> None:
    """Have each enum of `wire` be a component of the document, and a reference to it wherever it is used.

    Generated clients make one type of it then, by the name that it has in `wire`.
    """
    schemas = document["components"]["schemas"]
    for values, name in _ENUMS.items():
        schemas[name] = {"title": name, "type": "string", "enum": [*values]} | schemas.get(name, {})
    document["paths"] = _referring(document["paths"])
    named = {name: schema if name in _ENUMS.values() else _referring(schema) for name, schema in schemas.items()}
    document["components"]["schemas"] = named


def _referring(part: JsonValue) -> JsonValue:
    if isinstance(part, list):
        return [_referring(each) for each in part]
    if not isinstance(part, dict):
        return part
    values = part.get("enum")
    name = _ENUMS.get(tuple(values)) if isinstance(values, list) else None
    if name is not None:
        return reference(name) | {key: part[key] for key in part.keys() - {"enum", "type", "title"}}
    return {key: each if key in {"example", "examples"} else _referring(each) for key, each in part.items()}
