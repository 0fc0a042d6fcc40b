"""What the OpenAPI document says beyond the types: responses, and the operations that read raw requests."""

from __future__ import annotations

from http import HTTPStatus

from pydantic import TypeAdapter

from owlclaw_ray import wire
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.schedule import (
    MAX_DELAY_SECONDS,
    MAX_INTERVAL_SECONDS,
    MAX_JITTER_SECONDS,
    MIN_INTERVAL_SECONDS,
)
from owlclaw_ray.domain.trigger import HIGHEST_PRIORITY, LONGEST_DEADLINE, LOWEST_PRIORITY
from serve.approval_request import MAX_BY, MAX_REASON
from serve.problems import PROBLEM_JSON, TYPE_PREFIX
from serve.trigger_request import MAX_BATCH, MAX_FOCUS, MAX_WAIT_SECONDS

EVENT_STREAM: JsonObject = {
    "description": "Events as they are committed, then `event: end`",
    "content": {
        "text/event-stream": {
            "schema": {"type": "string"},
            "example": (
                'id: 2\nevent: run_started\ndata: {"seq":2,"kind":"run_started","at":"2026-11-03T09:30:00.020Z",'
                '"data":{"epoch":1}}\n\nevent: end\ndata: {"status":"completed"}\n\n'
            ),
        }
    },
}
METRICS: JsonObject = {
    "description": "The text format of Prometheus",
    "content": {
        "text/plain": {
            "schema": {"type": "string"},
            "example": '# TYPE owlclaw_runs gauge\nowlclaw_runs{status="queued"} 3.0\n',
        }
    },
}
ARTIFACT: JsonObject = {
    "description": "The output, whole up to 10 MiB",
    "content": {
        "text/plain": {"schema": {"type": "string"}, "example": "line 1\nline 2\n"},
        "application/json": {"schema": {}, "example": {"rows": [1, 2, 3]}},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}, "example": "…"},
    },
}
EVENTS_OPERATION: JsonObject = {
    "parameters": [
        {
            "name": "Last-Event-ID",
            "in": "header",
            "required": False,
            "schema": {"type": "integer", "minimum": 0},
            "description": "Only events after this `id`.",
        }
    ]
}

_TRIGGER_SCHEMA = TypeAdapter(wire.TriggerRequest).json_schema()
_TRIGGER_SCHEMA["additionalProperties"] = False
_TRIGGER_SCHEMA["properties"]["focus"]["maxLength"] = MAX_FOCUS
_TRIGGER_SCHEMA["properties"]["kind"]["default"] = "api"
_TRIGGER_SCHEMA["properties"]["busy"]["default"] = "enqueue"
_TRIGGER_SCHEMA["properties"]["priority"] |= {"minimum": LOWEST_PRIORITY, "maximum": HIGHEST_PRIORITY, "default": 0}
_TRIGGER_SCHEMA["properties"]["deadline_seconds"] |= {"exclusiveMinimum": 0, "maximum": LONGEST_DEADLINE}

_IDEMPOTENCY_KEY: JsonObject = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    "description": "Makes the request safe to repeat.",
}
IDEMPOTENT: JsonObject = {"parameters": [_IDEMPOTENCY_KEY]}

TRIGGER_OPERATION: JsonObject = {
    "parameters": [
        {
            "name": "agent",
            "in": "path",
            "required": True,
            "schema": {"type": "string"},
            "description": "`definition` or `definition:key`.",
            "example": "assistant",
        },
        {
            "name": "wait",
            "in": "query",
            "required": False,
            "schema": {"type": "number", "minimum": 0, "maximum": MAX_WAIT_SECONDS},
            "description": "Wait up to so many seconds for the outcome.",
        },
        _IDEMPOTENCY_KEY,
        {
            "name": "traceparent",
            "in": "header",
            "required": False,
            "schema": {"type": "string"},
            "description": "The span that the run belongs under (W3C Trace Context).",
            "example": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        },
    ],
    "requestBody": {
        "required": False,
        "content": {
            "application/json": {
                "schema": _TRIGGER_SCHEMA,
                "examples": {
                    "payload": {"value": {"payload": {"symbol": "600519"}, "focus": "看一下大盘"}},
                    "event": {"value": {"kind": "event", "payload": {"name": "order.filled", "id": 17}}},
                    "urgent": {"value": {"busy": "interrupt", "priority": 5, "deadline_seconds": 60}},
                    "nothing": {"value": {}},
                },
            }
        },
    },
}

_BATCH_TRIGGER = TypeAdapter(wire.BatchTrigger).json_schema()
BATCH_OPERATION: JsonObject = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["triggers"],
                    "additionalProperties": False,
                    "properties": {
                        "triggers": {
                            "type": "array",
                            "minItems": 1,
                            "maxItems": MAX_BATCH,
                            "items": {
                                **_TRIGGER_SCHEMA,
                                "title": "BatchTrigger",
                                "description": _BATCH_TRIGGER["description"],
                                "required": ["agent"],
                                "properties": {
                                    **_TRIGGER_SCHEMA["properties"],
                                    "agent": {"type": "string"},
                                    "idempotency_key": {"type": "string", "minLength": 1, "maxLength": 255},
                                },
                            },
                        }
                    },
                },
                "example": {
                    "triggers": [
                        {"agent": "assistant:1", "payload": {"order": 1}, "idempotency_key": "order-1"},
                        {"agent": "assistant:2", "payload": {"order": 2}, "idempotency_key": "order-2"},
                    ]
                },
            }
        },
    }
}
WEBHOOK_OPERATION: JsonObject = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {}, "example": {"action": "opened", "issue": {"number": 17}}}},
    }
}

_DECISION_SCHEMA = TypeAdapter(wire.DecisionRequest).json_schema()
_DECISION_SCHEMA["additionalProperties"] = False
_DECISION_SCHEMA["properties"]["reason"]["maxLength"] = MAX_REASON
_DECISION_SCHEMA["properties"]["by"]["maxLength"] = MAX_BY

DECISION_OPERATION: JsonObject = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": _DECISION_SCHEMA,
                "examples": {
                    "allow": {"value": {"decision": "allow_once", "by": "ada"}},
                    "change": {"value": {"decision": "allow_once", "arguments": {"to": "ops@example.org"}}},
                    "deny": {"value": {"decision": "deny", "reason": "not on a Friday"}},
                },
            }
        },
    }
}

_SCHEDULE_SCHEMA = TypeAdapter(wire.ScheduleRequest).json_schema()
_SCHEDULE_SCHEMA["additionalProperties"] = False
_SCHEDULE_SCHEMA["properties"]["focus"] |= {"minLength": 1, "maxLength": MAX_FOCUS}
_SCHEDULE_SCHEMA["properties"]["at"]["format"] = "date-time"
_SCHEDULE_SCHEMA["properties"]["delay_seconds"] |= {"exclusiveMinimum": 0, "maximum": MAX_DELAY_SECONDS}
_SCHEDULE_SCHEMA["properties"]["interval_seconds"] |= {
    "minimum": MIN_INTERVAL_SECONDS,
    "maximum": MAX_INTERVAL_SECONDS,
}
_SCHEDULE_SCHEMA["properties"]["timezone"]["default"] = "UTC"
_SCHEDULE_SCHEMA["properties"]["jitter_seconds"] |= {"minimum": 0, "maximum": MAX_JITTER_SECONDS, "default": 0}
_SCHEDULE_SCHEMA["properties"]["overlap"]["default"] = "buffer_one"

SCHEDULE_OPERATION: JsonObject = {
    "parameters": [TRIGGER_OPERATION["parameters"][2]],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": _SCHEDULE_SCHEMA,
                "examples": {
                    "once": {"value": {"focus": "is the order filled?", "delay_seconds": 300}},
                    "interval": {"value": {"focus": "look around", "interval_seconds": 900, "jitter_seconds": 60}},
                    "cron": {
                        "value": {
                            "focus": "看一下大盘",
                            "cron_expression": "0 9 * * MON-FRI",
                            "timezone": "Asia/Shanghai",
                            "overlap": "skip",
                        }
                    },
                },
            }
        },
    },
}

_BACKFILL_SCHEMA = TypeAdapter(wire.BackfillRequest).json_schema()
_BACKFILL_SCHEMA["additionalProperties"] = False
for _name in ("since", "until"):
    _BACKFILL_SCHEMA["properties"][_name]["format"] = "date-time"

BACKFILL_OPERATION: JsonObject = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": _BACKFILL_SCHEMA,
                "examples": {"day": {"value": {"since": "2026-11-02T00:00:00Z", "until": "2026-11-03T00:00:00Z"}}},
            }
        },
    }
}

_KINDS = {
    400: ("malformed-json", "the body is not JSON: unexpected character at line 1, column 14"),
    401: ("webhook-refused", "webhook of 'github' refused: the signature does not match"),
    404: ("not-found", "there is no run 'run_01kaexample'"),
    409: ("definition-error", "agents/assistant/SOUL.md: is empty (write who the agent is)"),
    413: ("body-too-large", "the body is over the limit of 1,048,576 bytes"),
    422: ("invalid-request", "body.fokus: unknown field (did you mean focus?)"),
    429: ("queue-full", "1000 runs of agent 'assistant' are queued, and no more may be (limits.queued_runs)"),
    500: ("unexpected", "the server failed in a way that is not foreseen; its log has the details"),
    503: ("runtime-unavailable", "the runtime is starting"),
}


def answer(description: str, shape: type, *, example: str = "", location: bool = False) -> JsonObject:
    """Return the documentation of a JSON response of a type of `wire`, with the example of that name or the type's own."""
    name = example or shape.__name__
    documented: JsonObject = {
        "model": shape,
        "description": description,
        "content": {"application/json": {"examples": {name: {"$ref": f"#/components/examples/{name}"}}}},
    }
    if location:
        documented["headers"] = {"Location": {"schema": {"type": "string"}, "description": "The run's path"}}
    return documented


def body(shape: type, name: str, *limited: tuple[str, JsonObject]) -> JsonObject:
    """Return the documentation of a JSON body of a type of `wire`, with the example of that name; `limited` adds to its fields."""
    schema = TypeAdapter(shape).json_schema()
    schema["additionalProperties"] = False
    for field, limits in limited:
        schema["properties"][field] |= limits
    examples = {name: {"$ref": f"#/components/examples/{name}"}}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": examples}}}
    }


def problems(*statuses: int) -> dict[int | str, JsonObject]:
    """Return the documentation of problem responses."""
    return {status: _problem(status) for status in statuses}


def _problem(status: int) -> JsonObject:
    kind, detail = _KINDS[status]
    example = {
        "type": TYPE_PREFIX + kind,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": "/v1/…",
    }
    documented: JsonObject = {
        "description": HTTPStatus(status).phrase,
        "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}},
    }
    if status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}:
        documented["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}}
    return documented
