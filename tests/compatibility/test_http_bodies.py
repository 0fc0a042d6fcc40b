"""HTTP bodies of sample objects are what they were when `http_bodies.json` was written, byte for byte and key by key in order.

A body that changes on purpose changes that file in the same commit, and clients are told.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from owlclaw_ray.access.keys import IssuedKey
from owlclaw_ray.domain.access_key import AccessKey
from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.approval import Allowance, Approval, ApprovalDecision, ApprovalRequest, ApprovalStatus, Decision
from owlclaw_ray.domain.artifact import StoredArtifact
from owlclaw_ray.domain.callback import Callback, CallbackStatus
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonText
from owlclaw_ray.domain.ledger import BreakKind, ChainBreak, ChainedRecord, LedgerKind, LedgerRecord
from owlclaw_ray.domain.memory import Memory, MemoryStats, Recall, ScoredMemory, ScoreParts
from owlclaw_ray.domain.quota import Quotas, QuotaUse
from owlclaw_ray.domain.retention import Retention
from owlclaw_ray.domain.run import Run, RunError, RunResult, RunStatus, Usage
from owlclaw_ray.domain.schedule import (
    Backfill,
    OverlapPolicy,
    Schedule,
    ScheduleKind,
    ScheduleStatus,
    Tick,
    TickOutcome,
)
from owlclaw_ray.domain.score import Judgement, Score
from owlclaw_ray.domain.secret import Secret
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.domain.tenant import Deletion, Tenant, TenantStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.domain.usage import RunBucket, RunCounts, ToolBucket, ToolCounts
from owlclaw_ray.domain.webhook import Delivery, DeliveryStatus, Mapping, SignatureForm, WebhookSource
from owlclaw_ray.errors import Problem
from owlclaw_ray.ids import (
    AgentId,
    ApprovalId,
    ArtifactId,
    CallbackId,
    DeliveryId,
    FiringId,
    KeyId,
    MemoryId,
    RecordId,
    RunId,
    ScheduleId,
    TenantId,
    ToolCallId,
)
from owlclaw_ray.runtime.api import AgentView, LedgerVerification
from owlclaw_ray.schedules.api import Alarm
from owlclaw_ray.store.commands import DeliveryStored, RunAccepted
from owlclaw_ray.store.queries import AgentRecord, LedgerChain
from owlclaw_ray.tools.mcp.api import LeftOut, McpServerView, McpState
from serve import representations as bodies
from tests.serve.double import CLUSTER

PINNED = Path(__file__).parent / "http_bodies.json"
TENANT = TenantId("default")
AGENT = AgentRef.parse("assistant:alice")

AT = datetime(2026, 11, 3, 9, 30, 0, 250_417, tzinfo=UTC)
LATER = datetime(2026, 11, 3, 17, 30, 1, tzinfo=timezone(timedelta(hours=8)))

RESULT = RunResult(
    RunStatus.FAILED,
    turns=2,
    tool_calls=3,
    final_text="没有 “found”",
    tools_called=("a", "shop.b", "a"),
    duration_ms=1230,
    usage=Usage(900, 60, 512, 0.0021),
    model="gpt-4o-mini",
    scripted=True,
    error=RunError("ModelError", "no model answered", retryable=True),
)
PLAIN_RUN = Run(RunId("run_1"), 7, AGENT, Trigger(TriggerKind.API), RunStatus.QUEUED, AT)
FULL_RUN = Run(
    RunId("run_2"),
    8,
    AGENT,
    Trigger(
        TriggerKind.SCHEDULE_CRON,
        {"b": [1, 2.5, None], "a": "行情"},
        "看一下大盘",
        "sch_1",
        merged=3,
        traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        task_type="summary",
        session="s 1",
        user="ada",
    ),
    RunStatus.FAILED,
    AT,
    started_at=LATER,
    finished_at=LATER + timedelta(seconds=1),
    cancel_requested=True,
    result=RESULT,
    priority=-3,
    deadline=LATER,
    interrupted_by=RunId("run_9"),
    awaits=(RunId("run_5"),),
)
LARGE_RUN = Run(
    RunId("run_3"), 9, AGENT, Trigger(TriggerKind.EVENT, JsonText('{"x" :1}'), user="bo"), RunStatus.RUNNING, AT
)
ACCEPTED = RunAccepted(RunId("run_1"), 7, AGENT)
REPEATED = RunAccepted(RunId("run_1"), 7, AGENT, True, True, RunId("run_0"), True, True)
KEY = AccessKey(
    KeyId("4fT0aQ1z"),
    TENANT,
    "看门人",
    "ab" * 32,
    ("runs:read",),
    ("agent:trader:*",),
    AT,
    "system:local",
    LATER,
    previous_until=LATER,
)
DELIVERY = Delivery(DeliveryId("whd_1"), TENANT, "github", "rec_1", AT, DeliveryStatus.UNMAPPED, "the body has nothing")
HANDLED = Delivery(
    DeliveryId("whd_2"),
    TENANT,
    "github",
    "rec_2",
    LATER,
    DeliveryStatus.HANDLED,
    agent=AGENT,
    run_id=RunId("run_1"),
    headers={"x-github-event": "ping", "x-count": 3},
    body='{"zen":"行"}',
    whole=True,
)
MEMORY = Memory(
    MemoryId("mem_1"), "看 busy at nine", ("load", "行"), AT, "run_1", "s1", 2, (MemoryId("mem_0"),), ("a", "b")
)
PLAIN_MEMORY = Memory(MemoryId("mem_2"), "away", (), LATER)
PARTS = ScoreParts(0.123456, 0.5, 0.4, 0.01, None, 0.98765432, day=0.1)
REQUEST = ApprovalRequest(
    ApprovalId("apr_1"),
    AGENT,
    RunId("run_1"),
    ToolCallId("call_1"),
    "mail.send",
    "Send a mail.",
    "write",
    ("dangerous",),
    "dangerous tools ask",
    {"to": "ada@example.org"},
    '{"to": "ada@example.org"}',
    {"type": "object"},
    '{"to":"ada@example.org"}',
    AT,
    LATER,
    trigger="api",
)
CHILD_REQUEST = ApprovalRequest(
    ApprovalId("apr_2"),
    AGENT,
    RunId("run_2"),
    ToolCallId("call_2"),
    "files.read",
    "Read.",
    "readonly",
    (),
    "asks",
    {},
    "",
    {},
    "t",
    AT,
    LATER,
    "/home/x",
    ({"hook": "h", "did": "deny"},),
    "agent",
    "run_1",
    "lead",
    "sub_agent",
)
SKILL = Skill(
    "restock", "When to order.", "/a/SKILL.md", 180, ("stock",), ("schedule_cron",), "summary", "high", True, "no"
)
STATE = AgentState(runs=12, recent_outcomes=("completed: Nothing", "failed: x"))
RECORD = AgentRecord(AGENT, 3, None, STATE, AT, 2, RunId("run_1"))
CHAINED = ChainedRecord(
    LedgerRecord(
        RecordId("rec_1"), TENANT, AgentId("assistant"), RunId("run_1"), LedgerKind.DECISION, AT, {"why": "负载低"}
    ),
    "keeper",
    7,
    "9c1e",
    "04ab",
)
VERIFIED = LedgerVerification(
    (LedgerChain("keeper@host", 1042, "04ab"),),
    (
        ChainBreak(TENANT, "keeper@host", 7, "record rec_01 was changed", BreakKind.CHANGED, RecordId("rec_01")),
        ChainBreak(TENANT, "keeper@host", 8, "a record is not there", BreakKind.REMOVED),
    ),
    12,
    ("a file is gone",),
    ("ledger_no_update",),
)
CALLBACK = Callback(CallbackId("cb_1"), AGENT, RunId("run_1"), "https://example.org/runs", AT)
DEAD = Callback(
    CallbackId("cb_2"),
    AGENT,
    RunId("run_1"),
    "https://example.org/runs",
    AT,
    CallbackStatus.DEAD,
    10,
    LATER,
    LATER,
    "the receiver answered 503",
    LATER,
    4,
    "x",
)
CRON = Schedule(
    ScheduleId("sch_1"),
    AGENT,
    ScheduleKind.CRON,
    "morning check",
    AT,
    LATER,
    "0 9 * * 1-5",
    "Asia/Shanghai",
    created_by_run=RunId("run_1"),
    overlap=OverlapPolicy.SKIP,
    catch_up_seconds=30.0,
    task_type="summary",
)
EVERY = Schedule(
    ScheduleId("sch_2"),
    AGENT,
    ScheduleKind.INTERVAL,
    "look",
    AT,
    None,
    status=ScheduleStatus.CANCELLED,
    interval_seconds=900,
    jitter_seconds=60,
)
TICKS = (
    Tick(FiringId("fir_1"), ScheduleId("sch_1"), AT, TickOutcome.FIRED, LATER, RunId("run_1")),
    Tick(FiringId("fir_2"), ScheduleId("sch_1"), AT, TickOutcome.SKIPPED, LATER, None, "paused", LATER, 3),
)
MCP = McpServerView(
    "files",
    "stdio",
    "npx",
    McpState.UP,
    AT,
    "",
    1,
    14,
    2,
    ("mcp.files.read_file",),
    (LeftOut("move", "oneOf"),),
    (TenantId("acme"),),
)
SOURCE = WebhookSource("github", ("s",), Mapping("assistant:{body.id}", dedupe="{header.X}"))
TIMED = WebhookSource(
    "stripe", ("s",), Mapping("assistant"), SignatureForm("Stripe", timestamp_key="t", tolerance=60.0)
)
SCORE = Score("score_1", "4bf9", "00f0", AT, Judgement("helpful", 0.9, "at once"))
STATS = MemoryStats(2, 1, 310, 90, 1100, AT, None, (Problem("MEMORY.md:12", "the time is none", "write it"),))

COUNTS = RunCounts(7, 1, 2, 3, 4, 5, 252_500_000, 900, 60, 512, 40, 1230)

SAMPLES: dict[str, Callable[[], Any]] = {
    "accepted": lambda: bodies.accepted_body(ACCEPTED, RunStatus.QUEUED),
    "accepted again": lambda: bodies.accepted_body(REPEATED, RunStatus.COMPLETED),
    "source": lambda: bodies.source_body(SOURCE),
    "source with times": lambda: bodies.source_body(TIMED),
    "delivery": lambda: bodies.delivery_body(DELIVERY),
    "delivery of an agent": lambda: bodies.delivery_body(HANDLED),
    "full delivery": lambda: bodies.full_delivery_body(HANDLED),
    "receipt": lambda: bodies.receipt_body(DeliveryStored(HANDLED, duplicate=True)),
    "callback": lambda: bodies.callback_body(CALLBACK),
    "dead callback": lambda: bodies.callback_body(DEAD),
    "score": lambda: bodies.score_body(RunId("run_1"), SCORE),
    "event": lambda: bodies.event_body(JournalEntry(2, EntryKind.RUN_STARTED, AT, {"epoch": 1, "b": "行"})),
    "queued run": lambda: bodies.run_body(PLAIN_RUN),
    "run": lambda: bodies.run_body(FULL_RUN),
    "run without payload": lambda: bodies.run_body(FULL_RUN, payload=False),
    "run with a large payload": lambda: bodies.run_body(LARGE_RUN),
    "result": lambda: bodies.result_body(RunResult(RunStatus.COMPLETED)),
    "new agent": lambda: bodies.agent_body(AgentView(AGENT, None, "m", True, "shared", (), "no SOUL.md")),
    "agent": lambda: bodies.agent_body(AgentView(AGENT, RECORD, "m", False, "dedicated", ("w",))),
    "skill": lambda: bodies.skill_body(SKILL),
    "memory": lambda: bodies.memory_body(MEMORY),
    "page of memories": lambda: bodies.memories_body([PLAIN_MEMORY, MEMORY, PLAIN_MEMORY], None, 2),
    "last page of memories": lambda: bodies.memories_body([PLAIN_MEMORY, MEMORY], "mem_2", 2),
    "found": lambda: bodies.found_body(Recall((ScoredMemory(MEMORY, PARTS),)), explained=False),
    "found and explained": lambda: bodies.found_body(
        Recall((ScoredMemory(MEMORY, PARTS),), True, "no index"), explained=True
    ),
    "memory stats": lambda: bodies.memory_stats_body(STATS),
    "artifact": lambda: bodies.artifact_body(StoredArtifact(ArtifactId("art_1"), "text/plain", 482, AT)),
    "cron schedule": lambda: bodies.schedule_body(CRON),
    "interval schedule": lambda: bodies.schedule_body(EVERY),
    "page of schedules": lambda: bodies.schedules_body([CRON, EVERY], 2),
    "last page of schedules": lambda: bodies.schedules_body([], 2),
    "page of ticks": lambda: bodies.ticks_body(TICKS, 2),
    "last page of ticks": lambda: bodies.ticks_body(TICKS, 3),
    "backfill": lambda: bodies.backfill_body(Backfill((RunId("run_1"), RunId("run_2")), 3, 1)),
    "ring": lambda: bodies.ring_body(Alarm(ScheduleId("sch_1"), AT)),
    "no ring": lambda: bodies.ring_body(Alarm(ScheduleId("sch_1"), None)),
    "approval": lambda: bodies.approval_body(Approval(REQUEST)),
    "approval that one allowed": lambda: bodies.approval_body(
        Approval(
            replace(REQUEST, needed=2),
            allowed_by=(Allowance(ApprovalDecision(Decision.ALLOW_ONCE, "好", "ada", principal="key:1"), AT),),
        )
    ),
    "decided approval": lambda: bodies.approval_body(
        Approval(
            CHILD_REQUEST,
            ApprovalStatus.ALLOWED,
            ApprovalDecision(Decision.ALLOW_FOR_SESSION, "fine", "ada", {"to": "b"}),
            LATER,
        )
    ),
    "secret": lambda: bodies.secret_body(Secret("CRM_TOKEN", "5e8f9a1b2c3d", AT, LATER, "ada")),
    "mcp server": lambda: bodies.mcp_server_body(MCP),
    "ledger record": lambda: bodies.record_body(CHAINED),
    "page of the ledger": lambda: bodies.ledger_body([CHAINED], 1),
    "last page of the ledger": lambda: bodies.ledger_body([CHAINED], 2),
    "verification": lambda: bodies.verification_body(VERIFIED),
    "key": lambda: bodies.key_body(KEY),
    "issued key": lambda: bodies.issued_key_body(IssuedKey(KEY, "owl_…")),
    "quotas": lambda: bodies.quotas_body(Quotas(open_runs=500)),
    "quota_use": lambda: bodies.quota_use_body(QuotaUse(open_runs=17)),
    "use of a key": lambda: bodies.key_quota_use_body(QuotaUse(running_runs=2)),
    "retention": lambda: bodies.retention_body(Retention(artifact_days=30, memory_days=0)),
    "tenant": lambda: bodies.tenant_body(Tenant(TenantId("acme"), "Acme", AT, "system:local", weight=3)),
    "tenant with networks": lambda: bodies.tenant_body(
        Tenant(TenantId("acme"), "Acme", AT, "system:local", callback_networks=("10.1.0.0/16",))
    ),
    "deleted tenant": lambda: bodies.tenant_body(
        Tenant(
            TenantId("acme"),
            "Acme",
            AT,
            "system:local",
            TenantStatus.DELETED,
            deletion=Deletion("key:4fT0aQ1z (ci)", AT, {"runs": 3}, AT, {}, ("node-b",), AT),
        )
    ),
    "nodes": lambda: bodies.nodes_body(CLUSTER),
    "usage of an agent": lambda: bodies.run_usage_body(RunBucket(COUNTS, agent=AGENT)),
    "usage of a definition": lambda: bodies.run_usage_body(RunBucket(COUNTS, LATER, definition="assistant")),
    "usage of all": lambda: bodies.run_usage_body(RunBucket(RunCounts())),
    "usage of a tool": lambda: bodies.tool_usage_body(
        ToolBucket(ToolCounts(5, 2, 70_207, 60_001, 2, 1, 1, 0, 1), "shop.行", AT)
    ),
    "heads": lambda: bodies.heads_body(TENANT, [LedgerChain("keeper@host", 1042, "04ab")], AT),
}


def pinned() -> dict[str, str]:
    """The pinned bodies, each as the text of its JSON."""
    return orjson.loads(PINNED.read_bytes())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_body_has_the_bytes_that_are_pinned(name: str):
    assert bodies.json_response(SAMPLES[name]()).body.decode() == pinned()[name]


def test_each_pinned_body_has_a_sample():
    assert pinned().keys() == SAMPLES.keys()


def test_each_function_that_makes_bodies_has_a_sample():
    makers = {name for name in vars(bodies) if name.endswith("_body")}
    used = {name for sample in SAMPLES.values() for name in sample.__code__.co_names}

    assert makers <= used
