"""Examples of the API's JSON, for its documentation. The types keep them right."""

from __future__ import annotations

from collections.abc import Mapping

from owlclaw_ray import wire
from owlclaw_ray.domain.json import JsonValue

ACCEPTED: wire.Accepted = {
    "run_id": "run_01kaexample",
    "agent": "assistant",
    "status": "queued",
    "scripted": True,
    "duplicate": False,
    "merged": False,
    "interrupted": None,
}
RUN: wire.Run = {
    "run_id": "run_01kaexample",
    "seq": 42,
    "agent": "assistant",
    "status": "completed",
    "trigger": {
        "kind": "api",
        "payload": {"symbol": "600519"},
        "focus": "看一下大盘",
        "source": "",
        "merged": 1,
        "task_type": "",
    },
    "created_at": "2026-11-03T09:30:00.000Z",
    "started_at": "2026-11-03T09:30:00.020Z",
    "finished_at": "2026-11-03T09:30:01.250Z",
    "priority": 0,
    "deadline": None,
    "cancel_requested": False,
    "interrupted_by": None,
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
        "scripted": False,
        "error": None,
    },
}
_LISTED_TRIGGER: wire.Trigger = {"kind": "api", "focus": "看一下大盘", "source": "", "merged": 1}
RUNS: wire.Runs = {"runs": [{**RUN, "trigger": _LISTED_TRIGGER}], "next_before": 42}
AGENT: wire.Agent = {
    "agent": "assistant",
    "definition": "assistant",
    "model": "gpt-4o-mini",
    "scripted": False,
    "isolation": "dedicated",
    "problem": "",
    "warnings": [],
    "runs": 12,
    "recent_outcomes": ["completed: Nothing unusual."],
    "queued_runs": 0,
    "running_run": None,
    "created_at": "2026-11-03T09:00:00.000Z",
}
AGENTS: wire.Agents = {"agents": [AGENT], "next_after": None}
SKILLS: wire.Skills = {
    "skills": [
        {
            "name": "restock",
            "description": "When to order goods, and how many.",
            "tokens": 180,
            "focus": ["stock"],
            "trigger": ["schedule_cron"],
            "task_type": "",
            "risk_level": "low",
            "requires_confirmation": False,
            "constraints": ["2 calls in 24 hours"],
            "problem": "",
        }
    ]
}
MEMORY: wire.Memory = {
    "memory_id": "mem_4f1c",
    "content": "The machine is busiest at nine.",
    "tags": ["load"],
    "created_at": "2026-11-03T09:30:01.000Z",
    "run_id": "run_01kaexample",
    "session": "",
    "count": 2,
    "also": ["The machine is busiest at nine"],
}
MEMORIES: wire.Memories = {"memories": [MEMORY], "next_after": None}
ARCHIVED_MEMORIES: wire.ArchivedMemories = {"memories": [MEMORY]}
FOUND_MEMORIES: wire.FoundMemories = {
    "memories": [{**MEMORY, "score": 0.8125, "explanation": None}],
    "degraded": False,
    "reason": "",
}
MEMORY_STATS: wire.MemoryStats = {
    "active": 1200,
    "archived": 40,
    "file_bytes": 310_000,
    "archive_bytes": 9_000,
    "index_bytes": 1_100_000,
    "oldest": "2026-01-03T09:30:01.000Z",
    "newest": "2026-11-03T09:30:01.000Z",
    "problems": [{"where": "MEMORY.md:12", "what": "the time is none", "fix": "write it as 2026-11-03T09:30:01+00:00"}],
}
NEW_MEMORY: wire.MemoryRequest = {"content": "The owner is away on Fridays.", "tags": ["owner"]}
MEMORY_CHANGE: wire.MemoryChange = {"tags": ["owner", "calendar"], "old_tags": ["owner"]}
ARCHIVING: wire.ArchiveRequest = {"memory_ids": ["mem_4f1c"]}
REINDEXED: wire.Reindexed = {"indexed": 1200}
ARTIFACTS: wire.Artifacts = {
    "artifacts": [
        {
            "artifact_id": "art_0123456789abcdef0123456789",
            "media_type": "application/json",
            "size_bytes": 48213,
            "stored_at": "2026-11-03T09:30:01.100Z",
        }
    ]
}
SCHEDULE: wire.Schedule = {
    "schedule_id": "sch_77ab",
    "agent": "assistant",
    "kind": "cron",
    "status": "active",
    "focus": "morning check",
    "cron_expression": "0 9 * * 1-5",
    "timezone": "Asia/Shanghai",
    "interval_seconds": None,
    "jitter_seconds": 0,
    "overlap": "buffer_one",
    "catch_up_seconds": None,
    "task_type": "summary",
    "next_fire_at": "2026-11-04T01:00:00.000Z",
    "created_at": "2026-11-03T09:30:01.100Z",
    "created_by_run": "run_01kaexample",
}
SCHEDULES: wire.Schedules = {"schedules": [SCHEDULE], "next_after": None}
TICKS: wire.Ticks = {
    "ticks": [
        {
            "firing_id": "fir_51d0",
            "due_at": "2026-11-03T01:00:00.000000Z",
            "last_due_at": "2026-11-03T01:00:00.000000Z",
            "count": 1,
            "outcome": "fired",
            "reason": "",
            "at": "2026-11-03T01:00:00.012Z",
            "run_id": "run_01kaexample",
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
    ],
    "next_before": None,
}
BACKFILL: wire.Backfill = {"queued": ["run_01kaexample", "run_01kbexample"], "known": 3, "refused": 0}
RING: wire.Ring = {"schedule_id": "sch_01kaexample", "at": "2026-11-04T09:30:00.000Z"}
APPROVAL: wire.Approval = {
    "approval_id": "apr_19c0",
    "status": "pending",
    "agent": "assistant",
    "role": "assistant",
    "run_id": "run_01kaexample",
    "call_id": "call_1",
    "trigger": "api",
    "source": "",
    "parent": "",
    "started_as": "",
    "tool": "mail.send",
    "description": "Send a mail.",
    "permission": "write",
    "tags": ["dangerous"],
    "reason": "dangerous tools ask",
    "arguments": {"to": "ada@example.org", "text": "行情"},
    "written": '{"to": "ada@example.org", "text": "行情"}',
    "input_schema": {"type": "object", "properties": {"to": {"type": "string"}, "text": {"type": "string"}}},
    "target": '{"to":"ada@example.org"}',
    "cwd": "",
    "hooks": [],
    "requested_at": "2026-11-03T09:30:01.000Z",
    "expires_at": "2026-11-04T09:30:01.000Z",
    "decided_at": None,
    "decision": None,
}
APPROVALS: wire.Approvals = {"approvals": [APPROVAL]}
MCP_SERVERS: wire.McpServers = {
    "servers": [
        {
            "name": "files",
            "transport": "stdio",
            "target": "npx",
            "state": "up",
            "since": "2026-11-03T09:30:01.000Z",
            "problem": "",
            "starts": 1,
            "calls": 14,
            "running": 0,
            "tools": ["mcp.files.read_file"],
            "left_out": [
                {"tool": "move", "why": "inputSchema: properties.to.oneOf: the keyword 'oneOf' is not supported"}
            ],
        }
    ]
}
LEDGER: wire.Ledger = {
    "records": [
        {
            "record_id": "rec_01",
            "agent": "assistant",
            "run_id": "run_01kaexample",
            "kind": "decision",
            "at": "2026-11-03T09:30:01.200417Z",
            "data": {"reasoning": "load is low", "decision_type": "no_action"},
            "writer": "keeper",
            "position": 7,
            "previous_hash": "9c1e…",
            "hash": "04ab…",
        }
    ],
    "next_after": None,
}
LEDGER_VERIFICATION: wire.LedgerVerification = {
    "holds": False,
    "chains": [{"writer": "keeper@host", "records": 1042, "hash": "04ab…"}],
    "breaks": [
        {
            "writer": "keeper@host",
            "position": 7,
            "kind": "changed",
            "record_id": "rec_01",
            "problem": "record rec_01 was changed",
        }
    ],
    "noted": {"heads": 12, "problems": []},
    "missing_guards": [],
}
LEDGER_HEADS: wire.LedgerHeads = {
    "heads": [
        {
            "at": "2026-11-03T09:30:01.200417Z",
            "tenant": "default",
            "writer": "keeper@host",
            "position": 1042,
            "hash": "04ab…",
        }
    ]
}
WEBHOOK_SOURCES: wire.WebhookSources = {
    "sources": [
        {
            "source": "github",
            "path": "/v1/webhooks/github",
            "agent": "assistant:{body.repository.name}",
            "signature_header": "X-Hub-Signature-256",
            "algorithm": "sha256",
            "window_seconds": None,
            "dedupe": "{header.X-GitHub-Delivery}",
        }
    ]
}
DELIVERY: wire.FullDelivery = {
    "delivery_id": "whd_0123456789abcdef0123456789",
    "source": "github",
    "status": "unmapped",
    "reason": "the body has nothing at 'issue.number'",
    "agent": None,
    "run_id": None,
    "received_at": "2026-11-03T09:30:00.000Z",
    "headers": {"x-github-event": "ping"},
    "body": '{"zen":"Keep it logically awesome."}',
    "repeatable": True,
}
DELIVERIES: wire.Deliveries = {
    "deliveries": [
        {
            "delivery_id": "whd_0123456789abcdef0123456789",
            "source": "github",
            "status": "triggered",
            "reason": "",
            "agent": "assistant:owlclaw",
            "run_id": "run_01kaexample",
            "received_at": "2026-11-03T09:30:00.000Z",
        }
    ]
}
WEBHOOK_RECEIPT: wire.WebhookReceipt = {
    "delivery_id": "whd_0123456789abcdef0123456789",
    "status": "triggered",
    "run_id": "run_01kaexample",
    "duplicate": False,
    "reason": "",
}
CALLBACK: wire.Callback = {
    "callback_id": "cb_0123456789abcdef0123456789",
    "run_id": "run_01kaexample",
    "agent": "assistant",
    "url": "https://example.org/runs",
    "status": "dead",
    "attempts": 10,
    "problem": "the receiver answered 503",
    "created_at": "2026-11-03T09:30:00.000Z",
    "tried_at": "2026-11-03T10:56:00.000Z",
    "next_try_at": None,
    "delivered_at": None,
}
CALLBACKS: wire.Callbacks = {"callbacks": [CALLBACK]}
BATCH_RESULTS: wire.BatchResults = {
    "results": [
        {"status": 202, "accepted": ACCEPTED, "problem": None},
        {
            "status": 404,
            "accepted": None,
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
}
SCORE_REQUEST: wire.ScoreRequest = {"name": "helpful", "value": 0.9, "comment": "answered at once"}
SCORE: wire.Score = {
    "score_id": "score_0123456789abcdef0123456789",
    "run_id": "run_01kaexample",
    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    "name": "helpful",
    "value": 0.9,
    "comment": "answered at once",
}
ALIVE: wire.Liveness = {"status": "ok"}
READY: wire.Health = {"ready": True, "parts": {"store": "ok", "directory": "ok"}}
NOT_READY: wire.Health = {"ready": False, "parts": {"store": "ok", "directory": "starting"}}

EXAMPLES: Mapping[str, Mapping[str, JsonValue]] = {
    "Accepted": {"value": ACCEPTED},
    "Run": {"value": RUN},
    "Runs": {"value": RUNS},
    "Agent": {"value": AGENT},
    "Agents": {"value": AGENTS},
    "Skills": {"value": SKILLS},
    "Memory": {"value": MEMORY},
    "Memories": {"value": MEMORIES},
    "ArchivedMemories": {"value": ARCHIVED_MEMORIES},
    "FoundMemories": {"value": FOUND_MEMORIES},
    "MemoryStats": {"value": MEMORY_STATS},
    "MemoryRequest": {"value": NEW_MEMORY},
    "MemoryChange": {"value": MEMORY_CHANGE},
    "ArchiveRequest": {"value": ARCHIVING},
    "Reindexed": {"value": REINDEXED},
    "Artifacts": {"value": ARTIFACTS},
    "Schedule": {"value": SCHEDULE},
    "Schedules": {"value": SCHEDULES},
    "Ticks": {"value": TICKS},
    "Backfill": {"value": BACKFILL},
    "Ring": {"value": RING},
    "Approval": {"value": APPROVAL},
    "Approvals": {"value": APPROVALS},
    "McpServers": {"value": MCP_SERVERS},
    "Ledger": {"value": LEDGER},
    "LedgerVerification": {"value": LEDGER_VERIFICATION},
    "LedgerHeads": {"value": LEDGER_HEADS},
    "WebhookSources": {"value": WEBHOOK_SOURCES},
    "FullDelivery": {"value": DELIVERY},
    "Deliveries": {"value": DELIVERIES},
    "WebhookReceipt": {"value": WEBHOOK_RECEIPT},
    "Callback": {"value": CALLBACK},
    "Callbacks": {"value": CALLBACKS},
    "BatchResults": {"value": BATCH_RESULTS},
    "ScoreRequest": {"value": SCORE_REQUEST},
    "Score": {"value": SCORE},
    "Liveness": {"value": ALIVE},
    "Health": {"value": READY},
    "NotReady": {"value": NOT_READY},
}
"""By the name of the type, as the OpenAPI document's `components.examples` has them."""
