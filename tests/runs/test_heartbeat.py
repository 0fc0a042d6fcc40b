"""Heartbeats, over a real store and the real engine; what the sources say is the test's."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentDefinition, AgentRef
from owlclaw_ray.domain.approval import Decision
from owlclaw_ray.domain.heartbeat import PENDING_EVENTS, EventSourceKind, Heartbeat
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import RunError, RunResult, RunStatus
from owlclaw_ray.domain.schedule import ScheduleKind, ScheduleStatus, TickOutcome
from owlclaw_ray.domain.tool import ToolError, ToolResult
from owlclaw_ray.domain.tool_call import ToolOutcome
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.domain.webhook import Delivery, DeliveryStatus
from owlclaw_ray.ids import DEFAULT_TENANT, DeliveryId, TenantId
from owlclaw_ray.runs.heartbeat import deliveries_of
from owlclaw_ray.schedules.heartbeat_schedules import HeartbeatScheduler
from owlclaw_ray.store.commands import CommandFailed, ReceiveDelivery
from owlclaw_ray.store.queries import (
    AgentByRef,
    DeliveryById,
    DeliveryFilter,
    JournalPosition,
    LedgerFilter,
    ProgressOfRuns,
    RunFilter,
    ScheduleFilter,
    TicksOfSchedule,
    WaitingDeliveries,
)
from owlclaw_ray.store.run_ends import ChainPositions, FactsOfRuns, RunsEndedAfter
from owlclaw_ray.store.sql.schema import metadata
from tests.properties import examples
from tests.world import Definitions, World, new_stores

SOLO = AgentRef.parse("solo")
RUNS = RunFilter(DEFAULT_TENANT, SOLO, limit=100_000)
DAY = 86_400


class Beating(World):
    """A world in which `solo` has heartbeats, and the sources say what `events` and `problems` hold."""

    def __init__(self, stores, heartbeat):
        definitions = Definitions()
        definitions._all["solo"] = replace(definitions.load("solo"), heartbeat=heartbeat)
        super().__init__(*stores, definitions=definitions)
        self.events, self.problems, self.failure = [], [], None
        self.requests, self.asked = [], 0
        self.seen = {}
        self.reply = self.answer_model

    @property
    def runtime(self):
        return self.nodes[0].runtime

    @property
    def store(self):
        return self.nodes[0].gate

    def set(self, heartbeat):
        solo: AgentDefinition = self.definitions.load("solo")
        self.definitions._all["solo"] = replace(solo, heartbeat=heartbeat)

    async def begin(self):
        await self.nodes[0].start()
        assert await self.runtime.heartbeats.tick() == 1
        return self

    async def beat(self, times=1, seconds=300):
        """Let that many heartbeats come, and deal with what they need."""
        for _ in range(times):
            self.pass_time(seconds)
            await self.runtime.schedule_firer.fire_all_due()
            await self.rest()
            await self.outcomes()

    def pass_time(self, seconds):
        """Move the time of day on; what sleeps goes on sleeping, which is nothing but the Directory."""
        self.clock._start += timedelta(seconds=seconds)

    async def rest(self):
        await self.clock.settle()
        while self.tools or self.models.pending:
            for call in tuple(self.tools):
                assert call.invocation.tool == PENDING_EVENTS
                self.asked += 1
                content = {"events": list(self.events), "problems": list(self.problems)}
                result = ToolResult(call.invocation.call_id, None if self.failure else content, self.failure)
                call.answer.set_result(ToolOutcome(result, 1))
            for call in tuple(self.models.pending):
                self.requests.append(call.request)
                self.reply(call)
            await self.clock.settle()

    async def outcomes(self):
        """What became of all runs of heartbeats, oldest first: their status, or why they were skipped. Idle ones are noted after
        each beat, for the next one replaces them.
        """
        for run in reversed(await self.beats()):
            self.seen[run.run_id] = run.result.error.type if run.status is RunStatus.SKIPPED else run.status.value
        return list(self.seen.values())

    async def beats(self):
        """The runs of heartbeats that the store has, newest first."""
        return [run for run in await self.store.read(RUNS) if run.trigger.kind is TriggerKind.HEARTBEAT]

    async def schedules(self):
        return list(await self.store.read(ScheduleFilter(DEFAULT_TENANT, SOLO)))


@pytest.fixture
def world(stores):
    return Beating(stores, Heartbeat())


MAIL = {"source": "events.mail", "pending": [{"id": "m1"}]}
ORDER = {"source": "events.orders", "pending": 3}


async def test_a_heartbeat_without_events_is_skipped_without_a_model_and_the_ledger_tells_when_that_began(world):
    await world.begin()
    await world.beat(3)

    records = [each.record for each in await world.store.read(LedgerFilter(DEFAULT_TENANT))]
    assert await world.outcomes() == ["no_events"] * 3
    assert [(each.kind, each.data["what"], each.data["why"]) for each in records] == [
        (LedgerKind.TRIGGER, "idle", "no_events")
    ]
    assert (world.requests, world.asked) == ([], 3)
    await world.end()


def rows_of(world):
    """How many rows each table of the store has, and how many characters all of them together."""
    with world.store._database._engine.connect() as connection:
        rows = {table.name: connection.execute(table.select()).all() for table in metadata.sorted_tables}
    return {name: len(found) for name, found in rows.items() if found}, len(str(rows))


async def test_an_idle_heartbeat_takes_the_place_of_the_last_one_and_the_store_does_not_grow(world):
    await world.begin()
    await world.beat(2)
    before, size = rows_of(world)
    await world.beat(200)
    after, larger = rows_of(world)

    [run] = await world.beats()
    [schedule] = await world.schedules()
    [tick] = await world.store.read(TicksOfSchedule(schedule.schedule_id))
    assert before == after
    assert (after["runs"], after["ticks"], after["ledger"], after.get("journal", 0)) == (1, 1, 1, 0)
    assert larger - size < 20
    assert (run.status, run.result.error.type) == (RunStatus.SKIPPED, "no_events")
    assert (tick.count, tick.run_id, tick.last_due_at - tick.due_at) == (202, run.run_id, 201 * timedelta(seconds=300))
    await world.end()


async def test_an_idle_heartbeat_is_no_run_that_ended_for_those_who_export_traces(world):
    await world.begin()
    await world.beat(3)
    world.events = [MAIL]
    await world.beat()
    await world.beat(3)

    [(chain, _)] = (await world.store.read(ChainPositions())).items()
    ended = await world.store.read(RunsEndedAfter(chain, 0, 100))
    [woken] = await world.store.read(FactsOfRuns([run_id for _, run_id in ended.runs]))
    assert woken.run.status is RunStatus.COMPLETED
    await world.end()


async def test_every_due_time_of_heartbeats_is_in_one_tick_whatever_became_of_them(world):
    """Times that are idle in a row are one tick; a beat that woke its agent, a failing source and an outage lie between others."""
    await world.begin()
    [schedule] = await world.schedules()
    started = schedule.next_due

    async def beat(times=1, events=(), problems=()):
        world.events, world.problems = list(events), list(problems)
        await world.beat(times)

    await beat(3)
    await beat(1, [MAIL])
    await beat(2, [MAIL])
    await beat(2)
    await beat(1, problems=[{"source": "events.orders", "message": "OSError: gone"}])
    await beat(2)
    world.pass_time(5 * 300)
    await beat(2)

    ticks = list(reversed(await world.store.read(TicksOfSchedule(schedule.schedule_id))))
    covered = [(tick.due_at - started) // timedelta(seconds=300) for tick in ticks]
    assert sum(tick.count for tick in ticks) == 18
    assert covered == [sum(tick.count for tick in ticks[:at]) for at in range(len(ticks))]
    assert [tick.count for tick in ticks] == [3, 1, 4, 1, 2, 5, 2]
    runs = {run.run_id for run in await world.store.read(RUNS)}
    assert {tick.run_id for tick in ticks} <= {None, *runs}
    await world.end()


async def test_whoever_follows_an_idle_heartbeat_is_told_of_its_end(world):
    heard = []
    world.store.tell(lambda run_ids, _: heard.extend(run_ids))
    await world.begin()
    await world.beat()

    [run] = await world.beats()
    [watched] = await world.store.read(ProgressOfRuns([JournalPosition(DEFAULT_TENANT, run.run_id, 2)]))
    assert heard[-1] == run.run_id
    assert (watched.entries, watched.status, watched.over) == ((), RunStatus.SKIPPED, True)
    await world.end()


async def test_what_is_pending_wakes_the_agent_once_and_what_is_new_again(world):
    await world.begin()
    seen = []
    for events in ([MAIL], [MAIL], [MAIL, ORDER], [], [MAIL, ORDER]):
        world.events = events
        await world.beat()
        seen.append((await world.outcomes())[-1])

    assert seen == ["completed", "unchanged", "completed", "no_events", "completed"]
    assert "m1" in world.requests[0].messages[0].content
    assert len(world.requests) == 3
    await world.end()


async def test_a_heartbeat_that_failed_to_think_wakes_the_agent_again(world):
    await world.begin()
    world.events = [MAIL]
    world.reply = lambda call: world.fail_model(call, "refused")
    await world.beat()
    world.reply = world.answer_model
    await world.beat(2)

    assert await world.outcomes() == ["failed", "completed", "unchanged"]
    await world.end()


async def test_the_system_prompt_of_a_heartbeat_is_that_of_other_triggers(world):
    await world.begin()
    world.nodes[0].submit(SOLO, "by hand")
    await world.rest()
    world.events = [MAIL]
    await world.beat()

    by_hand, beating = world.requests
    assert beating.system == by_hand.system
    assert beating.tools == by_hand.tools
    await world.end()


async def test_no_more_heartbeats_wake_the_agent_in_a_day_than_it_is_given(stores):
    world = await Beating(stores, Heartbeat(max_per_day=2)).begin()
    for number in range(4):
        world.events = [{"source": "queue", "pending": number + 1}]
        await world.beat()
    world.pass_time(DAY)
    await world.beat()

    assert await world.outcomes() == ["completed", "completed", "daily_limit", "daily_limit", "completed"]
    await world.end()


async def test_heartbeats_stop_when_nothing_happens_for_long_and_go_on_with_the_next_run(stores):
    world = await Beating(stores, Heartbeat(every_seconds=3_600, pause_after_idle_days=1)).begin()
    await world.beat(30, seconds=3_600)
    stopped = len(await world.outcomes())
    [paused] = await world.schedules()

    world.nodes[0].submit(SOLO, "good morning")
    await world.rest()
    [active] = await world.schedules()
    await world.beat(2, seconds=3_600)

    assert 24 <= stopped <= 26
    assert (paused.status, active.status) == (ScheduleStatus.PAUSED, ScheduleStatus.ACTIVE)
    assert len(await world.outcomes()) == stopped + 2
    assert len(world.requests) == 1
    await world.end()


async def test_heartbeats_that_a_person_sets_going_again_go_on_for_as_long_as_at_first(stores):
    world = await Beating(stores, Heartbeat(every_seconds=3_600, pause_after_idle_days=1)).begin()
    await world.beat(30, seconds=3_600)
    stopped = len(await world.outcomes())
    [paused] = await world.schedules()

    await world.runtime.timetable.resume(DEFAULT_TENANT, paused.schedule_id)
    await world.beat(20, seconds=3_600)
    went_on = len(await world.outcomes())
    await world.beat(10, seconds=3_600)
    [again] = await world.schedules()

    assert paused.status is again.status is ScheduleStatus.PAUSED
    assert went_on == stopped + 20
    await world.end()


async def test_an_unchanged_state_is_no_news_that_would_keep_heartbeats_going(stores):
    world = await Beating(stores, Heartbeat(every_seconds=3_600, pause_after_idle_days=1)).begin()
    world.events = [MAIL]
    await world.beat(40, seconds=3_600)

    [schedule] = await world.schedules()
    assert schedule.status is ScheduleStatus.PAUSED
    assert set((await world.outcomes())[1:]) == {"unchanged"}
    await world.end()


async def test_a_definition_that_gives_heartbeats_up_ends_them_and_one_that_takes_them_up_again_has_new_ones(world):
    await world.begin()
    await world.beat()
    world.set(None)
    assert await world.runtime.heartbeats.tick() == 0
    await world.beat(3)
    [over] = await world.schedules()
    world.set(Heartbeat())
    assert await world.runtime.heartbeats.tick() == 1
    await world.beat(2)

    assert await world.outcomes() == ["no_events", "disabled", "no_events", "no_events"]
    assert over.status is ScheduleStatus.DONE
    assert [each.status for each in await world.schedules()] == [ScheduleStatus.DONE, ScheduleStatus.ACTIVE]
    await world.end()


async def test_another_interval_takes_the_place_of_the_one_before_it(world):
    await world.begin()
    await world.beat()
    world.set(Heartbeat(every_seconds=600))
    assert await world.runtime.heartbeats.tick() == 1
    await world.beat(4)

    kinds = {each.interval_seconds: (each.kind, each.status) for each in await world.schedules()}
    assert kinds == {
        300: (ScheduleKind.HEARTBEAT, ScheduleStatus.DONE),
        600: (ScheduleKind.HEARTBEAT, ScheduleStatus.ACTIVE),
    }
    assert (await world.outcomes()).count("disabled") == 1
    await world.end()


async def test_heartbeats_that_somebody_cancelled_do_not_come_back_with_the_scheduler(world):
    await world.begin()
    [schedule] = await world.schedules()
    await world.runtime.timetable.cancel(DEFAULT_TENANT, schedule.schedule_id)
    after_a_restart = HeartbeatScheduler(world.store, world.definitions, world.clock)

    assert await after_a_restart.tick() == await after_a_restart.tick() == 0
    await world.beat(2)
    assert [each.status for each in await world.schedules()] == [ScheduleStatus.CANCELLED]
    assert await world.outcomes() == []
    world.set(Heartbeat(every_seconds=600))
    assert await after_a_restart.tick() == 1
    await world.end()


class Refusing:
    """The store of a world; it refuses the first schedules."""

    def __init__(self, store, times):
        self._store, self._times = store, times

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def apply(self, commands):
        self._times -= 1
        return [CommandFailed("no") for _ in commands] if self._times >= 0 else await self._store.apply(commands)


async def test_a_schedule_that_the_store_refused_is_made_at_the_next_look(world):
    await world.nodes[0].start()
    heartbeats = HeartbeatScheduler(Refusing(world.store, 2), world.definitions, world.clock)

    assert [await heartbeats.tick() for _ in range(4)] == [0, 0, 1, 0]
    assert len(await world.schedules()) == 1
    await world.end()


async def test_agents_of_every_tenant_have_heartbeats(world):
    await world.begin()
    theirs = AgentRef.parse("solo:1", TenantId("acme"))
    world.nodes[0].submit(theirs, "hello")
    await world.rest()

    assert await world.runtime.heartbeats.tick() == 1
    [schedule] = await world.store.read(ScheduleFilter(TenantId("acme")))
    await world.beat()
    runs = await world.store.read(RunFilter(TenantId("acme"), theirs))
    assert schedule.agent == theirs
    assert [(run.trigger.kind, run.status) for run in runs][:1] == [(TriggerKind.HEARTBEAT, RunStatus.SKIPPED)]
    await world.end()


async def test_what_a_heartbeat_saw_before_it_waited_for_an_approval_is_what_it_dealt_with(stores):
    """By the time of the decision something else is pending: that is news for the next heartbeat."""
    world = await Beating(stores, Heartbeat(max_per_day=2)).begin()
    world.events = [MAIL]
    world.reply = lambda call: world.answer_model(call, *([] if call.request.messages[1:] else ["risk"]))
    await world.beat()
    waiting = await world.outcomes()

    world.events = []
    await world.nodes[0].decide(0, Decision.DENY)
    await world.rest()
    record = await world.store.read(AgentByRef(SOLO))
    world.events, world.reply = [MAIL], world.answer_model
    await world.beat()
    world.events = [MAIL, ORDER]
    await world.beat()
    world.events = [ORDER]
    await world.beat()

    assert (waiting, record.state.pulse.woken) == (["waiting"], 1)
    assert await world.outcomes() == ["completed", "unchanged", "completed", "daily_limit"]
    assert world.asked == 4
    await world.end()


def delivered(name, size=9):
    event = {"focus": "看", "payload": name * size}
    return Delivery(
        DeliveryId(f"whd_{name}"),
        DEFAULT_TENANT,
        "shop",
        "rcp",
        datetime(2026, 1, 1, tzinfo=UTC),
        DeliveryStatus.WAITING,
        agent=SOLO,
        event=event,
    )


async def deliver(world, *deliveries):
    await world.store.apply([ReceiveDelivery(each) for each in deliveries])


async def look_into_the_inbox(world, *others):
    """What the sources say: the inbox first."""
    waiting = await world.store.read(WaitingDeliveries(SOLO))
    inbox = [
        {"delivery_id": each.delivery_id, **each.event, **({"failures": each.failures} if each.failures else {})}
        for each in waiting
    ]
    world.events = [*([{"source": "inbox", "pending": inbox}] if inbox else []), *others]


async def stands(world):
    found = await world.store.read(DeliveryFilter(DEFAULT_TENANT))
    return {each.delivery_id: each.status.value for each in found}


async def test_a_heartbeat_that_completes_handles_the_webhooks_that_it_saw(world):
    await world.begin()
    seen = []
    for news, others in (("a",), (MAIL,)), ((), (MAIL,)), (("b",), (MAIL,)), ((), ()):
        await deliver(world, *(delivered(each) for each in news))
        await look_into_the_inbox(world, *others)
        await world.beat()
        seen.append((await world.outcomes())[-1])

    assert seen == ["completed", "unchanged", "completed", "no_events"]
    assert await stands(world) == {"whd_a": "handled", "whd_b": "handled"}
    assert "aaaaaaaaa" in world.requests[0].messages[0].content
    await world.end()


async def test_webhooks_that_a_failed_heartbeat_saw_wait_for_the_next_one(world):
    await world.begin()
    await deliver(world, delivered("a"))
    await look_into_the_inbox(world)
    world.reply = lambda call: world.fail_model(call, "refused")
    await world.beat()
    after_failure = await stands(world)
    world.reply = world.answer_model
    await world.beat()

    assert await world.outcomes() == ["failed", "completed"]
    assert (after_failure, await stands(world)) == ({"whd_a": "waiting"}, {"whd_a": "handled"})
    await world.end()


async def test_a_webhook_that_heartbeats_fail_of_is_refused_and_those_beside_it_are_handled(world):
    await world.begin()
    await deliver(world, *(delivered(each) for each in "abc"))

    def poisoned(call):
        content = call.request.messages[0].content
        world.fail_model(call, "refused") if "bbbbbbbbb" in content else world.answer_model(call)

    world.reply = poisoned
    for _ in range(5):
        await look_into_the_inbox(world)
        await world.beat()

    refused = await world.store.read(DeliveryById(DEFAULT_TENANT, DeliveryId("whd_b")))
    assert await world.outcomes() == ["failed", "completed", "failed", "failed", "completed"]
    assert await stands(world) == {"whd_a": "handled", "whd_b": "refused", "whd_c": "handled"}
    assert refused.reason.startswith("3 heartbeats that saw it failed, the last one as failed: ")
    assert "failures" not in world.requests[1].messages[0].content
    await world.end()


@pytest.mark.parametrize(
    ("status", "type_", "retryable", "blamed"),
    [
        (RunStatus.FAILED, "model_failed", True, False),
        (RunStatus.TERMINATED, "budget_exhausted", False, False),
        (RunStatus.CANCELLED, "interrupted", False, False),
        (RunStatus.FAILED, "model_failed", False, True),
        (RunStatus.TERMINATED, "limit_reached", False, True),
        (RunStatus.TIMEOUT, "run_timeout", True, True),
    ],
)
def test_webhooks_are_not_blamed_for_what_has_nothing_to_do_with_them(status, type_, retryable, blamed):
    woken = {"events": [MAIL, {"source": "inbox", "pending": [{"delivery_id": "whd_a"}]}]}

    found = deliveries_of(woken, RunResult(status, error=RunError(type_, "", retryable)))

    assert found == (("whd_a",) if blamed else ())


async def test_a_webhook_that_comes_while_a_heartbeat_waits_is_left_to_the_next_one(world):
    await world.begin()
    await deliver(world, delivered("a"))
    await look_into_the_inbox(world)
    world.reply = lambda call: world.answer_model(call, *([] if call.request.messages[1:] else ["risk"]))
    await world.beat()
    await deliver(world, delivered("b"))
    await look_into_the_inbox(world)
    await world.nodes[0].decide(0, Decision.DENY)
    await world.rest()

    assert await stands(world) == {"whd_a": "handled", "whd_b": "waiting"}
    await world.end()


async def test_of_many_webhooks_a_heartbeat_sees_as_many_as_its_model_is_shown_whole(world):
    await world.begin()
    await deliver(world, *(delivered(each, 1_500) for each in "abcdefgh"))
    await look_into_the_inbox(world)
    await world.beat()
    first = await stands(world)
    for _ in range(8):
        await look_into_the_inbox(world)
        await world.beat()

    handled = sorted(each for each, status in first.items() if status == "handled")
    assert 1 < len(handled) < 8
    assert handled == [f"whd_{each}" for each in "abcdefgh"[: len(handled)]]
    assert all(f"{each * 1_500}" in world.requests[0].messages[0].content for each in "abcdefgh"[: len(handled)])
    assert set((await stands(world)).values()) == {"handled"}
    await world.end()


async def test_what_else_is_pending_leaves_webhooks_their_room(world):
    await world.begin()
    await deliver(world, *(delivered(each, 300) for each in "abc"))
    queue = {"source": "queue", "pending": [f"run_{number:026}" for number in range(100)]}
    await look_into_the_inbox(world, queue, {"source": "database", "pending": {"row": "x" * 9_000}})
    await world.beat()
    await look_into_the_inbox(world, queue, {"source": "database", "pending": {"row": "x" * 9_000}})
    await world.beat()

    shown = world.requests[0].messages[0].content
    assert all(each * 300 in shown for each in "abc")
    assert queue["pending"][0] in shown
    assert queue["pending"][99] not in shown
    assert '"left_out":1}' in shown
    assert await world.outcomes() == ["completed", "unchanged"]
    await world.end()


async def test_a_webhook_sets_heartbeats_going_that_stopped_because_nothing_happened_and_no_others(stores):
    world = await Beating(stores, Heartbeat(every_seconds=3_600, pause_after_idle_days=1)).begin()
    await world.beat(30, seconds=3_600)
    stopped = len(await world.outcomes())
    await deliver(world, delivered("a"))
    await look_into_the_inbox(world)
    await world.runtime.heartbeats.tick()
    await world.beat(2, seconds=3_600)
    went_on = (await world.outcomes())[stopped:]

    [schedule] = await world.schedules()
    await world.runtime.timetable.pause(DEFAULT_TENANT, schedule.schedule_id)
    await deliver(world, delivered("b"))
    await world.runtime.heartbeats.tick()

    assert went_on[0] == "completed"
    assert [each.status for each in await world.schedules()] == [ScheduleStatus.PAUSED]
    await world.end()


async def test_agents_with_keys_have_heartbeats_of_their_own_once_they_are_there(world):
    await world.begin()
    world.nodes[0].submit(AgentRef.parse("solo:1"), "hello")
    await world.rest()

    assert await world.runtime.heartbeats.tick() == 1
    assert await world.runtime.heartbeats.tick() == 0
    found = await world.store.read(ScheduleFilter(DEFAULT_TENANT))
    assert sorted(str(each.agent) for each in found) == ["solo", "solo:1"]
    await world.end()


async def test_sources_that_fail_wake_nobody_and_are_told_in_the_ledger(world):
    await world.begin()
    world.problems = [{"source": "events.orders", "message": "OSError: gone"}]
    await world.beat()
    world.failure = ToolError("timeout", "too slow", retryable=True)
    await world.beat()
    world.failure, world.events = None, [MAIL]
    await world.beat()

    warnings = await world.store.read(LedgerFilter(DEFAULT_TENANT, kind=LedgerKind.WARNING))
    assert await world.outcomes() == ["check_failed", "check_failed", "completed"]
    assert [each.record.data["source"] for each in warnings] == ["events.orders"] * 2
    await world.end()


async def test_heartbeats_without_events_leave_no_trace_in_what_the_agent_remembers(world):
    await world.begin()
    world.nodes[0].submit(SOLO, "by hand")
    await world.rest()
    await world.beat(9)

    record = await world.store.read(AgentByRef(SOLO))
    assert (record.state.runs, len(record.state.recent_outcomes)) == (1, 1)
    await world.end()


async def test_an_idle_agent_for_thirty_days_costs_no_model_call_and_every_look_is_counted(stores):
    rarely = Heartbeat(every_seconds=14_400, pause_after_idle_days=None)
    world = await Beating(stores, rarely).begin()
    await world.beat(30 * 6, seconds=14_400)

    [schedule] = await world.schedules()
    ticks = await world.store.read(TicksOfSchedule(schedule.schedule_id))
    told = await world.store.read(LedgerFilter(DEFAULT_TENANT, limit=10_000))
    assert world.requests == []
    assert [(each.record.data["what"], each.record.data["why"]) for each in told] == [("idle", "no_events")]
    assert await world.outcomes() == ["no_events"] * 180
    assert [(tick.outcome is TickOutcome.SKIPPED, tick.count) for tick in ticks] == [(False, 180)]
    await world.end()


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def own_stores():
    database, stores = new_stores()
    yield database, stores
    database._engine.dispose()


names = st.sampled_from(["events.mail", "queue", "schedules", "database", "events.orders"])
pending = st.recursive(
    st.integers(1, 9) | st.text(min_size=1, max_size=9), lambda inner: st.lists(inner, min_size=1), max_leaves=4
)
events_of = st.lists(st.fixed_dictionaries({"source": names, "pending": pending}), max_size=3)
sources = st.lists(st.sampled_from(EventSourceKind), min_size=1, unique=True).map(tuple)


async def _one_beat(stores, heartbeat, events, before=()):
    world = await Beating(stores, heartbeat).begin()
    for each in before:
        world.events = each
        await world.beat(seconds=heartbeat.every_seconds)
    world.events, asked, thought = events, world.asked, len(world.requests)
    await world.beat(seconds=heartbeat.every_seconds)
    outcome = (await world.outcomes())[-1]
    [last, *_] = await world.beats()
    await world.end()
    return outcome, world.asked - asked, world.requests[thought:], last.result


heartbeats = st.builds(Heartbeat, every_seconds=st.integers(60, 86_400), sources=sources)


@pytest.mark.property
@examples
@given(heartbeat=heartbeats, before=st.lists(events_of, max_size=1))
def test_property_14_a_heartbeat_without_events_ends_as_skipped_without_a_model_call(
    runner, own_stores, heartbeat, before
):
    outcome, asked, requests, result = runner.run(_one_beat(own_stores, heartbeat, [], before))

    assert (outcome, asked, requests) == ("no_events", 1, [])
    assert (result.status, result.error.type, result.turns) == (RunStatus.SKIPPED, "no_events", 0)


@pytest.mark.property
@examples
@given(heartbeat=heartbeats, before=st.lists(events_of, max_size=1), events=events_of.filter(bool))
def test_property_15_a_heartbeat_with_new_events_is_a_whole_run_with_a_model_that_sees_them(
    runner, own_stores, heartbeat, before, events
):
    outcome, asked, requests, result = runner.run(_one_beat(own_stores, heartbeat, events, before))

    dealt_with = [each for each in before if each]
    if before and before[-1] == events and dealt_with:
        assert (outcome, requests) == ("unchanged", [])
        return
    assert (outcome, asked, result.turns, len(requests)) == ("completed", 1, 1, 1)
    assert all(each["source"] in requests[0].messages[0].content for each in events)


def test_thirty_days_are_what_is_waited_for_by_default():
    assert timedelta(days=Heartbeat().pause_after_idle_days) == timedelta(days=30)
    assert Heartbeat().every_seconds == 300
