"""A data folder that the code of commit f91f704 wrote, opened by the code of today.

It was left in the middle of its work: the run of `clerk:half` inside a `once` call with another one queued behind it, that of
`clerk:waiting` before an approval, a callback before its second attempt, schedules active, paused, done and cancelled.
`data_folder/owlclaw.sql` is the dump of its store, beside it are the memories.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from owlclaw_ray import OwlClaw
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import ApprovalDecision, ApprovalStatus, Decision
from owlclaw_ray.domain.callback import CallbackRules, CallbackStatus
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.model import ModelRequest
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import ScheduleStatus
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.store.queries import (
    ApprovalFilter,
    CallbackFilter,
    JournalOfRun,
    LedgerFilter,
    RunFilter,
    ScheduleFilter,
)
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import InProcessRuntime, in_process_runtime
from owlclaw_ray.webhooks.outbox import CallbackOptions
from tests.worlds import Agents, Model, asks, says

FOLDER = Path(__file__).with_name("data_folder")
LEFT_AT = datetime(2026, 1, 1, 0, 1, 1, tzinfo=UTC)
OUTBOX = CallbackOptions(("a2V5LWtleS1rZXkta2V5LWtleS1rZXk=",), RetryPolicy(attempts=3, base=10.0, cap=60.0))
PLAN = AgentRef.parse("clerk:plan")
LEFT_RECORDS = 20
"""Of the ledger, in the dump."""


class Shop:
    """The application that the folder's agents work for, its effects in lists."""

    def __init__(self) -> None:
        self.app = OwlClaw("shop")
        self.paid: list[str] = []
        self.refunded: list[str] = []
        self.app.tool("look")(self.look)
        for name in ("pay", "pay_slowly"):
            self.app.handler(name)(self.pay)
        self.app.handler("refund", tags=["dangerous"])(self.refund)

    def look(self) -> str:
        """Look."""
        return "seen"

    def pay(self, order: str) -> str:
        """Pay."""
        self.paid.append(order)
        return f"paid {order}"

    def refund(self, order: str) -> str:
        """Refund."""
        self.refunded.append(order)
        return f"refunded {order}"


def decide(request: ModelRequest):
    """What the folder's runs were asked, and what they go on with."""
    if any(message.tool_calls for message in request.messages):
        return says("done")
    if any("pay" in message.content for message in request.messages):
        return asks(("shop__pay", '{"order":"19"}'))
    return says("seen")


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(LEFT_AT)


@pytest.fixture
async def runtime(tmp_path: Path, agents: Agents, shop: Shop, clock: ManualClock) -> AsyncIterator[InProcessRuntime]:
    data = tmp_path / "data"
    shutil.copytree(FOLDER, data, ignore=shutil.ignore_patterns("*.sql"))
    with sqlite3.connect(data / "owlclaw.db") as database:
        database.executescript((FOLDER / "owlclaw.sql").read_text())
    database.close()
    agents.define("clerk", model="test")
    async with in_process_runtime(
        agents_dir=agents.folder,
        data_dir=data,
        app=shop.app,
        models=[Model(decide)],
        clock=clock,
        defaults=Defaults(callbacks=CallbackRules(("127.0.0.0/8",))),
        callbacks=OUTBOX,
    ) as opened:
        yield opened


async def runs(runtime: InProcessRuntime, key: str):
    """Return the runs of an agent, the oldest first, when all that can end is over."""
    agent = AgentRef.parse(f"clerk:{key}")
    while True:
        found = await runtime.runs(RunFilter(DEFAULT_TENANT, agent=agent))
        if all(run.status.final or run.status is RunStatus.WAITING for run in found):
            return found[::-1]
        await asyncio.sleep(0)


async def test_what_was_over_is_listed_with_its_results_journal_and_callback(runtime: InProcessRuntime):
    [done], [failed] = await runs(runtime, "done"), await runs(runtime, "failed")
    entries = await runtime.store.read(JournalOfRun(DEFAULT_TENANT, done.run_id))
    records = await runtime.ledger(LedgerFilter(DEFAULT_TENANT, run_id=done.run_id))
    [callback] = await runtime.outbox.callbacks(CallbackFilter(DEFAULT_TENANT))

    assert (done.status, done.result.final_text, done.result.tool_calls) == (RunStatus.COMPLETED, "done", 2)
    assert done.trigger.payload == {"do": "pay"}
    assert (done.result.usage.prompt_tokens, done.result.usage.completion_tokens) == (20, 10)
    assert (failed.status, failed.result.error.type) == (RunStatus.FAILED, "model_failed")
    assert [entry.kind for entry in entries][-2:] == [EntryKind.MODEL_REPLIED, EntryKind.RUN_FINISHED]
    assert [each.record.data["content"] for each in records if each.record.data.get("tool") == "shop.pay"] == [
        "paid 16"
    ]
    assert (callback.run_id, callback.status, callback.attempts) == (done.run_id, CallbackStatus.PENDING, 1)


async def test_the_interrupted_run_ends_without_its_once_call_being_repeated_and_the_queued_one_after_it(
    runtime: InProcessRuntime, shop: Shop
):
    half, queued = await runs(runtime, "half")
    results = {
        entry.data["call_id"]: entry.data
        for entry in await runtime.store.read(JournalOfRun(DEFAULT_TENANT, half.run_id))
        if entry.kind is EntryKind.TOOL_FINISHED
    }

    assert (half.status, half.result.final_text) == (RunStatus.COMPLETED, "done")
    assert results["look"]["content"] == "seen"
    assert results["pay"]["error"]["type"] == "uncertain"
    assert shop.paid == []
    assert (queued.status, queued.result.final_text) == (RunStatus.COMPLETED, "seen")
    assert queued.started_at >= half.finished_at


async def test_the_waiting_approval_is_decided_and_its_run_goes_on(runtime: InProcessRuntime, shop: Shop):
    [approval] = await runtime.approvals(ApprovalFilter(DEFAULT_TENANT, status=ApprovalStatus.PENDING))
    await runtime.decide(DEFAULT_TENANT, approval.request.approval_id, ApprovalDecision(Decision.ALLOW_ONCE, by="ann"))
    while (await runs(runtime, "waiting"))[0].status is RunStatus.WAITING:
        await asyncio.sleep(0)
    [run] = await runs(runtime, "waiting")

    assert (approval.request.tool, approval.request.arguments) == ("shop.refund", {"order": "17"})
    assert shop.refunded == ["17"]
    assert (run.status, run.result.final_text) == (RunStatus.COMPLETED, "done")


async def test_schedules_fire_at_their_times(runtime: InProcessRuntime, clock: ManualClock):
    before = await runtime.timetable.schedules(ScheduleFilter(DEFAULT_TENANT, agent=PLAN))
    clock._elapsed += 6 * 3600
    fired = await runtime.schedule_firer.fire_all_due()
    ran = await runs(runtime, "plan")

    assert {each.focus: each.status for each in before} == {
        "first": ScheduleStatus.DONE,
        "every hour": ScheduleStatus.ACTIVE,
        "every morning": ScheduleStatus.ACTIVE,
        "much later": ScheduleStatus.ACTIVE,
        "paused": ScheduleStatus.PAUSED,
        "cancelled": ScheduleStatus.CANCELLED,
    }
    assert fired == 3
    assert {(run.trigger.focus, run.trigger.kind, run.status) for run in ran} == {
        ("first", TriggerKind.SCHEDULE_ONCE, RunStatus.COMPLETED),
        ("every hour", TriggerKind.SCHEDULE_CRON, RunStatus.COMPLETED),
        ("every morning", TriggerKind.SCHEDULE_CRON, RunStatus.COMPLETED),
        ("much later", TriggerKind.SCHEDULE_ONCE, RunStatus.COMPLETED),
    }


async def test_memories_are_read_and_found(runtime: InProcessRuntime):
    await runtime.memory.reindex(PLAN)
    listed = await runtime.memory.memories(PLAN)
    found = await runtime.memory.search(PLAN, "warehouse", 1)
    [other] = await runtime.memory.memories(AgentRef.parse("clerk:done"))

    assert {memory.content for memory in listed} == {"The warehouse closes at six.", "Ann prefers letters."}
    assert [each.memory.content for each in found.memories] == ["The warehouse closes at six."]
    assert (other.content, other.tags) == ("Order 16 is paid.", ("orders",))


async def test_the_ledger_verifies_before_and_after_new_records(runtime: InProcessRuntime):
    first = await runtime.verify_ledger(DEFAULT_TENANT)
    await runs(runtime, "half")
    run = await runtime.trigger("clerk:done", {"do": "pay"})
    second = await runtime.verify_ledger(DEFAULT_TENANT)

    assert run.status is RunStatus.COMPLETED
    assert (first.breaks, second.breaks) == ((), ())
    assert sum(chain.position for chain in first.chains) >= LEFT_RECORDS
    assert sum(chain.position for chain in second.chains) > sum(chain.position for chain in first.chains)
