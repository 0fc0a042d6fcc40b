"""The JSON schemas of request bodies, from the types of `wire`, and the enums of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args, get_origin

import orjson
from msgspec.json import schema_components

from owlclaw_ray import wire
from owlclaw_ray.domain.approval import Decision
from owlclaw_ray.domain.json import JsonObject, JsonValue


def reference(name: str) -> JsonObject:
    """Return what stands for a schema of the document's components."""
    return {"$ref": f"#/components/schemas/{name}"}


def _schema(shape: type) -> JsonObject:
    """Return the schema of a type of `wire` that has no other fields."""
    _, components = schema_components([shape], ref_template="#/components/schemas/{name}")
    schema: JsonObject = orjson.loads(orjson.dumps(components[shape.__name__]).replace(rb"\\Z", b"$"))
    if not schema["required"]:
        del schema["required"]
    for field in schema["properties"].values():
        if "properties" in field:
            # An object whose names are listed has no others, though msgspec says what others would be and,
            # from 0.23 on, which names there are.
            field["additionalProperties"] = False
            field.pop("propertyNames", None)
    return schema | {"additionalProperties": False}


def _forms(shape: type, **forms: tuple[list[str], JsonObject]) -> dict[str, JsonObject]:
    """Return an object that has several forms, and the forms: each with what it requires and its fields."""
    schema = _schema(shape)
    return {
        title: {**schema, "title": title, "required": required, "properties": fields}
        for title, (required, fields) in forms.items()
    } | {shape.__name__: {"oneOf": [reference(title) for title in forms]}}


def _decisions() -> dict[str, JsonObject]:
    fields = _schema(wire.DecisionRequest)["properties"]
    allowing = [each.value for each in Decision if each is not Decision.DENY]
    denial = {"decision": {"const": Decision.DENY.value}, "reason": fields["reason"], "by": fields["by"]}
    return _forms(
        wire.DecisionRequest,
        AllowRequest=(["decision"], {**fields, "decision": {"enum": allowing}}),
        DenyRequest=(["decision"], denial),
    )


def _schedules() -> dict[str, JsonObject]:
    fields = _schema(wire.ScheduleRequest)["properties"]
    no_jitter: JsonObject = {"jitter_seconds": {"type": "integer", "minimum": 0, "maximum": 0}}
    no_zone: JsonObject = {"timezone": {"const": "UTC"}}

    def form(when: str, others: JsonObject) -> tuple[list[str], JsonObject]:
        alternatives = {"at", "delay_seconds", "interval_seconds", "cron_expression"} - {when}
        return ["focus", when], {name: each for name, each in fields.items() if name not in alternatives} | others

    return _forms(
        wire.ScheduleRequest,
        ScheduleAt=form("at", no_jitter | no_zone),
        ScheduleAfter=form("delay_seconds", no_jitter | no_zone),
        ScheduleEvery=form("interval_seconds", no_zone),
        ScheduleCron=form("cron_expression", {}),
    )


def _changes() -> dict[str, JsonObject]:
    fields = _schema(wire.MemoryChange)["properties"]
    forms = _forms(wire.MemoryChange, ContentChange=(["content"], fields), TagsChange=(["tags"], fields))
    return forms | {"MemoryChange": {"anyOf": forms["MemoryChange"]["oneOf"]}}


def _batch() -> JsonObject:
    schema = _schema(wire.BatchRequest)
    anything = {"description": "Anything else is answered with its own `problem`."}
    schema["properties"]["triggers"]["items"] = {"anyOf": [reference("BatchTrigger"), anything]}
    return schema


SCHEMAS: Mapping[str, JsonObject] = {
    **{
        shape.__name__: _schema(shape)
        for shape in (
            wire.TriggerRequest,
            wire.BatchTrigger,
            wire.ScoreRequest,
            wire.BackfillRequest,
            wire.MemoryRequest,
            wire.ArchiveRequest,
            wire.KeyRequest,
            wire.KeyRotation,
            wire.TenantRequest,
            wire.SecretRequest,
        )
    },
    "TenantChange": _schema(wire.TenantChange) | {"minProperties": 1},
    "BatchRequest": _batch(),
    **_decisions(),
    **_schedules(),
    **_changes(),
}
"""By the name of the type of `wire`, as the OpenAPI document's `components.schemas` has them; forms of one type have names of their own."""
_ENUMS: Mapping[frozenset[str], str] = {
    frozenset(get_args(each)): name for name, each in vars(wire).items() if get_origin(each) is Literal
}


def name_enums(document: JsonObject) -> None:
    """Have each enum of `wire` be a component of the document, and a reference to it wherever it is used.

    Generated clients make one type of it then, by the name that it has in `wire`.
    """
    schemas = document["components"]["schemas"]
    for name in _ENUMS.values():
        schemas[name] = {"title": name, "type": "string", "enum": [*get_args(getattr(wire, name))]} | schemas.get(
            name, {}
        )
    document["paths"] = _referring(document["paths"])
    named = {name: schema if name in _ENUMS.values() else _referring(schema) for name, schema in schemas.items()}
    document["components"]["schemas"] = named


def _referring(part: JsonValue) -> JsonValue:
    if isinstance(part, list):
        return [_referring(each) for each in part]
    if not isinstance(part, dict):
        return part
    values = part.get("enum")
    name = _ENUMS.get(frozenset(values)) if isinstance(values, list) else None
    if name is not None:
        return reference(name) | {key: part[key] for key in part.keys() - {"enum", "type", "title"}}
    return {key: each if key in {"example", "examples"} else _referring(each) for key, each in part.items()}
