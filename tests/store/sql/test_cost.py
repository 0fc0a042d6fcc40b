from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy import event

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.approval import ApprovalStatus
from owlclaw_ray.domain.callback import CallbackStatus
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.retention import Kept
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import OverlapPolicy
from owlclaw_ray.domain.trigger import BusyPolicy
from owlclaw_ray.domain.usage import Grain, UsageBy
from owlclaw_ray.domain.webhook import DeliveryStatus
from owlclaw_ray.ids import AgentId, ApprovalId, DeliveryId, RunId, ScheduleId
from owlclaw_ray.runs.expiry import RunExpiry
from owlclaw_ray.store.commands import (
    AppendJournal,
    AppendLedger,
    AwaitRuns,
    CancelRun,
    CancelSchedule,
    ChangeCallback,
    ClaimRun,
    CreateSchedule,
    ExpireApproval,
    NoteSweep,
    PauseSchedule,
    PutTask,
    ReleaseAgent,
    ResumeSchedule,
    RunEnded,
)
from owlclaw_ray.store.queries import (
    AgentPage,
    AgentsByIds,
    AgentsByKeyPrefix,
    AgentsWithWork,
    ApprovalById,
    ApprovalFilter,
    CallbackById,
    CallbackFilter,
    DeliveryById,
    DeliveryFilter,
    DueCallbacks,
    DueSchedules,
    DueUpkeep,
    ExpiredApprovals,
    JournalOfRun,
    LedgerFilter,
    LedgerPlace,
    NextDueTime,
    PendingApprovalCounts,
    Place,
    ReleasedRuns,
    RunById,
    RunFilter,
    ScheduleById,
    ScheduleFilter,
    SchedulesByIds,
    TaskById,
    TasksOfAgent,
    TicksOfSchedule,
    TickSums,
)
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.usage import RunUsage, ToolUsage
from owlclaw_ray.testing.clock import ManualClock
from tests.contracts.store_approval_contract import deciding, request, waiting
from tests.contracts.store_budget_contract import reservation, settlement
from tests.contracts.store_commands import AGENT, NOW, activation, ending, entries, submission
from tests.contracts.store_family_contract import TASK
from tests.contracts.store_ledger_contract import record
from tests.contracts.store_schedule_contract import DUE, backfilling, firing, schedule
from tests.contracts.store_webhook_contract import receiving, telling


@pytest.fixture
async def sqlite_store(sqlite_url):
    store = await open_store(sqlite_url, writer="keeper")
    yield store
    await store.close()


@contextmanager
def statements_of(store):
    seen = []

    def note(_connection, _cursor, statement, parameters, _context, many):
        seen.append((statement, parameters[0] if many else parameters))

    engine = store._database._engine
    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)


def life_of(agent, at):
    run_id, second = f"run_{at}_1", f"run_{at}_2"
    facts = entries(3, EntryKind.PROMPT_BUILT, EntryKind.TOOL_FINISHED)
    refused = replace(submission(f"run_{at}_3", agent), busy=BusyPolicy.REJECT)
    merging = [replace(submission(f"run_{at}_{n}", agent), busy=BusyPolicy.COALESCE, priority=n) for n in (4, 5)]
    urgent = replace(submission(f"run_{at}_6", agent), busy=BusyPolicy.INTERRUPT)
    return [
        submission(run_id, agent, key=f"key_{at}"),
        replace(submission(second, agent), queue_limit=5),
        activation("act_1", agent),
        ClaimRun(agent, 1, NOW),
        AppendJournal(RunId(run_id), agent, 1, facts, (record(2 * at, agent),), {f"h_{at}": "text"}),
        activation("act_2", agent),
        ClaimRun(agent, 2, NOW),
        *(reservation(f"res_{at}_{n}", (f"a_{at}", 9, 1), run=RunId(run_id), agent=agent, epoch=2) for n in (1, 2)),
        settlement(f"res_{at}_1", (f"a_{at}", 1), run=RunId(run_id), agent=agent, epoch=2),
        refused,
        *merging,
        urgent,
        *(CancelRun(agent.tenant, RunId(f"run_{at}_{n}"), NOW) for n in (4, 6)),
        ending(run_id, 6, epoch=2, agent=agent),
        CancelRun(agent.tenant, RunId(second), NOW),
        CreateSchedule(schedule(f"sch_{at}", agent), 9),
        PauseSchedule(agent, ScheduleId(f"sch_{at}"), NOW),
        ResumeSchedule(agent, ScheduleId(f"sch_{at}"), NOW),
        replace(firing(f"sch_{at}", DUE, DUE + timedelta(minutes=5), queues=False), overlap=OverlapPolicy.SKIP),
        backfilling(f"sch_{at}", DUE - timedelta(hours=1), agent),
        CancelSchedule(agent, ScheduleId(f"sch_{at}"), NOW),
        AppendLedger((record(2 * at + 1, agent),)),
        ReleaseAgent(agent, 2, AgentState(), NOW),
    ]


async def test_a_large_batch_takes_no_more_statements_than_a_small_one(sqlite_store):
    agents = [AgentRef.parse(f"trader:{at}") for at in range(31)]

    with statements_of(sqlite_store) as small:
        await sqlite_store.apply(life_of(agents[0], 0))
    with statements_of(sqlite_store) as large:
        await sqlite_store.apply([each for at in range(1, 31) for each in life_of(agents[at], at)])

    assert len(large) <= len(small) <= 40


async def plans_of(store, seen):
    queries = dict(each for each in seen if not each[0].startswith("BEGIN"))

    def explain(connection):
        return [
            (row.detail, statement)
            for statement, parameters in queries.items()
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]

    return await store._database.read(explain)


def whole_tables(plans):
    none = ("anon", "json", "CONSTANT ROW")
    return [each for each in plans if each[0].startswith("SCAN") and not any(word in each[0] for word in none)]


async def test_commands_read_neither_whole_tables_nor_past_runs(sqlite_store):
    with statements_of(sqlite_store) as seen:
        for command in life_of(AGENT, 1):
            await sqlite_store.apply([command])

    plans = await plans_of(sqlite_store, seen)

    assert whole_tables(plans) == []
    assert [each for each in plans if "runs_by" in each[0]] == []
    assert any("runs_active" in detail for detail, _ in plans)
    assert any("runs_mergeable" in detail for detail, _ in plans)


REST_OF_LEDGER = (
    {"after": LedgerPlace(NOW, "keeper-1", 5)},
    {"agent": AGENT, "after": LedgerPlace(NOW, "keeper-1", 5)},
    {"kind": LedgerKind.RUN, "after": LedgerPlace(NOW, "keeper-1", 5)},
    {"since": NOW, "until": NOW},
    {"kind": LedgerKind.RUN, "after": LedgerPlace(NOW, "keeper-1", 5), "newest_first": True},
)


async def test_ticks_are_summed_from_those_of_their_schedule_alone(sqlite_store):
    with statements_of(sqlite_store) as seen:
        await sqlite_store.read(TickSums(AGENT.tenant, ScheduleId("sch_1"), (NOW - timedelta(days=9), NOW)))

    assert whole_tables(await plans_of(sqlite_store, seen)) == []


async def test_queries_read_no_whole_tables(sqlite_store):
    with statements_of(sqlite_store) as seen:
        await sqlite_store.read(RunById(AGENT.tenant, RunId("run_0")))
        await sqlite_store.read(RunFilter(AGENT.tenant))
        await sqlite_store.read(RunFilter(AGENT.tenant, agent=AGENT))
        await sqlite_store.read(RunFilter(AGENT.tenant, status=RunStatus.FAILED))
        await sqlite_store.read(JournalOfRun(AGENT.tenant, RunId("run_0")))
        await sqlite_store.read(ScheduleById(AGENT.tenant, ScheduleId("sch_1")))
        await sqlite_store.read(SchedulesByIds([ScheduleId("sch_1"), ScheduleId("sch_2")]))
        for page in ({}, {"agent": AGENT}, {"agent": AGENT, "after": ScheduleId("sch_1")}):
            await sqlite_store.read(ScheduleFilter(AGENT.tenant, **page))
        await sqlite_store.read(TicksOfSchedule(ScheduleId("sch_1"), NOW))
        for where in ({}, {"agent": AGENT}, {"run_id": RunId("run_0")}, {"kind": LedgerKind.RUN}):
            await sqlite_store.read(LedgerFilter(AGENT.tenant, **where))

    plans = await plans_of(sqlite_store, seen)

    assert whole_tables(plans) == []
    sorting = [each for each in plans if "TEMP B-TREE" in each[0]]
    assert [
        each for each in sorting if "RIGHT PART OF ORDER BY" not in each[0]
    ] == []  # records of the same microsecond


async def test_approvals_are_asked_decided_and_read_without_reading_whole_tables(sqlite_store):
    requests = [replace(request(name), run_id=RunId("run_1")) for name in ("a", "b", "c")]
    with statements_of(sqlite_store) as seen:
        for command in (
            submission("run_1"),
            activation("act_1"),
            ClaimRun(AGENT, 1, NOW),
            waiting(*requests),
            deciding("a"),
            ExpireApproval(AGENT.tenant, ApprovalId("apr_b"), NOW + timedelta(days=2)),
            CancelRun(AGENT.tenant, RunId("run_1"), NOW),
        ):
            await sqlite_store.apply([command])
        await sqlite_store.read(ApprovalById(AGENT.tenant, ApprovalId("apr_a")))
        await sqlite_store.read(ExpiredApprovals(NOW))
        await sqlite_store.read(PendingApprovalCounts(AGENT.tenant, 9))
        for where in ({}, {"agent": AGENT}, {"run_id": RunId("run_1")}, {"status": ApprovalStatus.PENDING}):
            await sqlite_store.read(ApprovalFilter(AGENT.tenant, **where))

    plans = await plans_of(sqlite_store, seen)

    assert whole_tables(plans) == []
    assert [each for each in plans if "runs_by" in each[0]] == []
    assert {"approvals_pending", "approvals_by_status"} <= {
        word for detail, _ in plans for word in detail.split() if word.startswith("approvals_")
    }


async def test_webhooks_are_written_and_read_without_reading_whole_tables(sqlite_store):
    with statements_of(sqlite_store) as seen:
        for command in (receiving(), receiving(), telling(), CancelRun(AGENT.tenant, RunId("run_1"), NOW)):
            await sqlite_store.apply([command])
        (due,) = await sqlite_store.read(DueCallbacks(NOW, 9))
        await sqlite_store.apply([ChangeCallback(replace(due, version=3))])
        await sqlite_store.read(DeliveryById(AGENT.tenant, DeliveryId("whd_1")))
        await sqlite_store.read(CallbackById(AGENT.tenant, due.callback_id))
        place = {"before": Place(NOW, "x")}
        for where in ({}, {"source": "shop"}, {"status": DeliveryStatus.REFUSED}, place, place | {"source": "shop"}):
            await sqlite_store.read(DeliveryFilter(AGENT.tenant, **where))
        for where in ({}, {"agent": AGENT}, {"run_id": RunId("run_1")}, {"status": CallbackStatus.DEAD}, place):
            await sqlite_store.read(CallbackFilter(AGENT.tenant, **where))

    plans = await plans_of(sqlite_store, seen)

    bounded = (
        "SCAN hosts",
        "SCAN due_tenants",
        "SCAN placed",
        "SCAN (subquery",
        "SCAN CONSTANT ROW",
    )  # a few of each host
    assert [each for each in whole_tables(plans) if not each[0].startswith(bounded)] == []
    used = {word for detail, _ in plans for word in detail.split()}
    assert {"callbacks_due", "callbacks_by_run", "callbacks_by_status", "webhook_deliveries_by_source"} <= used


async def test_families_and_tasks_are_written_and_read_without_reading_whole_tables(sqlite_store):
    awaited = RunId("run_2")
    with statements_of(sqlite_store) as seen:
        for command in (
            submission("run_1"),
            activation("act_1"),
            ClaimRun(AGENT, 1, NOW),
            AwaitRuns(RunId("run_1"), AGENT, 1, entries(3, EntryKind.RUN_WAITING), (awaited,)),
            RunEnded(AGENT, RunId("run_1"), (awaited,)),
            PutTask(TASK, 0, NOW),
        ):
            await sqlite_store.apply([command])
        await sqlite_store.read(ReleasedRuns())
        await sqlite_store.read(DueUpkeep(NOW))
        await sqlite_store.read(AgentsByKeyPrefix(AGENT.tenant, "trader", "A"))
        await sqlite_store.read(TaskById(AGENT.tenant, TASK.task_id))
        await sqlite_store.read(TasksOfAgent(AGENT))

    plans = await plans_of(sqlite_store, seen)

    scans = [detail for detail, _ in whole_tables(plans) if "runs_awaiting" not in detail]
    assert set(scans) <= {"SCAN tenants"}  # of which there are few


async def test_old_runs_are_found_and_removed_without_reading_whole_tables(sqlite_store):
    for command in (telling(), CancelRun(AGENT.tenant, RunId("run_1"), NOW), submission("run_2")):
        await sqlite_store.apply([command])
    (due,) = await sqlite_store.read(DueCallbacks(NOW, 9))
    await sqlite_store.apply([ChangeCallback(replace(due, version=3, status=CallbackStatus.DEAD))])
    later = NOW + timedelta(days=9)
    await sqlite_store.apply([NoteSweep(Kept.RUNS, later)])
    with statements_of(sqlite_store) as seen:
        removed = await RunExpiry(sqlite_store, timedelta(days=1), ManualClock(later)).tick()

    plans = await plans_of(sqlite_store, seen)

    assert removed == 1
    assert whole_tables(plans) == []
    assert [detail for detail, _ in plans if "runs_by_tenant" in detail]


async def test_agents_with_open_breakers_are_found_without_reading_the_others(sqlite_store):
    with statements_of(sqlite_store) as seen:
        await sqlite_store.read(AgentPage(AGENT.tenant, with_open_breaker=True))

    plans = await plans_of(sqlite_store, seen)

    assert [detail for detail, _ in plans if "agents_with_open_breakers" in detail], plans
    assert whole_tables(plans) == []


async def test_looking_for_work_reads_only_what_is_active(sqlite_store):
    with statements_of(sqlite_store) as seen:
        await sqlite_store.read(AgentsWithWork())
        await sqlite_store.read(AgentPage(AGENT.tenant))
        await sqlite_store.read(DueSchedules(NOW))
        await sqlite_store.read(NextDueTime())

    plans = await plans_of(sqlite_store, seen)

    used = {
        index
        for index in ("runs_active", "schedules_due", "agents_by_tenant", "runs_by")
        for plan in plans
        if index in plan[0]
    }
    assert used == {"runs_active", "schedules_due", "agents_by_tenant"}


async def test_agents_are_read_by_their_ids_without_reading_whole_tables(sqlite_store):
    with statements_of(sqlite_store) as seen:
        await sqlite_store.read(AgentsByIds(AGENT.tenant, (AGENT.agent_id, AgentId("trader:b"))))

    assert whole_tables(await plans_of(sqlite_store, seen)) == []


async def test_what_was_counted_is_read_by_the_time_that_is_asked_for_and_of_one_agent_by_its_days(sqlite_store):
    span = (AGENT.tenant, NOW - timedelta(days=2), NOW)
    with statements_of(sqlite_store) as seen:
        for query in (
            RunUsage(*span, Grain.MINUTE),
            RunUsage(*span, by=UsageBy.AGENT),
            RunUsage(*span, by=UsageBy.AGENT, agents=(AGENT,)),
            ToolUsage(*span),
        ):
            await sqlite_store.read(query)

    plans = [detail for detail, _ in await plans_of(sqlite_store, seen) if detail.startswith(("SEARCH", "SCAN"))]

    assert [each.partition(" USING ")[2].partition("(")[2].rstrip(")") for each in plans] == [
        "tenant=? AND seconds=? AND begins_at>? AND begins_at<?",
        "tenant=? AND begins_at>? AND begins_at<?",
        "tenant=? AND begins_at=? AND agent=?",
        "tenant=? AND begins_at>? AND begins_at<?",
    ]
