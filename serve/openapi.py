"""What the OpenAPI document says beyond the types: responses, and the operations that read raw requests."""

from __future__ import annotations

from http import HTTPStatus
from typing import get_args

from owlclaw_ray import wire
from owlclaw_ray.domain.json import JsonObject
from serve.body_schemas import SCHEMAS, reference
from serve.events import LAST_EVENT_ID
from serve.problems import PROBLEM_JSON, TYPE_PREFIX
from serve.trigger_request import MAX_WAIT_SECONDS


def _event(fields: JsonObject, content: JsonObject) -> JsonObject:
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": content}
    return {"type": "object", "required": [*fields, "data"], "properties": {**fields, "data": data}}


_JOURNAL_EVENT = _event(
    {"id": {"type": "string", "pattern": "^[1-9][0-9]*$"}, "event": {"enum": [*get_args(wire.EventKind)]}},
    reference("Event"),
)
_END_EVENT = _event(
    {"event": {"const": "end"}},
    {"type": "object", "required": ["status"], "properties": {"status": {"enum": [*get_args(wire.RunStatus)]}}},
)
EVENT_STREAM: JsonObject = {
    "description": "Events as they are committed, then `event: end`. The schema is that of one event.",
    "content": {
        "text/event-stream": {
            "schema": {"oneOf": [_JOURNAL_EVENT, _END_EVENT]},
            "example": {
                "id": "2",
                "event": "run_started",
                "data": '{"seq":2,"kind":"run_started","at":"2026-11-03T09:30:00.020Z","data":{"epoch":1}}',
            },
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
            "schema": {"type": "integer", "minimum": 0, "maximum": LAST_EVENT_ID},
            "description": "Only events after this `id`.",
        }
    ]
}

_IDEMPOTENCY_KEY: JsonObject = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": SCHEMAS["BatchTrigger"]["properties"]["idempotency_key"],
    "description": "Makes the request safe to repeat.",
}
IDEMPOTENT: JsonObject = {"parameters": [_IDEMPOTENCY_KEY]}

TRIGGER_OPERATION: JsonObject = {
    "parameters": [
        {
            "name": "agent",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": wire.AGENT_PATTERN},
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
                "schema": reference("TriggerRequest"),
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

BATCH_OPERATION: JsonObject = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": reference("BatchRequest"),
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

DECISION_OPERATION: JsonObject = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": reference("DecisionRequest"),
                "examples": {
                    "allow": {"value": {"decision": "allow_once", "by": "ada"}},
                    "change": {"value": {"decision": "allow_once", "arguments": {"to": "ops@example.org"}}},
                    "deny": {"value": {"decision": "deny", "reason": "not on a Friday"}},
                },
            }
        },
    }
}

SCHEDULE_OPERATION: JsonObject = {
    "parameters": [TRIGGER_OPERATION["parameters"][2]],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": reference("ScheduleRequest"),
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

BACKFILL_OPERATION: JsonObject = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": reference("BackfillRequest"),
                "examples": {"day": {"value": {"since": "2026-11-02T00:00:00Z", "until": "2026-11-03T00:00:00Z"}}},
            }
        },
    }
}

_KINDS = {
    400: ("malformed-json", "the body is not JSON: unexpected character at line 1, column 14"),
    401: ("webhook-refused", "webhook of 'github' refused: the signature does not match"),
    404: ("not-found", "there is no run 'run_01kaexample'"),
    408: ("body-timeout", "the body did not come within 30 seconds (http.body_timeout_seconds)"),
    409: ("definition-error", "agents/assistant/SOUL.md: is empty (write who the agent is)"),
    413: ("body-too-large", "the body is over the limit of 1,048,576 bytes"),
    422: ("invalid-request", "body.fokus: unknown field (did you mean focus?)"),
    429: ("queue-full", "queue full: agent 'assistant' has 1,000 queued runs (limits.queued_runs)"),
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


def body(name: str) -> JsonObject:
    """Return the documentation of a JSON body: the schema and the example of that name."""
    examples = {name: {"$ref": f"#/components/examples/{name}"}}
    content = {"application/json": {"schema": reference(name), "examples": examples}}
    return {"requestBody": {"required": True, "content": content}}


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
        "content": {PROBLEM_JSON: {"schema": reference("Problem"), "example": example}},
    }
    if status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}:
        documented["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}}
    return documented
