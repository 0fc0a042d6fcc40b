"""Ticks, schedules that are over and texts of prompts go when they are old, and nothing that anything else names or needs."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy import select

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.retention import Kept, Retention
from owlclaw_ray.domain.schedule import ScheduleKind, ScheduleStatus
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, RunId, TenantId
from owlclaw_ray.runs.expiry import RunExpiry
from owlclaw_ray.store.commands import (
    AlreadyFired,
    AppendJournal,
    CancelRun,
    CancelSchedule,
    CreateSchedule,
    ForgetSchedules,
    ForgetTexts,
    IdleHeartbeat,
    NoteSweep,
    OldSchedule,
    PutTenant,
    RunAccepted,
    ScheduleFired,
)
from owlclaw_ray.store.old_runs import ClocksOfSweep, OldSchedules, OldTexts
from owlclaw_ray.store.queries import PromptTexts, ScheduleById, TicksOfSchedule
from owlclaw_ray.store.sql.codec import to_micros
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.sql.schema import blobs, schedules
from owlclaw_ray.testing.clock import ManualClock
from tests.contracts.store_commands import AGENT, NOW, OTHER, activation, claimed, ending, one, submission
from tests.contracts.store_schedule_contract import DUE, backfilling, firing, schedule
from tests.store.sql.sweeping import SweptAt, found_over_at, texts_stored_at

DAY, WEEK, MINUTE = timedelta(days=1), timedelta(days=7), timedelta(minutes=1)
LATER = NOW + 30 * DAY
"""When what was done at NOW is looked at again."""
BRIEF = TenantId("acme")
SYSTEM, TOOLS = "s" * 64, "t" * 64


def swept(store, keep=WEEK, at=LATER):
    """Remove what has been over for so long at that moment."""
    return RunExpiry(SweptAt(store, at), keep, ManualClock(at)).tick()


def keeping_a_week(tenant):
    """Make a tenant with a retention of its own."""
    return PutTenant(Tenant(tenant, "somebody", NOW, "ada", retention=Retention(run_days=7)), None)


async def newest(store, tenant=DEFAULT_TENANT):
    """Have the tenant have a newest run, which stays, that no test is about."""
    clerk = AgentRef.parse("clerk", tenant)
    assert isinstance(await one(store, submission(f"run_newest_{tenant}", clerk)), RunAccepted)
    await one(store, CancelRun(tenant, RunId(f"run_newest_{tenant}"), NOW))


def prompt(run_id, agent, *, seq=3, at=NOW, texts=True):
    """A run's prompt, which names two texts, with these or without, as a host sends it that stored them before."""
    entry = JournalEntry(seq, EntryKind.PROMPT_BUILT, at, {"system": SYSTEM, "tools": TOOLS, "user": "look"})
    given = {SYSTEM: "You trade.", TOOLS: "[]"} if texts else {}
    return AppendJournal(RunId(run_id), agent, 1, (entry,), blobs=given)


async def begun(store, run_id, agent=AGENT, at=NOW):
    """Have the store hold a run that is executed and has no prompt yet."""
    await store.apply([replace(submission(run_id, agent), at=at), activation(f"act_{run_id}", agent)])
    await claimed(store, agent=agent)


async def prompted(store, run_id, agent=AGENT, *, ends=True):
    """Have the store hold a run that named the texts, and is over or not."""
    await begun(store, run_id, agent)
    await one(store, prompt(run_id, agent))
    if ends:
        await one(store, ending(run_id, 4, agent=agent, claim_next=False))


async def texts(store):
    """Return the keys of all texts, each with when it was stored last."""
    found = await store._database.read(
        lambda connection: connection.execute(select(blobs.c.hash, blobs.c.used_at)).all()
    )
    return {row.hash: row.used_at for row in found}


async def test_texts_go_when_no_run_names_them_any_more_and_not_before(store):
    await prompted(store, "run_1")
    await prompted(store, "run_2", OTHER, ends=False)
    await newest(store)
    await texts_stored_at(store, NOW)

    assert await swept(store) == 1
    assert (await texts(store)).keys() == {SYSTEM, TOOLS}
    assert await store.read(PromptTexts(DEFAULT_TENANT, RunId("run_2"))) == {SYSTEM: "You trade.", TOOLS: "[]"}

    await one(store, ending("run_2", 4, agent=OTHER, claim_next=False))
    await texts_stored_at(store, NOW)
    assert await swept(store) == 1
    assert await texts(store) == {}


async def test_texts_that_a_run_names_are_not_looked_at_again_with_every_sweep(store):
    await prompted(store, "run_1", ends=False)
    await newest(store)
    await texts_stored_at(store, NOW)

    await swept(store)

    assert min((await texts(store)).values()) > to_micros(NOW)
    assert await store.read(OldTexts(DEFAULT_TENANT, NOW + MINUTE)) == []


async def test_texts_stay_for_a_week_longer_than_runs_after_they_were_stored_last(store):
    await prompted(store, "run_1")
    await newest(store)
    await texts_stored_at(store, LATER - 2 * WEEK)

    assert await swept(store) == 1
    assert (await texts(store)).keys() == {SYSTEM, TOOLS}
    await swept(store, at=LATER + MINUTE)
    assert await texts(store) == {}


async def test_a_text_that_is_stored_again_while_its_removal_was_decided_stays_with_what_names_it(store):
    await prompted(store, "run_1")
    await newest(store)
    await texts_stored_at(store, NOW)
    before = NOW + MINUTE
    assert await store.read(OldTexts(DEFAULT_TENANT, before)) == [SYSTEM, TOOLS]
    await begun(store, "run_2", OTHER)
    await one(store, prompt("run_2", OTHER))

    await one(store, ForgetTexts(DEFAULT_TENANT, (SYSTEM, TOOLS), (), before))

    assert await store.read(PromptTexts(DEFAULT_TENANT, RunId("run_2"))) == {SYSTEM: "You trade.", TOOLS: "[]"}


async def test_a_text_is_as_young_as_the_entry_that_names_it_where_the_clock_of_the_database_is_behind(store):
    ahead = NOW + 9_999 * DAY
    await begun(store, "run_1")

    await one(store, prompt("run_1", AGENT, at=ahead))

    assert {*(await texts(store)).values()} == {to_micros(ahead)}


async def test_texts_of_which_nobody_knows_when_they_were_stored_count_from_the_first_sweep(store):
    await prompted(store, "run_1", ends=False)
    await prompted(store, "run_2", OTHER)
    await newest(store)
    await texts_stored_at(store, None)

    await one(store, ForgetTexts(DEFAULT_TENANT, (SYSTEM,), (), LATER))
    assert await texts(store) == {SYSTEM: None, TOOLS: None}
    await swept(store)
    assert None not in (await texts(store)).values()


async def test_a_text_of_a_tenant_is_no_other_tenants(store):
    await one(store, keeping_a_week(BRIEF))
    acme = AgentRef.parse("trader", BRIEF)
    await prompted(store, "run_1", acme)
    await prompted(store, "run_2", ends=False)
    await newest(store, BRIEF)
    await texts_stored_at(store, NOW)

    assert await swept(store, None) == 1

    assert (await texts(store)).keys() == {SYSTEM, TOOLS}
    assert await store.read(PromptTexts(DEFAULT_TENANT, RunId("run_2"))) == {SYSTEM: "You trade.", TOOLS: "[]"}


async def test_no_text_is_missing_whose_runs_end_and_begin_while_two_sweep(store, store_url):
    """Hosts store the texts again, as they do when an hour has passed; whoever comes first, every prompt has its texts."""
    other = await open_store(store_url, writer="keeper-2")
    agents = [AgentRef.parse(f"trader:{each}") for each in range(12)]
    for number, agent in enumerate(agents):
        await begun(store, f"run_{number}", agent)
    await prompted(store, "run_old", OTHER)
    await newest(store)

    async def run(number, agent):
        await one(store if number % 2 else other, prompt(f"run_{number}", agent))

    try:
        for number, agent in enumerate(agents):
            await texts_stored_at(store, NOW - DAY)
            forget = ForgetTexts(DEFAULT_TENANT, (SYSTEM, TOOLS), (), NOW)
            await asyncio.gather(one(other, forget), run(number, agent), one(store, forget))
            found = await store.read(PromptTexts(DEFAULT_TENANT, RunId(f"run_{number}")))
            assert found.keys() == {SYSTEM, TOOLS}
    finally:
        await other.close()


async def fired(store, *minutes, ends=True):
    """Have a schedule fire in these minutes after its first time; its runs are over, or not."""
    dues = [DUE + each * MINUTE for each in minutes]
    await one(store, CreateSchedule(schedule("sch_1"), 9))
    for due, following in zip(dues, [*dues[1:], DUE + 40 * DAY], strict=True):
        assert isinstance(await one(store, firing("sch_1", due, following)), ScheduleFired)
        if ends:
            await one(store, CancelRun(DEFAULT_TENANT, RunId(f"run-sch_1-{due.minute}"), NOW))


async def dues_left(store, schedule_id="sch_1"):
    """Return the minutes after the first time of the ticks that there are, the newest first."""
    found = await store.read(TicksOfSchedule(schedule_id, tenant=DEFAULT_TENANT))
    return [(tick.due_at - DUE) // MINUTE for tick in found]


async def test_ticks_go_after_their_runs_and_the_last_one_of_a_schedule_that_goes_on_stays(store):
    await fired(store, 0, 5, 10)
    await newest(store)

    assert await swept(store) == 2

    assert await dues_left(store) == [10]
    found = await store.read(ScheduleById(DEFAULT_TENANT, "sch_1"))
    assert (found.status, found.next_fire_at) == (ScheduleStatus.ACTIVE, DUE + 40 * DAY)
    assert found.forgotten_until == DUE + 5 * MINUTE
    again = await one(store, firing("sch_1", DUE + 40 * DAY, DUE + 50 * DAY, queues=False))
    assert again == ScheduleFired(None)


async def test_a_tick_stays_while_its_run_is_there(store):
    await fired(store, 0, 5, 10, ends=False)
    await newest(store)

    await swept(store)
    assert await dues_left(store) == [10, 5, 0]
    await one(store, CancelRun(DEFAULT_TENANT, RunId("run-sch_1-40"), NOW))
    await swept(store)
    assert await dues_left(store) == [10, 0]


async def test_a_tick_without_a_run_stays_while_it_is_young(store):
    await one(store, CreateSchedule(schedule("sch_1"), 9))
    for minutes in (0, 5):
        due = DUE + minutes * MINUTE
        await one(store, firing("sch_1", due, due + 5 * MINUTE, queues=False))
    await newest(store)

    await swept(store, at=DUE + WEEK)
    assert await dues_left(store) == [5, 0]
    await swept(store, at=DUE + WEEK + MINUTE)
    assert await dues_left(store) == [5]
    await swept(store)
    assert await dues_left(store) == [5]  # the last one, however old


async def test_a_tick_for_several_times_counts_from_the_last_of_them(store):
    last = LATER - WEEK + MINUTE
    command = firing("sch_1", DUE, DUE + 40 * DAY, queues=False)
    series = replace(command, ticks=(replace(command.ticks[0], last_due_at=last),))
    await one(store, CreateSchedule(schedule("sch_1"), 9))
    await one(store, replace(series, next_fire_at=DUE + 5 * MINUTE))
    await one(store, firing("sch_1", DUE + 5 * MINUTE, DUE + 50 * DAY, queues=False))
    await newest(store)

    await swept(store)
    assert len(await dues_left(store)) == 2
    await swept(store, at=LATER + 2 * MINUTE)
    assert len(await dues_left(store)) == 1
    assert (await store.read(ScheduleById(DEFAULT_TENANT, "sch_1"))).forgotten_until == last


async def test_a_backfill_runs_no_time_whose_tick_was_removed_nor_one_before_that(store):
    await fired(store, 0, 5, 10)
    await newest(store)
    await swept(store)

    for minutes in (-5, 0, 5):
        assert await one(store, backfilling("sch_1", DUE + minutes * MINUTE)) == AlreadyFired()
    assert await one(store, backfilling("sch_1", DUE + 10 * MINUTE)) == AlreadyFired()
    assert isinstance(await one(store, backfilling("sch_1", DUE + 15 * MINUTE)), ScheduleFired)


async def test_a_schedule_that_is_over_goes_with_its_ticks_so_long_after_it_was_found_to_be(store):
    await fired(store, 0, 5)
    await one(store, CancelSchedule(AGENT, "sch_1", NOW))
    await newest(store)

    await swept(store)
    assert await dues_left(store) == []
    assert await store.read(ScheduleById(DEFAULT_TENANT, "sch_1")) is not None
    await swept(store, at=LATER + WEEK)
    assert await store.read(ScheduleById(DEFAULT_TENANT, "sch_1")) is not None
    await swept(store, at=LATER + WEEK + MINUTE)
    assert await store.read(ScheduleById(DEFAULT_TENANT, "sch_1")) is None


async def test_schedules_stay_that_go_on_that_are_of_heartbeats_and_whose_making_may_be_repeated(store):
    """A cancelled heartbeat says that there shall be none, a run that is resumed asks again for the schedules that it made."""
    await begun(store, "run_maker", OTHER)
    kinds = {
        "sch_open": schedule("sch_open"),
        "sch_beat": replace(schedule("sch_beat"), kind=ScheduleKind.HEARTBEAT),
        "sch_made": replace(schedule("sch_made"), created_by_run=RunId("run_maker")),
        "sch_over": schedule("sch_over"),
    }
    for schedule_id, made in kinds.items():
        await one(store, CreateSchedule(made, 9))
        if schedule_id != "sch_open":
            await one(store, CancelSchedule(AGENT, schedule_id, NOW))
    await newest(store)
    await found_over_at(store, NOW)

    await swept(store)

    left = {each for each in kinds if await store.read(ScheduleById(DEFAULT_TENANT, each)) is not None}
    assert left == {"sch_open", "sch_beat", "sch_made"}


async def test_the_command_removes_no_schedule_that_is_open_or_has_ticks(store):
    await fired(store, 0)
    given = (OldSchedule("sch_1", AGENT),)
    await one(store, ForgetSchedules(DEFAULT_TENANT, given, (), LATER))
    assert await store.read(ScheduleById(DEFAULT_TENANT, "sch_1")) is not None

    await one(store, CancelSchedule(AGENT, "sch_1", NOW))
    await one(store, ForgetSchedules(DEFAULT_TENANT, given, (), LATER))
    assert await store.read(ScheduleById(DEFAULT_TENANT, "sch_1")) is not None


async def test_ticks_of_heartbeats_go_and_the_series_that_grows_stays(store):
    beating = replace(schedule("sch_1"), kind=ScheduleKind.HEARTBEAT)
    await one(store, CreateSchedule(beating, 9))
    await store.apply([activation("act_1")])
    before = None
    for number in range(4):
        due = DUE + number * MINUTE
        await one(store, firing("sch_1", due, due + MINUTE))
        run_id = (await claimed(store)).run.run_id
        news = number == 1  # between two series
        idle = None if news else IdleHeartbeat(before, 60)
        await one(store, replace(ending(run_id, claim_next=False), idle=idle))
        before = before if news else run_id
    await newest(store)
    assert len(await dues_left(store)) > 2

    await swept(store)

    assert await dues_left(store) == [2]  # the times 2 and 3, in one tick, whose run is the last one


async def test_every_tenant_has_its_own_time_and_nothing_goes_without_one(store):
    acme = AgentRef.parse("trader:AAPL", BRIEF)
    for number, agent in enumerate((AGENT, acme)):
        made = schedule(f"sch_{number}", agent)
        await one(store, CreateSchedule(made, 9))
        await one(store, CancelSchedule(agent, made.schedule_id, NOW))
    await found_over_at(store, NOW)
    await swept(store, None)
    await one(store, keeping_a_week(BRIEF))
    await swept(store, None)

    assert await store.read(ScheduleById(DEFAULT_TENANT, "sch_0")) is not None
    assert await store.read(ScheduleById(BRIEF, "sch_1")) is None


class Small:
    """A store whose pages are small, and that dies after so many transactions."""

    def __init__(self, store, most):
        self._store, self._most, self.commands = store, most, []

    async def read(self, query):
        if isinstance(query, OldSchedules):
            query = replace(query, ticks=2, schedules=2)
        return await self._store.read(replace(query, limit=1) if isinstance(query, OldTexts) else query)

    async def apply(self, commands):
        if len(self.commands) == self._most:
            raise StoreUnavailableError("killed")
        self.commands += commands
        return await self._store.apply(commands)


async def test_what_is_left_behind_goes_in_small_transactions_and_a_sweep_that_was_killed_is_taken_up(store):
    for number in range(5):
        made = schedule(f"sch_{number}")
        await one(store, CreateSchedule(made, 9))
        for minutes in range(3):
            due = DUE + minutes * MINUTE
            fires = firing(made.schedule_id, due, due + MINUTE, queues=False)
            assert isinstance(await one(store, fires), ScheduleFired)
        await one(store, CancelSchedule(AGENT, made.schedule_id, NOW))
    await found_over_at(store, NOW)
    await prompted(store, "run_1")
    await newest(store)
    await texts_stored_at(store, NOW)

    for most in (1, 2, 3, 5):
        with pytest.raises(StoreUnavailableError, match="killed"):
            await swept(Small(store, most))
    assert await store.read(ScheduleById(DEFAULT_TENANT, "sch_4")) is not None
    last = Small(store, None)
    await swept(last)

    assert await store._database.read(lambda found: found.execute(select(schedules)).all()) == []
    assert [await dues_left(store, f"sch_{each}") for each in range(5)] == 5 * [[]]
    assert await texts(store) == {}


async def test_the_store_tells_by_what_a_clock_can_be_judged(store):
    assert (await store.read(ClocksOfSweep(Kept.RUNS))).newest is None
    await newest(store)
    for moment in (NOW, NOW + DAY, NOW - DAY):
        await one(store, NoteSweep(Kept.RUNS, moment))

    clocks = await store.read(ClocksOfSweep(Kept.RUNS))

    assert (clocks.swept, clocks.newest) == (NOW + DAY, NOW)
    assert (await store.read(ClocksOfSweep(Kept.WEBHOOKS))).swept is None
    has_its_own = "postgresql" in type(store._database).__name__.lower()
    assert (clocks.database is not None) == has_its_own


async def test_a_clock_that_is_a_year_ahead_removes_a_days_worth_with_each_sweep_and_says_so(store, caplog):
    at = NOW - 30 * DAY
    for each in range(30):
        run_id = f"run_{each}"
        await one(store, replace(submission(run_id, OTHER), at=at + each * DAY))
        await one(store, CancelRun(DEFAULT_TENANT, RunId(run_id), at + each * DAY))
    await newest(store)
    wrong, right = ManualClock(NOW + 365 * DAY), ManualClock(NOW + timedelta(hours=3))
    sweeps = [await RunExpiry(Seeing(store), 10 * DAY, right).tick()]
    assert sweeps == [21]
    assert caplog.text == ""

    sweeps = [await RunExpiry(Seeing(store), 10 * DAY, wrong).tick() for _ in range(3)]

    assert sweeps == [1, 1, 1]
    assert caplog.text.count("a wrong clock does not remove everything") == 3
    caplog.clear()
    assert await RunExpiry(Seeing(store), 10 * DAY, right).tick() == 0
    assert caplog.text == ""


class Seeing:
    """A store whose database has no clock of its own, whichever it is."""

    def __init__(self, store):
        self._store, self.apply = store, store.apply

    async def read(self, query):
        found = await self._store.read(query)
        return replace(found, database=None) if isinstance(query, ClocksOfSweep) else found
