"""Runs that ended long ago are removed with what is theirs alone, and with nothing that anything else stands on."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy import select, text

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.callback import CallbackStatus
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.lineage import ChildRole, Lineage
from owlclaw_ray.domain.retention import Retention
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import ScheduleStatus
from owlclaw_ray.domain.tenant import Deletion, Tenant, TenantStatus
from owlclaw_ray.domain.trigger import BusyPolicy, Trigger, TriggerKind
from owlclaw_ray.domain.usage import Grain, floored
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, RunId, TenantId
from owlclaw_ray.runs.expiry import RunExpiry
from owlclaw_ray.store.commands import (
    AlreadyFired,
    AppendJournal,
    AppendLedger,
    AwaitApprovals,
    CancelRun,
    CancelSchedule,
    ChangeCallback,
    CommandFailed,
    CreateSchedule,
    ForgetEntries,
    ForgetRuns,
    IdempotencyClaim,
    OldRun,
    PutTenant,
    RunAccepted,
    RunsForgotten,
)
from owlclaw_ray.store.old_runs import OldRuns
from owlclaw_ray.store.queries import (
    AgentByRef,
    ApprovalFilter,
    CallbackFilter,
    DeliveryById,
    JournalOfRun,
    LedgerBreaks,
    LedgerFilter,
    RunById,
    RunFilter,
    ScheduleById,
    TicksOfSchedule,
)
from owlclaw_ray.store.run_search import RunSearch
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.sql.schema import metadata
from owlclaw_ray.store.tenant_rows import TenantRowPage
from owlclaw_ray.store.usage import RunUsage
from owlclaw_ray.testing.clock import ManualClock
from tests.contracts.store_approval_contract import request
from tests.contracts.store_commands import AGENT, NOW, OTHER, activation, claimed, ending, entries, one, submission
from tests.contracts.store_ledger_contract import record
from tests.contracts.store_schedule_contract import DUE, backfilling, firing, schedule
from tests.contracts.store_webhook_contract import URL, receiving
from tests.store.sql.sweeping import SweptAt, texts_stored_at

DAY, WEEK = timedelta(days=1), timedelta(days=7)
LATER = NOW + 30 * DAY
"""When runs that ended at NOW are looked at again."""
BRIEF, LONG, PLAIN = map(TenantId, ("acme", "acme-2", "acme0"))
NEWEST = "run_newest"


def swept(store, keep=WEEK, at=LATER):
    """Remove the runs that ended so long before that moment."""
    return RunExpiry(SweptAt(store, at), keep, ManualClock(at)).tick()


async def over(store, run_id, agent=AGENT, at=NOW, **said):
    """Have the store hold a run that was accepted and cancelled at that moment."""
    accepted = await one(store, replace(submission(run_id, agent), at=at, **said))
    assert isinstance(accepted, RunAccepted), accepted
    await one(store, CancelRun(agent.tenant, RunId(run_id), at))


async def newest(store, tenant=DEFAULT_TENANT):
    """Have the tenant have a newest run, which stays, that no test is about."""
    await over(store, f"{NEWEST}_{tenant}", AgentRef.parse("clerk", tenant))


async def left(store, tenant=DEFAULT_TENANT):
    """Return the runs that there are, oldest first, but the newest."""
    found = [run.run_id for run in await store.read(RunFilter(tenant, limit=500))]
    return [each for each in found[::-1] if not each.startswith(NEWEST)]


async def mentions(store, *words):
    """Return the tables with a row in which any of the words is."""

    def look(connection):
        rows = {name: connection.execute(select(table)).all() for name, table in metadata.tables.items()}
        return {name for name, of in rows.items() for row in of if any(each in repr(tuple(row)) for each in words)}

    return await store._database.read(look)


async def test_a_run_goes_with_everything_that_is_its_own_and_nothing_else_changes(store):
    asked = replace(request("apr_1"), run_id=RunId("run_1"))
    facts = entries(3, EntryKind.APPROVAL_REQUESTED, EntryKind.RUN_WAITING)
    await store.apply([replace(submission("run_1", key="once"), callback_urls=(URL,)), activation("act_1")])
    await claimed(store)
    await store.apply(
        [
            AwaitApprovals(RunId("run_1"), AGENT, 1, facts, (asked,), blobs={"0" * 64: "You trade."}),
            AppendLedger((replace(record(1, AGENT, LedgerKind.RUN), run_id=RunId("run_1")),)),
            CancelRun(DEFAULT_TENANT, RunId("run_1"), NOW),
        ]
    )
    await claimed(store)
    await one(store, ending("run_1", 6, claim_next=False))
    await settle(store, "run_1")
    await over(store, "run_2", OTHER, at=LATER - DAY)
    await newest(store)
    assert await mentions(store, "run_1") == {"runs", "journal", "approvals", "callbacks", "idempotency_keys", "ledger"}
    await texts_stored_at(store, NOW)
    before = await store._database.read(_dump)

    assert await swept(store) == 1

    assert await mentions(store, "run_1") == {"ledger"}
    after = await store._database.read(_dump)
    assert {name: [*rows] for name, rows in after.items() if not rows <= before[name]} == {}
    gone = {name: len(rows - after[name]) for name, rows in before.items() if rows - after[name]}
    words = gone.pop("focus_terms")
    assert gone == {"runs": 1, "journal": 6, "approvals": 1, "callbacks": 1, "idempotency_keys": 1, "blobs": 1}
    assert words > 1
    assert await store.read(RunById(DEFAULT_TENANT, RunId("run_1"))) is None
    assert await store.read(LedgerBreaks(DEFAULT_TENANT)) == []
    assert len(await store.read(LedgerFilter(DEFAULT_TENANT, run_id=RunId("run_1")))) >= 1


def _dump(connection):
    tables = {name: table for name, table in metadata.tables.items() if name not in {"probes", "sweeps"}}
    return {name: set(map(tuple, connection.execute(select(table)).all())) for name, table in tables.items()}


async def test_usage_and_the_state_of_agents_stay(store):
    await store.apply([submission("run_1"), activation("act_1")])
    await claimed(store)
    await one(store, ending("run_1", claim_next=False))
    await newest(store)
    day = floored(NOW, Grain.DAY)
    told = [AgentByRef(AGENT), RunUsage(DEFAULT_TENANT, day, day + DAY)]
    before = [await store.read(each) for each in told]

    assert await swept(store) == 1

    assert [await store.read(each) for each in told] == before
    assert before[0].state.recent_outcomes == ("did it",)


@pytest.mark.parametrize(
    ("general", "kept"),
    [
        (WEEK, {DEFAULT_TENANT: [3], BRIEF: [], LONG: [3, 10], PLAIN: [3]}),
        (None, {DEFAULT_TENANT: [3, 10], BRIEF: [], LONG: [3, 10], PLAIN: [3, 10]}),
    ],
)
async def test_runs_are_kept_as_long_as_their_tenant_says_or_else_the_settings(store, general, kept):
    retentions = {BRIEF: Retention(run_days=2), LONG: Retention(run_days=0), PLAIN: Retention(webhook_days=1)}
    for tenant, retention in retentions.items():
        await one(store, PutTenant(Tenant(tenant, "somebody", NOW, "ada", retention=retention), None))
    for tenant in kept:
        for age in (3, 10):
            await over(store, f"run_{tenant}_{age}", AgentRef.parse("trader", tenant), LATER - age * DAY)
        await newest(store, tenant)

    await swept(store, general)

    found = {tenant: sorted(int(each.rpartition("_")[2]) for each in await left(store, tenant)) for tenant in kept}
    assert found == kept


async def test_nothing_is_removed_unless_somebody_says_so(store):
    await over(store, "run_1")
    await newest(store)

    assert await swept(store, None, LATER + 10_000 * DAY) == 0
    assert await left(store) == ["run_1"]


async def test_a_run_counts_from_its_end_and_stays_while_it_is_open(store):
    await one(store, submission("run_queued", OTHER))
    await store.apply([submission("run_executed"), activation("act_1")])
    await claimed(store)
    waits, third = "run_waits", AgentRef.parse("trader:WAITS")
    await store.apply([submission(waits, third), activation("act_2", third)])
    await claimed(store, agent=third)
    asked = replace(request("apr_1", third), run_id=RunId(waits))
    facts = entries(3, EntryKind.APPROVAL_REQUESTED, EntryKind.RUN_WAITING)
    await one(store, AwaitApprovals(RunId(waits), third, 1, facts, (asked,)))
    await newest(store)

    assert await swept(store) == 0
    await one(store, CancelRun(DEFAULT_TENANT, RunId("run_queued"), LATER))
    assert await swept(store) == 0
    assert await left(store) == ["run_queued", "run_executed", waits]
    assert await swept(store, at=LATER + 8 * DAY) == 1
    assert await left(store) == ["run_executed", waits]


def child(run_id, parent, agent=OTHER):
    """The submission of a run that another run of AGENT started."""
    lineage = Lineage(RunId(parent), RunId(parent), AGENT.agent_id, 1, ChildRole.WORKER)
    trigger = Trigger(TriggerKind.AGENT, None, "看", parent, lineage=lineage)
    return replace(submission(run_id, agent), trigger=trigger)


async def test_what_an_open_run_started_stays_so_that_it_is_not_started_again(store):
    await store.apply([submission("run_parent"), activation("act_1")])
    await claimed(store)
    await one(store, child("run_child", "run_parent"))
    await one(store, CancelRun(DEFAULT_TENANT, RunId("run_child"), NOW))
    await newest(store)

    assert await swept(store) == 0
    await one(store, ending("run_parent", claim_next=False))
    assert await swept(store) == 2


async def test_the_run_that_started_an_open_one_stays_so_that_this_knows_that_nobody_waits_for_it(store):
    await over(store, "run_parent")
    await one(store, child("run_child", "run_parent"))
    await newest(store)

    assert await swept(store) == 0
    await one(store, CancelRun(DEFAULT_TENANT, RunId("run_child"), NOW))
    assert await swept(store) == 2


async def settle(store, run_id, status=CallbackStatus.DELIVERED):
    (told,) = await store.read(CallbackFilter(DEFAULT_TENANT, run_id=RunId(run_id)))
    now = replace(
        told,
        status=status,
        delivered_at=NOW,
        next_try_at=NOW if status is CallbackStatus.PENDING else None,
        version=told.version + 1,
        changed_by="test",
    )
    await one(store, ChangeCallback(now))


async def test_a_run_stays_until_everybody_was_told_of_its_end(store):
    await over(store, "run_1", callback_urls=(URL,))
    await newest(store)
    assert await swept(store) == 0

    await settle(store, "run_1", CallbackStatus.DEAD)
    (run,) = (await store.read(OldRuns(DEFAULT_TENANT, LATER))).runs
    await settle(store, "run_1", CallbackStatus.PENDING)  # somebody has it sent again in the very moment
    whole = await store.read(JournalOfRun(DEFAULT_TENANT, RunId("run_1")))
    await one(store, ForgetEntries(DEFAULT_TENANT, run, 1, LATER))
    await one(store, ForgetRuns(DEFAULT_TENANT, (run,), LATER, NOW))
    assert await left(store) == ["run_1"]
    assert await store.read(JournalOfRun(DEFAULT_TENANT, RunId("run_1"))) == whole

    await settle(store, "run_1")
    assert await swept(store) == 1
    assert await store.read(CallbackFilter(DEFAULT_TENANT)) == []


async def test_a_callback_that_is_asked_for_again_in_the_commit_that_removes_its_run_does_not_come_back(store):
    await over(store, "run_1", callback_urls=(URL,))
    await newest(store)
    await settle(store, "run_1", CallbackStatus.DEAD)
    (run,) = (await store.read(OldRuns(DEFAULT_TENANT, LATER))).runs
    (callback,) = await store.read(CallbackFilter(DEFAULT_TENANT))
    again = ChangeCallback(
        replace(callback, status=CallbackStatus.PENDING, next_try_at=NOW, version=callback.version + 1)
    )

    await store.apply([ForgetRuns(DEFAULT_TENANT, (run,), LATER, NOW), again])

    assert await left(store) == []
    assert await store.read(CallbackFilter(DEFAULT_TENANT)) == []


async def test_what_fails_for_one_tenant_is_said_and_done_for_the_others(store):
    for tenant in (BRIEF, LONG):
        await one(store, PutTenant(Tenant(tenant, "", NOW, "ada", retention=Retention(run_days=1)), None))
        await over(store, "run_1" if tenant == BRIEF else "run_2", AgentRef.parse("trader", tenant))
        await newest(store, tenant)

    class Refusing(Counting):
        async def apply(self, commands):
            if BRIEF in {getattr(each, "tenant", None) for each in commands}:
                return [CommandFailed("deleted meanwhile")]
            return await store.apply(commands)

    with pytest.raises(StoreUnavailableError, match=r"acme were not removed: .*deleted meanwhile"):
        await swept(Refusing(store))

    assert (await left(store, BRIEF), await left(store, LONG)) == (["run_1"], [])


async def test_a_run_of_a_clock_that_was_ahead_keeps_none_behind_it(store):
    await over(store, "run_ahead", at=LATER + DAY)
    for each in range(3):
        await over(store, f"run_{each}", OTHER)
    await newest(store)
    page = await store.read(OldRuns(DEFAULT_TENANT, LATER - WEEK, limit=2))

    assert page.after is not None
    assert await swept(store) == 3


async def test_runs_with_many_words_are_few_in_a_transaction(store):
    focus = "".join(chr(0x4E00 + each) for each in range(400))
    for each in range(12):
        await over(store, f"run_{each}", OTHER, trigger=Trigger(TriggerKind.API, None, focus))
    await newest(store)
    sweep = Counting(store)

    await swept(sweep)

    assert await left(store) == []
    assert len(sweep.removed) == 3
    assert "focus_terms" not in await mentions(store, focus[:2])


async def fired(store, *minutes):
    """Have a schedule fire in these minutes after its first time; return the runs, which are over."""
    dues = [DUE + timedelta(minutes=each) for each in minutes]
    await one(store, CreateSchedule(schedule("sch_1"), 9))
    for due, following in zip(dues, [*dues[1:], DUE + DAY], strict=True):
        await one(store, firing("sch_1", due, following))
        await one(store, CancelRun(DEFAULT_TENANT, RunId(f"run-sch_1-{due.minute}"), NOW))
    return [f"run-sch_1-{due.minute}" for due in dues]


async def test_the_run_of_the_last_time_of_a_schedule_stays_as_long_as_it_goes_on(store):
    _first, last = await fired(store, 0, 5)
    await newest(store)

    assert await swept(store) == 1
    assert await left(store) == [last]
    assert [tick.run_id for tick in await store.read(TicksOfSchedule("sch_1", tenant=DEFAULT_TENANT))] == [last]

    await one(store, CancelSchedule(AGENT, "sch_1", NOW, becomes=ScheduleStatus.CANCELLED))
    assert (await store.read(ScheduleById(DEFAULT_TENANT, "sch_1"))).status is ScheduleStatus.CANCELLED
    assert await swept(store) == 1


async def test_a_backfill_runs_no_time_twice_whose_run_was_removed(store):
    await fired(store, 0, 5)
    await newest(store)
    await swept(store)

    assert await one(store, backfilling("sch_1", DUE)) == AlreadyFired()
    missed = backfilling("sch_1", DUE + timedelta(minutes=10))
    assert not isinstance(await one(store, missed), AlreadyFired)
    assert await one(store, missed) == AlreadyFired()


@pytest.mark.parametrize("joins", [False, True], ids=["alone", "joining a queued run"])
async def test_a_repeated_trigger_is_answered_as_before_for_a_day_however_briefly_runs_are_kept(store, joins):
    coalesce = {"busy": BusyPolicy.COALESCE} if joins else {}
    first = replace(submission("run_1", key="once"), **coalesce)
    await one(store, first)
    if joins:
        claim = IdempotencyClaim("once more", "b", NOW + DAY)
        merged = replace(first, run_id=RunId("run_joins"), idempotency=claim)
        assert (await one(store, merged)).merged
    await one(store, CancelRun(DEFAULT_TENANT, RunId("run_1"), NOW))
    await newest(store)
    again = replace(submission("run_x", key="once"), at=NOW + DAY - timedelta(seconds=1), **coalesce)

    assert await swept(store, timedelta(minutes=1), at=NOW + DAY + timedelta(minutes=30)) == 0
    answered = await one(store, again)
    assert (answered.run_id, answered.duplicate) == ("run_1", True)

    assert await swept(store, timedelta(minutes=1), at=NOW + DAY + timedelta(hours=2)) == 1
    assert "idempotency_keys" not in await mentions(store, "once", "run_1", "run_joins")
    new = await one(store, replace(again, at=NOW + DAY + timedelta(hours=2)))
    assert (new.run_id, new.duplicate) == ("run_x", False)


async def test_keys_that_are_still_good_stay(store):
    await over(store, "run_1")
    await one(store, replace(submission("run_2", OTHER), idempotency=IdempotencyClaim("good", "b", LATER + DAY)))
    await newest(store)

    assert await swept(store) == 1
    assert (await one(store, replace(submission("run_3", OTHER, key="good"), at=LATER))).duplicate


async def test_a_webhook_that_is_sent_again_is_recognised_when_its_run_is_gone(store):
    await one(store, receiving())
    await one(store, CancelRun(DEFAULT_TENANT, RunId("run_1_a"), NOW))
    await newest(store)
    assert await swept(store) == 1

    again = await one(store, receiving(receipt="b"))

    assert (again.duplicate, again.submitted, again.delivery.run_id) == (True, None, "run_1_a")
    assert await left(store) == []
    assert await store.read(DeliveryById(DEFAULT_TENANT, "whd_1")) is not None


async def test_no_number_of_a_run_is_used_again_and_none_is_smaller_than_before(store):
    for each in range(3):
        await over(store, f"run_{each}")
    highest = (await store.read(RunById(DEFAULT_TENANT, RunId("run_2")))).seq

    assert await swept(store) == 2

    assert await left(store) == ["run_2"]
    accepted = await one(store, submission("run_3"))
    assert accepted.seq > highest


async def test_lists_go_on_across_what_was_removed(store):
    for each in range(12):
        await over(store, f"run_{each}", at=NOW if each % 3 else LATER - DAY)
    await newest(store)
    kept = [f"run_{each}" for each in (9, 6, 3, 0)]

    assert await swept(store) == 8

    pages, before = [], None
    while True:
        page = await store.read(RunSearch(DEFAULT_TENANT, agent=AGENT, before_seq=before, limit=1))
        pages += [run.run_id for run in page.runs]
        if page.following is None:
            break
        before = (await store.read(RunById(DEFAULT_TENANT, page.following))).seq
    assert pages == kept
    words = await store.read(RunSearch(DEFAULT_TENANT, agent=AGENT, text="看看行情"))
    assert [run.run_id for run in words.runs] == kept
    since = await store.read(RunSearch(DEFAULT_TENANT, agent=AGENT, since=NOW - DAY, until=LATER))
    assert [run.run_id for run in since.runs] == kept


async def test_pages_end_where_runs_begin_that_are_younger(store):
    for each in range(5):
        await over(store, f"old_{each}")
    for each in range(5):
        await over(store, f"young_{each}", at=LATER)

    seen, after = [], 0
    while after is not None:
        page = await store.read(OldRuns(DEFAULT_TENANT, LATER - WEEK, after, limit=2))
        seen.append(len(page.runs))
        after = page.after
    assert seen == [2, 2, 1, 0]  # the third page has one that is old


async def journaled(store, run_id, number, agent=AGENT):
    """Have the store hold a run with so many entries in its journal that is over."""
    await store.apply([submission(run_id, agent), activation(f"act_{run_id}", agent)])
    run = await claimed(store, agent=agent)
    await one(store, AppendJournal(run.run.run_id, agent, 1, entries(3, *[EntryKind.TOOL_FINISHED] * (number - 3))))
    await one(store, ending(run_id, number, agent=agent, claim_next=False))


class Counting:
    """A store that says how many rows each of the sweep's transactions removes, and may die after some."""

    def __init__(self, store, most=None):
        self._store, self._most, self.removed = store, most, []
        self.read = store.read

    async def apply(self, commands):
        if not isinstance(commands[0], ForgetRuns | ForgetEntries):
            return await self._store.apply(commands)
        if len(self.removed) == self._most:
            raise StoreUnavailableError("killed")
        before = await self._store._database.read(_count)
        outcomes = await self._store.apply(commands)
        self.removed.append(before - await self._store._database.read(_count))
        return outcomes


def _count(connection):
    return sum(connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in ("runs", "journal"))


async def test_transactions_are_small_whatever_is_removed_and_a_sweep_that_was_killed_is_taken_up(store):
    agents = [AgentRef.parse(f"trader:{each}") for each in range(9)]
    for number, agent in zip((1_250, 400, 90, 90, 3, 3, 3, 700, 3), agents, strict=True):
        await journaled(store, f"run_{agent.key}", number, agent)
    for each in range(130):
        await over(store, f"run_more_{each}", OTHER)
    await newest(store)
    everything = await store._database.read(_count)

    sweeps = []
    for most in (1, 2, 3, 4, None):
        sweep = Counting(store, most)
        sweeps.append(sweep)
        if most is None:
            await swept(sweep)
        else:
            with pytest.raises(StoreUnavailableError, match="killed"):
                await swept(sweep)
            for run_id in await left(
                store
            ):  # what is there is whole, but for one that is too large for one transaction
                journal = await store.read(JournalOfRun(DEFAULT_TENANT, RunId(run_id)))
                assert journal[-1].kind in {EntryKind.RUN_FINISHED, EntryKind.CANCEL_REQUESTED}
                assert journal[0].seq == 1 or run_id in {"run_0", "run_7"}

    transactions = [number for sweep in sweeps for number in sweep.removed]
    assert max(transactions) <= 600
    assert await left(store) == []
    assert sum(transactions) == everything - await store._database.read(_count)
    assert "journal" not in await mentions(store, *(f"run_{agent.key}'" for agent in agents))


async def test_the_commands_themselves_remove_nothing_that_is_younger_open_or_somebody_elses(store):
    await over(store, "run_young", at=LATER)
    await one(store, submission("run_open", OTHER))
    await over(store, "run_other", AgentRef.parse("trader", BRIEF))
    before = LATER - WEEK

    for run_id in ("run_young", "run_open", "run_other", "run_none"):
        for command in (
            ForgetRuns(DEFAULT_TENANT, (OldRun(RunId(run_id), 1),), before, NOW),
            ForgetEntries(DEFAULT_TENANT, OldRun(RunId(run_id), 1), 99, before),
        ):
            await one(store, command)

    assert (await left(store), await left(store, BRIEF)) == (["run_young", "run_open"], ["run_other"])
    for tenant, run_id in ((DEFAULT_TENANT, "run_young"), (DEFAULT_TENANT, "run_open"), (BRIEF, "run_other")):
        assert (await store.read(JournalOfRun(tenant, RunId(run_id))))[0].seq == 1


async def test_a_command_that_is_repeated_does_no_more(store):
    await over(store, "run_1")
    await newest(store)
    (run,) = (await store.read(OldRuns(DEFAULT_TENANT, LATER))).runs
    command = ForgetRuns(DEFAULT_TENANT, (run,), LATER, NOW)

    first, second = await one(store, command), await one(store, command)

    assert (first, second) == (RunsForgotten(1), RunsForgotten(0))
    assert await left(store) == []


async def test_two_sweeps_at_once_remove_what_one_does(store, store_url):
    for each in range(60):
        await over(store, f"run_{each}", AgentRef.parse(f"trader:{each % 7}"))
    await newest(store)
    other = await open_store(store_url, writer="keeper-2")
    try:
        await asyncio.gather(swept(store), swept(other))
    finally:
        await other.close()

    assert await left(store) == []
    assert await mentions(store, "run_1'") == {"ledger"}


async def test_a_tenant_that_is_being_deleted_meanwhile_is_left_to_that(store):
    made = Tenant(BRIEF, "Acme", NOW, "ada", TenantStatus.SUSPENDED, retention=Retention(run_days=1))
    await one(store, PutTenant(replace(made, status=TenantStatus.ACTIVE), None))
    await over(store, "run_1", AgentRef.parse("trader", BRIEF))
    await newest(store, BRIEF)
    (run,) = (await store.read(OldRuns(BRIEF, LATER))).runs
    active = replace(made, status=TenantStatus.ACTIVE)
    await one(store, PutTenant(made, active))
    await one(store, PutTenant(replace(made, status=TenantStatus.DELETING, deletion=Deletion("ada", NOW)), made))

    assert isinstance(await one(store, ForgetRuns(BRIEF, (run,), LATER, NOW)), CommandFailed)
    assert await swept(store) == 0


async def test_what_is_left_of_a_tenant_can_be_exported(store):
    await one(store, PutTenant(Tenant(BRIEF, "somebody", NOW, "ada", retention=Retention(run_days=1)), None))
    agent = AgentRef.parse("trader", BRIEF)
    for each in range(3):
        await over(store, f"run_{each}", agent)
    await over(store, "run_young", agent, LATER)

    await swept(store, None)

    page = await store.read(TenantRowPage(BRIEF, "runs"))
    assert [row["run_id"] for row in page.rows] == ["run_young"]
    journal = await store.read(TenantRowPage(BRIEF, "journal", parents=tuple(page.keys)))
    assert {row["run_id"] for row in journal.rows} == {"run_young"}


async def test_approvals_of_runs_that_stay_stay(store):
    await store.apply([submission("run_1"), activation("act_1")])
    await claimed(store)
    asked = replace(request("apr_1"), run_id=RunId("run_1"))
    facts = entries(3, EntryKind.APPROVAL_REQUESTED, EntryKind.RUN_WAITING)
    await one(store, AwaitApprovals(RunId("run_1"), AGENT, 1, facts, (asked,)))
    await over(store, "run_2", OTHER)
    await newest(store)

    assert await swept(store) == 1
    assert len(await store.read(ApprovalFilter(DEFAULT_TENANT))) == 1
    assert (await store.read(RunById(DEFAULT_TENANT, RunId("run_1")))).status is RunStatus.WAITING
