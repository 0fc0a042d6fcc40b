from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import event, select

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.approval import ApprovalDecision, ApprovalRequest, Decision
from owlclaw_ray.domain.callback import Callback, CallbackStatus, callback_id_of
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.run import RunResult, RunStatus
from owlclaw_ray.domain.schedule import OverlapPolicy, Schedule, ScheduleKind, Tick, TickOutcome
from owlclaw_ray.domain.task import Step, Task
from owlclaw_ray.domain.trigger import BusyPolicy, Trigger, TriggerKind
from owlclaw_ray.domain.webhook import Delivery, DeliveryStatus
from owlclaw_ray.ids import ApprovalId, RunId, ToolCallId
from owlclaw_ray.store.commands import (
    ActivateAgent,
    AppendJournal,
    AppendLedger,
    AwaitApprovals,
    AwaitRuns,
    BackfillTick,
    BudgetAlert,
    BudgetCharge,
    BudgetClaim,
    CancelRun,
    CancelSchedule,
    ChangeCallback,
    ClaimRun,
    CreateSchedule,
    DecideApproval,
    ExpireApproval,
    FinishRun,
    FireSchedule,
    IdempotencyClaim,
    PauseSchedule,
    PutTask,
    ReceiveDelivery,
    ReleaseAgent,
    ReserveBudget,
    ResumeSchedule,
    RunEnded,
    SettleBudget,
    SubmitRun,
)
from owlclaw_ray.store.queries import LedgerBreaks
from owlclaw_ray.store.sql.databases import SqliteDatabase
from owlclaw_ray.store.sql.locations import locate
from owlclaw_ray.store.sql.migrator import migrate
from owlclaw_ray.store.sql.schema import blobs as blob_rows
from owlclaw_ray.store.sql.schema import metadata
from owlclaw_ray.store.sql.sql_store import SqlStore
from tests.store.sql.emptying import emptied

START = datetime(2026, 1, 1, tzinfo=UTC)
AGENTS = [AgentRef.parse("trader"), AgentRef.parse("trader:AAPL"), AgentRef.parse("trader", "张三/x")]
REQUEST = ApprovalRequest(
    ApprovalId("apr"),
    AGENTS[0],
    RunId("run"),
    ToolCallId("c"),
    "send",
    "",
    "write",
    (),
    "",
    {},
    "",
    {},
    "{}",
    START,
    START,
)
times = st.integers(0, 5).map(lambda minutes: START + timedelta(minutes=minutes))
agents = st.sampled_from(AGENTS)
epochs = st.sampled_from([1] * 8 + [2, 3])
texts = st.sampled_from(["看一下", "nul \x00 inside", "plain"])
keys = st.builds(
    IdempotencyClaim,
    key=st.sampled_from(["k1", "k2", "k3"]),
    body_hash=st.sampled_from(["same", "same", "other"]),
    expires_at=times,
)
triggers = st.builds(Trigger, kind=st.sampled_from([*[TriggerKind.API] * 9, *TriggerKind]), content=texts, focus=texts)
admissions = st.fixed_dictionaries(
    {
        "busy": st.sampled_from([BusyPolicy.ENQUEUE, *BusyPolicy]),
        "priority": st.sampled_from([0, 0, 5, -5]),
        "deadline": st.one_of(st.none(), times),
        "queue_limit": st.sampled_from([None, None, 1, 2, 3]),
        "callback_urls": st.sampled_from([(), (), ("https://a",), ("https://a", "https://b")]),
    }
)
states = st.builds(AgentState, recent_outcomes=st.tuples(texts), runs=st.integers(0, 9))
blobs = st.sampled_from([{}, {"h1": "system \x00 text"}, {"h1": "system \x00 text", "h2": "[]"}])


@st.composite
def runs(draw, first=0):
    number = draw(st.integers(first, 8))
    return f"run_{number}", AGENTS[number % 3]


@st.composite
def submits(draw, first=0):
    run_id, agent = draw(runs(first))
    submit = SubmitRun(run_id, agent, draw(triggers), draw(times), draw(st.one_of(st.none(), keys)))
    return replace(submit, **draw(admissions))


@st.composite
def entry_lists(draw):
    first = draw(st.sampled_from([3, 3, 3, 3, 4, 5]))
    kinds = draw(st.lists(st.sampled_from([EntryKind.PROMPT_BUILT, EntryKind.TOOL_FINISHED]), max_size=2))
    data = {EntryKind.PROMPT_BUILT: {"system": "h1", "tools": "h2"}, EntryKind.TOOL_FINISHED: {"call_id": "c"}}
    return tuple(JournalEntry(first + at, kind, START, data[kind]) for at, kind in enumerate(kinds))


@st.composite
def record_lists(draw):
    agent = draw(agents)
    numbers = draw(st.lists(st.integers(1, 6), max_size=2))
    return tuple(
        LedgerRecord(f"rec_{number}", agent.tenant, agent.agent_id, "run_0", LedgerKind.DECISION, START, {"n": number})
        for number in numbers
    )


@st.composite
def appends(draw):
    run_id, agent = draw(runs())
    return AppendJournal(run_id, agent, draw(epochs), draw(entry_lists()), draw(record_lists()), draw(blobs))


@st.composite
def finishes(draw):
    run_id, agent = draw(runs())
    result = RunResult(draw(st.sampled_from([RunStatus.COMPLETED, RunStatus.FAILED])), final_text=draw(texts))
    return FinishRun(
        run_id,
        agent,
        draw(epochs),
        draw(entry_lists()),
        result,
        draw(states),
        draw(times),
        draw(record_lists()),
        draw(blobs),
        claim_next=draw(st.booleans()),
        callback_url=draw(st.sampled_from(["", "https://b"])),
    )


@st.composite
def waits(draw):
    run_id, agent = draw(runs())
    numbers = draw(st.sampled_from([(0,), (0,), (0, 1)]))
    requests = tuple(
        replace(REQUEST, approval_id=f"apr_{run_id}_{number}", agent=agent, run_id=run_id, expires_at=draw(times))
        for number in numbers
    )
    return AwaitApprovals(run_id, agent, draw(epochs), draw(entry_lists()), requests, draw(record_lists()), draw(blobs))


@st.composite
def approval_decisions(draw):
    run_id, agent = draw(runs())
    approval_id, tenant = f"apr_{run_id}_{draw(st.sampled_from([0, 0, 1]))}", agent.tenant
    if draw(st.integers(0, 2)) == 0:
        return ExpireApproval(tenant, approval_id, draw(times))
    decision = ApprovalDecision(draw(st.sampled_from(Decision)), draw(texts))
    return DecideApproval(tenant, approval_id, decision, START - timedelta(minutes=draw(st.integers(-6, 1))))


@st.composite
def runs_awaited(draw):
    run_id, agent = draw(runs())
    awaited = tuple(each[0] for each in draw(st.lists(runs(), min_size=1, max_size=2)))
    return AwaitRuns(
        run_id, agent, draw(epochs), draw(entry_lists().filter(bool)), awaited, draw(record_lists()), draw(blobs)
    )


@st.composite
def runs_ended(draw):
    run_id, agent = draw(runs())
    return RunEnded(agent, run_id, tuple(each[0] for each in draw(st.lists(runs(), min_size=1, max_size=3))))


@st.composite
def tasks(draw):
    number, version = draw(st.integers(0, 2)), draw(st.integers(1, 3))
    steps = (Step("a", draw(texts)), Step("b", "b", depends_on=("a",)))
    task = Task(f"task_{number}", AGENTS[number % 3], draw(texts), "", steps, version=version)
    return PutTask(task, version - 1, draw(times))


@st.composite
def creations(draw):
    number = draw(st.integers(0, 5))
    kind, limit = draw(st.sampled_from(ScheduleKind)), draw(st.integers(1, 2))
    schedule = Schedule(f"sch_{number}", AGENTS[number % 3], kind, draw(texts), draw(times), next_fire_at=START)
    return CreateSchedule(schedule, limit)


@st.composite
def schedule_cancels(draw):
    number = draw(st.integers(0, 5))
    caller = draw(st.none() | runs().map(lambda run: run[0]))
    return CancelSchedule(AGENTS[number % 3], f"sch_{number}", draw(times), caller)


@st.composite
def schedule_changes(draw):
    number, kind = draw(st.integers(0, 5)), draw(st.sampled_from([PauseSchedule, ResumeSchedule, ResumeSchedule]))
    return kind(AGENTS[draw(st.sampled_from([0, 0, 0, 1])) + number % 3 - 3], f"sch_{number}", draw(times))


@st.composite
def backfills(draw):
    number = draw(st.integers(0, 5))
    agent, run_id = AGENTS[number % 3], f"run_{draw(st.integers(0, 2)) * 3 + number % 3}"
    run = SubmitRun(run_id, agent, draw(triggers), START, queue_limit=draw(st.sampled_from([None, 1, 2])))
    tick = Tick(
        f"back_{number}_{draw(st.integers(0, 2))}", f"sch_{number}", START, TickOutcome.CAUGHT_UP, START, run_id
    )
    return BackfillTick(agent, tick, run)


@st.composite
def firings(draw):
    schedule_id, due = f"sch_{draw(st.integers(0, 5))}", draw(st.sampled_from([START] * 4 + [START + timedelta(1)]))
    run = draw(st.one_of(st.none(), submits()))
    following = draw(st.sampled_from([None, START, START + timedelta(1)]))
    outcome = TickOutcome.FIRED if run else TickOutcome.SKIPPED
    firing_id = f"fire_{schedule_id}_{draw(st.integers(1, 3))}"
    tick = Tick(firing_id, schedule_id, due, outcome, due, run.run_id if run else None, reason="原因")
    return FireSchedule(schedule_id, due, (tick,), following, run, draw(st.sampled_from(OverlapPolicy)))


@st.composite
def receptions(draw):
    run = draw(st.one_of(st.none(), submits()))
    status = draw(st.sampled_from(DeliveryStatus)) if run is None else DeliveryStatus.TRIGGERED
    receipt = draw(st.sampled_from(["a", "b"]))
    agent = AGENTS[0] if run is None else run.agent
    delivery_id = f"whd_{draw(st.integers(0, 2))}"
    return ReceiveDelivery(Delivery(delivery_id, agent.tenant, "shop", receipt, START, status, draw(texts), agent), run)


@st.composite
def callback_changes(draw):
    run_id, agent = draw(runs())
    url = draw(st.sampled_from(["https://a", "https://b"]))
    status, version = draw(st.sampled_from(CallbackStatus)), draw(st.integers(2, 3))
    callback = Callback(callback_id_of(run_id, url), agent, run_id, url, START, status, 1, draw(times), version=version)
    return ChangeCallback(callback)


amounts = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 4), min_size=1)


@st.composite
def reservations(draw):
    run_id, agent = draw(runs())
    asked, must_fit = draw(amounts), draw(st.booleans())
    claims = tuple(BudgetClaim(account, 6, amount, START, must_fit) for account, amount in asked.items())
    return ReserveBudget(f"{run_id}/{draw(st.integers(0, 2))}", run_id, agent, draw(epochs), claims, draw(times))


@st.composite
def settlements(draw):
    run_id, agent = draw(runs())
    record = LedgerRecord("rec_alert", agent.tenant, agent.agent_id, run_id, LedgerKind.WARNING, START, {})
    charges = tuple(
        BudgetCharge(account, amount, (BudgetAlert(4, record),)) for account, amount in draw(amounts).items()
    )
    return SettleBudget(f"{run_id}/{draw(st.integers(0, 2))}", run_id, agent, draw(epochs), charges)


commands = st.one_of(
    submits(),
    submits(),
    st.builds(ActivateAgent, agent=agents, activation_id=st.sampled_from(["act_0", "act_0", "act_1"]), at=times),
    st.builds(ClaimRun, agent=agents, epoch=epochs, at=times),
    st.builds(ClaimRun, agent=agents, epoch=epochs, at=times),
    appends(),
    appends(),
    finishes(),
    finishes(),
    waits(),
    waits(),
    approval_decisions(),
    approval_decisions(),
    runs_awaited(),
    runs_ended(),
    tasks(),
    receptions(),
    callback_changes(),
    st.builds(ReleaseAgent, agent=agents, epoch=epochs, state=states, at=times),
    st.builds(
        CancelRun, tenant=agents.map(lambda agent: agent.tenant), run_id=runs().map(lambda run: run[0]), at=times
    ),
    creations(),
    schedule_cancels(),
    schedule_changes(),
    firings(),
    firings(),
    backfills(),
    reservations(),
    reservations(),
    settlements(),
    st.builds(AppendLedger, records=record_lists()),
)
impossible = SubmitRun("run_impossible", AGENTS[0], Trigger(TriggerKind.API, object()), START)


def with_spoiler(rest):
    return st.integers(0, 9).map(lambda number: [*rest, impossible] if number == 0 else rest)


first_commands = st.permutations(
    [
        *(SubmitRun(f"run_{at}", AGENTS[at % 3], Trigger(TriggerKind.API), START) for at in range(6)),
        *(CreateSchedule(Schedule(f"sch_{at}", AGENTS[at], ScheduleKind.CRON, "", START, START), 9) for at in range(3)),
    ]
).map(
    lambda queued: [
        *(ActivateAgent(agent, "act_0", START) for agent in AGENTS),
        *queued,
        *(ClaimRun(agent, 1, START) for agent in AGENTS),
    ]
)


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def databases(runner, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    made = [SqliteDatabase(locate(str(folder / name)).url) for name in ("together.db", "alone.db")]
    for database in made:
        event.listen(database._engine, "connect", without_waiting_for_the_disk)
        runner.run(database.write(migrate))
    yield made
    for database in made:
        runner.run(database.close())


def without_waiting_for_the_disk(connection, _record):
    connection.execute("PRAGMA synchronous = OFF")


def contents_of(connection):
    """All rows, without what the clock of the database says."""
    found = {}
    for table in metadata.sorted_tables:
        columns = [column for column in table.c if column is not blob_rows.c.used_at]
        found[table.name] = sorted(connection.execute(select(*columns)).all(), key=repr)
    return found


async def apply_groups(database, groups):
    await database.write(emptied)
    store = SqlStore(database, "keeper")
    outcomes = [outcome for group in groups for outcome in await store.apply(group)]
    breaks = [each for agent in AGENTS for each in await store.read(LedgerBreaks(agent.tenant))]
    return outcomes, breaks, await database.read(contents_of)


@pytest.mark.property
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(beginning=first_commands, rest=st.lists(commands, max_size=25).flatmap(with_spoiler), size=st.integers(2, 20))
def test_a_batch_does_what_its_commands_do_one_by_one(runner, databases, beginning, rest, size):
    everything = [*beginning, *rest]
    groups = [everything[at : at + size] for at in range(0, len(everything), size)]

    together, alone = databases
    in_batches = runner.run(apply_groups(together, groups))
    one_by_one = runner.run(apply_groups(alone, [[command] for command in everything]))

    assert in_batches == one_by_one
    assert not in_batches[1]
