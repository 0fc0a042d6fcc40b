"""Examples of the API's JSON, for its documentation: of each type of `wire` what is worth showing, completed from the type itself."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints

from msgspec import convert
from typing_extensions import is_typeddict

from owlclaw_ray import wire
from owlclaw_ray.domain.json import JsonObject, JsonValue

_FIELDS: JsonObject = {
    "run_id": "run_01kaexample",
    "agent": "assistant",
    "created_at": "2026-11-03T09:30:00.000Z",
    "delivery_id": "whd_0123456789abcdef0123456789",
    "received_at": "2026-11-03T09:30:00.000Z",
}
"""What a required field of that name is, wherever nothing else is said."""

_MEMORY: JsonObject = {
    "memory_id": "mem_4f1c",
    "content": "The machine is busiest at nine.",
    "tags": ["load"],
    "created_at": "2026-11-03T09:30:01.000Z",
    "count": 2,
    "also": ["The machine is busiest at nine"],
}
_KEY: JsonObject = {
    "key_id": "4fT0aQ1z",
    "tenant": "default",
    "name": "ci",
    "scopes": ["runs:read", "runs:write"],
    "agents": ["agent:trader:*"],
    "created_by": "system:local",
    "expires_at": "2027-02-01T09:30:00.000Z",
}
_TENANT: JsonObject = {
    "tenant": "acme",
    "name": "Acme",
    "status": "active",
    "weight": 3,
    "quotas": {"open_runs": 500},
    "retention": {"webhook_days": 30},
    "callback_networks": ["10.1.0.0/16"],
    "created_by": "key:4fT0aQ1z (operations)",
}
_SCORE: JsonObject = {"name": "helpful", "value": 0.9, "comment": "answered at once"}
_SAID: Mapping[Any, JsonObject] = {
    wire.Accepted: {"scripted": True},
    wire.Run: {
        "status": "completed",
        "trigger": {"payload": {"symbol": "600519"}, "focus": "看一下大盘", "merged": 1, "task_type": ""},
        "started_at": "2026-11-03T09:30:00.020Z",
        "finished_at": "2026-11-03T09:30:01.250Z",
        "result": {
            "status": "completed",
            "turns": 2,
            "tool_calls": 1,
            "final_text": "Nothing unusual.",
            "tools_called": ["query_state"],
            "duration_ms": 1230,
            "tokens": {"prompt": 900, "completion": 60, "cached": 512},
            "cost": 0.0021,
            "model": "gpt-4o-mini",
        },
    },
    wire.Runs: {
        "runs": [{"trigger": {"focus": "看一下大盘", "merged": 1}}],
        "next_before": "run_01kaexample",
        "searched_to": None,
    },
    wire.Agent: {
        "definition": "assistant",
        "model": "gpt-4o-mini",
        "isolation": "dedicated",
        "runs": 12,
        "recent_outcomes": ["completed: Nothing unusual."],
        "created_at": "2026-11-03T09:00:00.000Z",
    },
    wire.Agents: {},
    wire.Skills: {
        "skills": [
            {
                "name": "restock",
                "description": "When to order goods, and how many.",
                "tokens": 180,
                "focus": ["stock"],
                "trigger": ["schedule_cron"],
                "constraints": ["2 calls in 24 hours"],
            }
        ]
    },
    wire.Memory: _MEMORY,
    wire.Memories: {},
    wire.ArchivedMemories: {},
    wire.FoundMemories: {"memories": [_MEMORY | {"score": 0.8125}]},
    wire.MemoryStats: {
        "active": 1200,
        "archived": 40,
        "file_bytes": 310000,
        "archive_bytes": 9000,
        "index_bytes": 1100000,
        "oldest": "2026-01-03T09:30:01.000Z",
        "newest": "2026-11-03T09:30:01.000Z",
        "problems": [
            {"where": "MEMORY.md:12", "what": "the time is none", "fix": "write it as 2026-11-03T09:30:01+00:00"}
        ],
    },
    wire.MemoryRequest: {"content": "The owner is away on Fridays.", "tags": ["owner"]},
    wire.MemoryChange: {"tags": ["owner", "calendar"], "old_tags": ["owner"]},
    wire.MemoryImported: {"put_back": ["mem_4f1c"]},
    wire.ArchiveImported: {"added": ["mem_4f1c"]},
    wire.ArchiveRequest: {"memory_ids": ["mem_4f1c"]},
    wire.Reindexed: {"indexed": 1200},
    wire.Artifacts: {
        "artifacts": [
            {
                "artifact_id": "art_0123456789abcdef0123456789",
                "media_type": "application/json",
                "size_bytes": 48213,
                "stored_at": "2026-11-03T09:30:01.100Z",
            }
        ]
    },
    wire.Schedule: {
        "schedule_id": "sch_77ab",
        "kind": "cron",
        "focus": "morning check",
        "cron_expression": "0 9 * * 1-5",
        "timezone": "Asia/Shanghai",
        "task_type": "summary",
        "next_fire_at": "2026-11-04T01:00:00.000Z",
        "created_at": "2026-11-03T09:30:01.100Z",
        "created_by_run": "run_01kaexample",
    },
    wire.Schedules: {},
    wire.Ticks: {
        "ticks": [
            {
                "firing_id": "fir_51d0",
                "due_at": "2026-11-03T01:00:00.000000Z",
                "last_due_at": "2026-11-03T01:00:00.000000Z",
                "count": 1,
                "at": "2026-11-03T01:00:00.012Z",
            },
            {
                "firing_id": "fir_9e27",
                "due_at": "2026-10-30T01:00:00.000000Z",
                "last_due_at": "2026-11-02T01:00:00.000000Z",
                "count": 2,
                "outcome": "skipped",
                "reason": "the schedule was paused",
                "at": "2026-11-02T08:00:00.000Z",
                "run_id": None,
            },
        ]
    },
    wire.Backfill: {"queued": ["run_01kaexample", "run_01kbexample"], "known": 3},
    wire.Ring: {"schedule_id": "sch_01kaexample", "at": "2026-11-04T09:30:00.000Z"},
    wire.Approval: {
        "approval_id": "apr_19c0",
        "role": "assistant",
        "call_id": "call_1",
        "tool": "mail.send",
        "description": "Send a mail.",
        "permission": "write",
        "tags": ["dangerous"],
        "reason": "dangerous tools ask",
        "arguments": {"to": "ada@example.org", "text": "行情"},
        "written": '{"to": "ada@example.org", "text": "行情"}',
        "input_schema": {"type": "object", "properties": {"to": {"type": "string"}, "text": {"type": "string"}}},
        "target": '{"to":"ada@example.org"}',
        "requested_at": "2026-11-03T09:30:01.000Z",
        "expires_at": "2026-11-04T09:30:01.000Z",
    },
    wire.AccessKey: _KEY,
    wire.KeyDetails: _KEY | {"use": {"open_runs": 17}},
    wire.AccessKeys: {"keys": [{}]},
    wire.IssuedKey: {"key": "owl_4fT0aQ1z_…", "about": {}},
    wire.KeyRequest: {"name": "ci", "scopes": ["operator"], "agents": ["agent:trader:*"], "days": 30},
    wire.KeyRotation: {"grace_seconds": 3_600},
    wire.Tenant: _TENANT,
    wire.TenantDetails: _TENANT | {"use": {"open_runs": 17}},
    wire.Tenants: {"tenants": [{}]},
    wire.TenantDeletion: {
        "by": "key:4fT0aQ1z (operations)",
        "removed": {"files of data_dir": 40, "journal": 8_120, "runs": 1_204},
        "left": {},
        "unreached": [],
    },
    wire.TenantRequest: {"tenant": "acme", "name": "Acme", "weight": 3},
    wire.TenantChange: {"status": "suspended"},
    wire.Approvals: {},
    wire.McpServers: {
        "servers": [
            {
                "name": "files",
                "target": "npx",
                "state": "up",
                "since": "2026-11-03T09:30:01.000Z",
                "starts": 1,
                "calls": 14,
                "tenants": ["acme"],
                "tools": ["mcp.files.read_file"],
                "left_out": [
                    {"tool": "move", "why": "inputSchema: properties.to.oneOf: the keyword 'oneOf' is not supported"}
                ],
            }
        ]
    },
    wire.Nodes: {
        "nodes": [
            {
                "node_id": "4c1f0a…",
                "name": "worker-1",
                "address": "10.0.0.5",
                "state": "active",
                "cpus": 8,
                "slots": [{"name": "tool_slots", "total": 16, "available": 13}],
                "parts": ["root", "keeper", "gateway"],
                "missing": [],
                "clock": {"skew": 0.0012, "uncertainty": 0.0004},
                "report": {
                    "versions": {"python": "3.11.9", "ray": "2.60.0", "owlclaw": "1.0.0", "platform": "Linux x86_64"},
                    "memory": 33554432000,
                    "data_dir": {"path": "/srv/shop/.owlclaw", "free": 90000000000, "total": 120000000000},
                    "ray_dir": {"path": "/var/lib/ray", "free": 90000000000, "total": 120000000000},
                    "load": {"hosts": 4, "agents": 120, "running": 7, "memory_used": 0.41, "store_seconds": 0.0011},
                    "variables": [{"name": "RAY_AUTH_MODE", "value": "token"}],
                    "application": "9c1e03ab77f20d15",
                },
            }
        ],
        "missing": [],
        "lease": {"cluster": "session_2026-11-03@10.0.0.4:6379", "held": True, "generation": 3, "others": []},
    },
    wire.UsageReport: {
        "since": "2026-11-03T00:00:00.000Z",
        "until": "2026-11-04T00:00:00.000Z",
        "grain": "total",
        "by": "agent",
        "complete": True,
        "runs": [
            {
                "definition": "assistant",
                "runs": 12,
                "outcomes": {"completed": 11, "failed": 1},
                "cost": 0.0252,
                "tokens": {"prompt": 10800, "completion": 720, "cached": 6144},
                "queued_ms": 240,
                "running_ms": 14760,
            }
        ],
    },
    wire.Ledger: {
        "records": [
            {
                "record_id": "rec_01",
                "kind": "decision",
                "at": "2026-11-03T09:30:01.200417Z",
                "data": {"reasoning": "load is low", "decision_type": "no_action"},
                "writer": "keeper",
                "position": 7,
                "previous_hash": "9c1e…",
                "hash": "04ab…",
            }
        ]
    },
    wire.LedgerVerification: {
        "chains": [{"writer": "keeper@host", "records": 1042, "hash": "04ab…"}],
        "breaks": [
            {"writer": "keeper@host", "position": 7, "record_id": "rec_01", "problem": "record rec_01 was changed"}
        ],
        "noted": {"heads": 12},
    },
    wire.LedgerHeads: {
        "heads": [
            {
                "at": "2026-11-03T09:30:01.200417Z",
                "tenant": "default",
                "writer": "keeper@host",
                "position": 1042,
                "hash": "04ab…",
            }
        ]
    },
    wire.WebhookSources: {
        "sources": [
            {
                "source": "github",
                "path": "/v1/webhooks/github",
                "agent": "assistant:{body.repository.name}",
                "signature_header": "X-Hub-Signature-256",
                "algorithm": "sha256",
                "dedupe": "{header.X-GitHub-Delivery}",
            }
        ]
    },
    wire.FullDelivery: {
        "source": "github",
        "status": "unmapped",
        "reason": "the body has nothing at 'issue.number'",
        "agent": None,
        "run_id": None,
        "headers": {"x-github-event": "ping"},
        "body": '{"zen":"Keep it logically awesome."}',
        "repeatable": True,
    },
    wire.Deliveries: {"deliveries": [{"source": "github", "agent": "assistant:owlclaw"}]},
    wire.WebhookReceipt: {},
    wire.Callback: {
        "callback_id": "cb_0123456789abcdef0123456789",
        "url": "https://example.org/runs",
        "status": "dead",
        "attempts": 10,
        "problem": "the receiver answered 503",
        "tried_at": "2026-11-03T10:56:00.000Z",
    },
    wire.Callbacks: {},
    wire.CallbackSecrets: {"secrets": ["whsec_u5mkJxvX0OqGZ3h4bWcVbYt7f6d2Xl1QyPz8sRkTnEo="]},
    wire.SecretRequest: {"value": "pat-eu1-0123456789", "by": "ada"},
    wire.Secret: {"name": "CRM_TOKEN", "key_id": "5e8f9a1b2c3d", "created_by": "ada"},
    wire.Secrets: {},
    wire.SecretRotation: {"rotated": 3},
    wire.BatchResults: {
        "results": [
            {"status": 202, "accepted": {}},
            {
                "status": 404,
                "problem": {
                    "type": "urn:owlclaw:problem:unknown-agent",
                    "title": "No such agent",
                    "status": 404,
                    "detail": "there is no agent definition for 'nobody'",
                    "instance": "/v1/triggers:batch",
                    "agent": "nobody",
                    "known": ["assistant"],
                },
            },
        ]
    },
    wire.ScoreRequest: _SCORE,
    wire.Score: _SCORE
    | {"score_id": "score_0123456789abcdef0123456789", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"},
    wire.Liveness: {},
    wire.Health: {"status": "ready", "ready": True, "parts": {"store": "ok", "directory": "ok"}},
}
"""Of each type what its example shows. What is left out of a required field is `_FIELDS`, or empty."""


def example_of(shape: Any, said: JsonObject) -> JsonObject:
    """Return an object of a TypedDict of `wire`: what is said here, else of its type, else of the names of its required fields.

    Raises TypeError, or msgspec's ValidationError, if that does not fit the type.
    """
    hints, plain = get_type_hints(shape, include_extras=True), get_type_hints(shape)
    said = _SAID.get(shape, {}) | said
    if unknown := said.keys() - hints.keys():
        raise TypeError(f"{shape.__name__} has no fields {unknown}")
    required = {name for name, hint in hints.items() if get_origin(hint) is not NotRequired}
    given = {name: _FIELDS[name] for name in _FIELDS.keys() & required} | said
    found = {
        name: _completed(plain[name], given[name]) if name in given else _empty(plain[name])
        for name in hints
        if name in given or name in required
    }
    convert(found, shape)
    return found


def _completed(hint: Any, value: JsonValue) -> JsonValue:
    """Return the value of a field, with what is not said of the objects in it."""
    for kind in get_args(hint) if NoneType in get_args(hint) else (hint,):
        if isinstance(value, dict) and is_typeddict(kind):
            return example_of(kind, value)
    if isinstance(value, list) and is_typeddict(get_args(hint)[0]):
        return [example_of(get_args(hint)[0], each) for each in value]
    return value


def _empty(hint: Any) -> JsonValue:
    """Return what a required field is of which nothing is said; a list holds the example of its type, if there is one."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if NoneType in parts:
        return None
    if kind is Literal:
        return parts[0]
    if kind is list and parts[0] in _SAID:
        return [example_of(parts[0], {})]
    return example_of(kind, {}) if is_typeddict(kind) else kind()


EXAMPLES: Mapping[str, Mapping[str, JsonValue]] = {
    **{shape.__name__: {"value": example_of(shape, {})} for shape in _SAID},
    "NotReady": {
        "value": example_of(
            wire.Health, {"status": "not_ready", "ready": False, "parts": {"store": "ok", "directory": "starting"}}
        )
    },
}
"""By the name of the type, as the OpenAPI document's `components.examples` has them."""
