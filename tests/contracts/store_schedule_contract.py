"""What every Store promises about schedules, as tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import OverlapPolicy, Schedule, ScheduleKind, ScheduleStatus, Tick, TickOutcome
from owlclaw_ray.domain.trigger import BusyPolicy, Trigger, TriggerKind
from owlclaw_ray.ids import ActivationId, FiringId, RunId, ScheduleId, TenantId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    ActivateAgent,
    AlreadyFired,
    BackfillTick,
    CancelSchedule,
    ClaimRun,
    CreateSchedule,
    FireSchedule,
    NoSuchSchedule,
    PauseSchedule,
    QueueFull,
    ResumeSchedule,
    ScheduleCancelled,
    ScheduleChanged,
    ScheduleClosed,
    ScheduleCreated,
    ScheduleFired,
    SubmitRun,
    TooManySchedules,
)
from owlclaw_ray.store.queries import (
    ComingSchedules,
    DueSchedules,
    NextDueTime,
    RunById,
    ScheduleById,
    ScheduleFilter,
    SchedulesByIds,
    TicksOfSchedule,
    TickSum,
    TickSums,
)

NOW = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
DUE = NOW + timedelta(minutes=5)
AGENT = AgentRef.parse("trader:AAPL")
OTHER = AgentRef.parse("trader:MSFT")
ALL = ScheduleFilter(AGENT.tenant, AGENT)


def schedule(schedule_id: str, agent: AgentRef = AGENT, due: datetime = DUE) -> Schedule:
    """Return an active cron schedule of the agent."""
    rule = ("*/5 * * * *", "Asia/Shanghai")
    return Schedule(ScheduleId(schedule_id), agent, ScheduleKind.CRON, "看盘\x00", NOW, due, *rule, task_type="行情")


def firing(schedule_id: str, due: datetime, following: datetime | None, *, queues: bool = True) -> FireSchedule:
    """Return the firing of a due time, with a run of AGENT if it queues one."""
    run_id = RunId(f"run-{schedule_id}-{due.minute}")
    trigger = Trigger(TriggerKind.SCHEDULE_CRON, None, "看盘", schedule_id)
    outcome = TickOutcome.FIRED if queues else TickOutcome.SKIPPED
    firing_id = FiringId(f"fire-{schedule_id}-{due.minute}")
    tick = Tick(firing_id, ScheduleId(schedule_id), due, outcome, DUE, run_id if queues else None, "原因", due, 2)
    run = SubmitRun(run_id, AGENT, trigger, DUE) if queues else None
    return FireSchedule(ScheduleId(schedule_id), due, (tick,), following, run)


class ScheduleContract:
    """Schedules and their ticks."""

    async def test_a_schedule_is_stored_once(self, store: Store) -> None:
        first = schedule("sch_1")
        changed = replace(first, focus="another")

        outcomes = await store.apply([CreateSchedule(first, 9), CreateSchedule(changed, 9)])

        assert outcomes == [ScheduleCreated(first)] * 2
        assert (await store.apply([CreateSchedule(changed, 0)]))[0] == ScheduleCreated(first)
        assert await store.read(ALL) == [first]

    async def test_only_active_schedules_of_the_agent_count_to_its_limit(self, store: Store) -> None:
        outcomes = await store.apply(
            [
                CreateSchedule(schedule("sch_1"), 1),
                CreateSchedule(schedule("sch_2"), 1),
                CreateSchedule(schedule("sch_3", OTHER), 1),
                CancelSchedule(AGENT, ScheduleId("sch_1"), NOW),
                CreateSchedule(schedule("sch_2"), 1),
            ]
        )

        assert outcomes[1] == TooManySchedules(1)
        assert outcomes[2] == ScheduleCreated(schedule("sch_3", OTHER))
        assert outcomes[4] == ScheduleCreated(schedule("sch_2"))
        assert (await store.apply([CreateSchedule(schedule("sch_4"), 1)]))[0] == TooManySchedules(1)

    async def test_due_schedules_come_the_earliest_first(self, store: Store) -> None:
        late, early = schedule("sch_1", due=DUE + timedelta(hours=1)), schedule("sch_2", OTHER)
        await store.apply([CreateSchedule(late, 9), CreateSchedule(early, 9), CreateSchedule(schedule("sch_3"), 9)])
        await store.apply([CancelSchedule(AGENT, ScheduleId("sch_3"), NOW)])

        assert await store.read(DueSchedules(NOW)) == []
        assert await store.read(DueSchedules(DUE)) == [early]
        assert await store.read(DueSchedules(DUE + timedelta(days=1))) == [early, late]
        assert await store.read(DueSchedules(DUE + timedelta(days=1), limit=1)) == [early]
        assert await store.read(NextDueTime()) == DUE

    async def test_what_a_tenants_schedules_fire_next_comes_the_earliest_first(self, store: Store) -> None:
        hour = timedelta(hours=1)
        late, early = schedule("sch_1", due=DUE + hour), schedule("sch_2", OTHER)
        rule = {"kind": ScheduleKind.HEARTBEAT, "cron_expression": "", "interval_seconds": 60}
        beat = replace(schedule("sch_3", OTHER, DUE + hour / 2), **rule)
        paused, foreign = schedule("sch_4"), schedule("sch_5", AgentRef.parse("trader:AAPL", TenantId("acme")))
        await store.apply([CreateSchedule(each, 9) for each in (late, early, beat, paused, foreign)])
        await store.apply([PauseSchedule(AGENT, ScheduleId("sch_4"), NOW)])

        async def coming(until: datetime = DUE + timedelta(days=1), **fields: Any) -> list[Schedule]:
            return [*await store.read(ComingSchedules(AGENT.tenant, until, **fields))]

        assert await coming() == [early, beat, late]
        assert await coming(DUE) == []
        assert await coming(DUE + hour) == [early, beat]
        assert await coming(agent=OTHER) == [early, beat]
        assert await coming(heartbeats=False) == [early, late]
        assert await coming(heartbeats=True) == [beat]
        assert await coming(limit=2) == [early, beat]

    async def test_a_firing_queues_its_run_and_moves_the_schedule_on_once(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9)])
        following = DUE + timedelta(minutes=5)

        fired, raced = await store.apply([firing("sch_1", DUE, following), firing("sch_1", DUE, following)])
        resent = (await store.apply([firing("sch_1", DUE, following)]))[0]

        run = await store.read(RunById(AGENT.tenant, RunId("run-sch_1-35")))
        assert isinstance(fired, ScheduleFired)
        assert fired.run is not None
        assert run is not None
        assert (run.seq, run.trigger.source, run.status) == (fired.run.seq, "sch_1", RunStatus.QUEUED)
        assert raced == resent == AlreadyFired()
        assert await store.read(NextDueTime()) == following
        assert await store.read(TicksOfSchedule(ScheduleId("sch_1"))) == list(firing("sch_1", DUE, following).ticks)

    async def test_a_known_firing_id_fires_nothing(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9), firing("sch_1", DUE, DUE)])

        assert (await store.apply([firing("sch_1", DUE, DUE)]))[0] == AlreadyFired()

    async def test_a_schedule_without_a_next_time_is_done(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9)])

        outcome = (await store.apply([firing("sch_1", DUE, None, queues=False)]))[0]

        assert outcome == ScheduleFired(None)
        assert await store.read(NextDueTime()) is None
        [done] = await store.read(ALL)
        assert (done.status, done.next_fire_at) == (ScheduleStatus.DONE, None)

    async def test_a_firing_that_finds_its_agents_queue_full_is_skipped_and_says_why(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9), CreateSchedule(schedule("sch_2"), 9)])
        following = DUE + timedelta(minutes=5)
        first, second = (firing(each, DUE, following) for each in ("sch_1", "sch_2"))
        assert second.run is not None
        limited = replace(second, run=replace(second.run, queue_limit=1))

        outcomes = await store.apply([first, limited])
        resent = (await store.apply([limited]))[0]

        [tick] = await store.read(TicksOfSchedule(ScheduleId("sch_2")))
        assert (outcomes[1], resent) == (ScheduleFired(None), AlreadyFired())
        assert (tick.outcome, tick.run_id) == (TickOutcome.SKIPPED, None)
        assert tick.reason == "queue full: the agent had 1 queued run (limits.queued_runs)"
        assert await store.read(RunById(AGENT.tenant, RunId("run-sch_2-35"))) is None
        assert {each.next_fire_at for each in await store.read(ALL)} == {following}

    async def test_a_firing_for_idle_agents_alone_is_skipped_where_its_agent_is_busy(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9), CreateSchedule(schedule("sch_2"), 9)])
        first, second = (firing(each, DUE, None) for each in ("sch_1", "sch_2"))
        assert second.run is not None

        await store.apply([first, replace(second, run=replace(second.run, busy=BusyPolicy.REJECT))])

        [tick] = await store.read(TicksOfSchedule(ScheduleId("sch_2")))
        assert (tick.outcome, tick.reason) == (TickOutcome.SKIPPED, "the agent was busy with run-sch_1-35")

    async def test_cancelling_ends_the_runs_that_are_not_over_but_the_callers(self, store: Store) -> None:
        times = [DUE + timedelta(minutes=5 * number) for number in range(4)]
        await store.apply(
            [
                CreateSchedule(schedule("sch_1"), 9),
                *(firing("sch_1", due, after) for due, after in pairwise(times)),
                ActivateAgent(AGENT, ActivationId("act"), NOW),
                ClaimRun(AGENT, 1, NOW),
            ]
        )
        running, queued, caller = (RunId(f"run-sch_1-{due.minute}") for due in times[:3])

        first, second = await store.apply([CancelSchedule(AGENT, ScheduleId("sch_1"), NOW, caller)] * 2)

        assert isinstance(first, ScheduleCancelled)
        assert isinstance(second, ScheduleCancelled)
        assert (first.cancelled, second.cancelled) == (True, False)
        assert first.ending == second.ending == (running,)
        runs = [await store.read(RunById(AGENT.tenant, each)) for each in (running, queued, caller)]
        assert [each is not None and (each.status, each.cancel_requested) for each in runs] == [
            (RunStatus.RUNNING, True),
            (RunStatus.CANCELLED, True),
            (RunStatus.QUEUED, False),
        ]
        assert (await store.apply([firing("sch_1", times[3], None)]))[0] == AlreadyFired()

    async def test_only_the_agents_own_schedule_is_cancelled(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9)])

        outcomes = await store.apply([CancelSchedule(OTHER, ScheduleId(each), NOW) for each in ("sch_1", "sch_2")])

        assert [isinstance(each, ScheduleCancelled) and each.cancelled for each in outcomes] == [False, False]
        assert await store.read(ALL) == [schedule("sch_1")]

    async def test_a_paused_schedule_neither_fires_nor_is_due_and_goes_on_where_it_stood(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9)])
        pause, resume = (kind(AGENT, ScheduleId("sch_1"), NOW) for kind in (PauseSchedule, ResumeSchedule))

        paused, again = await store.apply([pause, pause])
        due, upcoming = await store.read(DueSchedules(DUE)), await store.read(NextDueTime())
        refused = (await store.apply([firing("sch_1", DUE, None)]))[0]
        goes_on, stays = await store.apply([resume, replace(resume, at=DUE)])

        assert paused == again == ScheduleChanged(replace(schedule("sch_1"), status=ScheduleStatus.PAUSED))
        assert (due, upcoming, refused) == ([], None, AlreadyFired())
        assert goes_on == stays == ScheduleChanged(replace(schedule("sch_1"), paused_until=NOW))
        assert (
            await store.read(DueSchedules(DUE))
            == await store.read(ALL)
            == [replace(schedule("sch_1"), paused_until=NOW)]
        )

    async def test_what_is_over_or_of_another_agent_is_neither_paused_nor_resumed(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule(each), 9) for each in ("sch_1", "sch_2")])
        await store.apply([CancelSchedule(AGENT, ScheduleId("sch_1"), NOW)])

        for kind in (PauseSchedule, ResumeSchedule):
            closed, strange, unknown = await store.apply(
                [
                    kind(AGENT, ScheduleId("sch_1"), NOW),
                    kind(OTHER, ScheduleId("sch_2"), NOW),
                    kind(AGENT, ScheduleId("x"), NOW),
                ]
            )

            assert isinstance(closed, ScheduleClosed)
            assert closed.schedule.status is ScheduleStatus.CANCELLED
            assert strange == unknown == NoSuchSchedule()

    async def test_paused_schedules_count_to_the_agents_limit(self, store: Store) -> None:
        outcomes = await store.apply(
            [
                CreateSchedule(schedule("sch_1"), 1),
                PauseSchedule(AGENT, ScheduleId("sch_1"), NOW),
                CreateSchedule(schedule("sch_2"), 1),
            ]
        )

        assert outcomes[2] == TooManySchedules(1)
        assert (await store.apply([CreateSchedule(schedule("sch_3"), 1)]))[0] == TooManySchedules(1)

    async def test_overlap_decides_by_the_runs_of_the_schedule_alone(self, store: Store) -> None:
        ids = [f"sch_{number}" for number in range(4)]
        after, last = DUE + timedelta(minutes=5), DUE + timedelta(minutes=10)
        await store.apply([CreateSchedule(schedule(each), 9) for each in ids])
        await store.apply([firing(each, DUE, after) for each in ids])

        policies = dict(zip(ids, OverlapPolicy, strict=True))
        outcomes = await store.apply([replace(firing(each, after, last), overlap=policies[each]) for each in ids])

        fired = {
            policies[each]: isinstance(found, ScheduleFired) and found.run is not None
            for each, found in zip(ids, outcomes, strict=True)
        }
        assert fired == {
            OverlapPolicy.BUFFER_ONE: False,
            OverlapPolicy.SKIP: False,
            OverlapPolicy.ENQUEUE: True,
            OverlapPolicy.CANCEL_PREVIOUS: True,
        }
        reasons = [(await store.read(TicksOfSchedule(ScheduleId(each))))[0].reason for each in ids]
        assert reasons[:2] == [
            "run-sch_0-35 of an earlier time was still queued (overlap: buffer_one)",
            "run-sch_1-35 of an earlier time was not over (overlap: skip)",
        ]
        cancelled = await store.read(RunById(AGENT.tenant, RunId("run-sch_3-35")))
        assert cancelled is not None
        assert cancelled.status is RunStatus.CANCELLED

    async def test_a_running_run_is_no_hindrance_to_one_that_waits_and_is_asked_to_end_by_cancel_previous(
        self, store: Store
    ) -> None:
        first, after, last = DUE, DUE + timedelta(minutes=5), DUE + timedelta(minutes=10)
        await store.apply(
            [
                CreateSchedule(schedule("sch_1"), 9),
                firing("sch_1", first, after),
                ActivateAgent(AGENT, ActivationId("act"), NOW),
                ClaimRun(AGENT, 1, NOW),
            ]
        )

        waits = (await store.apply([replace(firing("sch_1", after, last), overlap=OverlapPolicy.BUFFER_ONE)]))[0]
        ends = (await store.apply([replace(firing("sch_1", last, None), overlap=OverlapPolicy.CANCEL_PREVIOUS)]))[0]

        assert isinstance(waits, ScheduleFired)
        assert isinstance(ends, ScheduleFired)
        assert waits.run is not None
        assert (ends.ending, ends.ended) == (("run-sch_1-35",), ("run-sch_1-40",))
        assert await statuses(store, "run-sch_1-35", "run-sch_1-40", "run-sch_1-45") == [
            RunStatus.RUNNING,
            RunStatus.CANCELLED,
            RunStatus.QUEUED,
        ]

    async def test_a_backfill_queues_runs_of_past_times_once_and_leaves_the_schedule_where_it_is(
        self, store: Store
    ) -> None:
        past = [DUE - timedelta(minutes=5 * number) for number in (2, 1)]
        await store.apply([CreateSchedule(schedule("sch_1"), 9), firing("sch_1", DUE, DUE + timedelta(minutes=5))])

        outcomes = await store.apply([backfilling("sch_1", due) for due in (*past, DUE)])
        again = await store.apply([backfilling("sch_1", due) for due in past])

        assert [isinstance(each, ScheduleFired) for each in outcomes] == [True, True, False]
        assert [outcomes[2], *again] == [AlreadyFired()] * 3
        assert [each.due_at for each in await store.read(TicksOfSchedule(ScheduleId("sch_1")))] == [
            DUE,
            past[1],
            past[0],
        ]
        assert await store.read(NextDueTime()) == DUE + timedelta(minutes=5)

    async def test_a_backfill_is_refused_where_the_queue_is_full_or_the_schedule_is_over_or_of_another(
        self, store: Store
    ) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9), firing("sch_1", DUE, DUE + timedelta(minutes=5))])
        past = backfilling("sch_1", DUE - timedelta(minutes=5))

        full, strange = await store.apply(
            [replace(past, run=replace(past.run, queue_limit=1)), replace(past, agent=OTHER)]
        )
        cancelled, over = await store.apply([CancelSchedule(AGENT, ScheduleId("sch_1"), NOW), past])

        assert (full, strange) == (QueueFull(1), NoSuchSchedule())
        assert isinstance(cancelled, ScheduleCancelled)
        assert isinstance(over, ScheduleClosed)
        assert len(await store.read(TicksOfSchedule(ScheduleId("sch_1")))) == 1

    async def test_schedules_and_ticks_are_read_in_pages_by_their_tenant(self, store: Store) -> None:
        stranger = AgentRef.parse("trader:AAPL", TenantId("default0"))
        made = [schedule(f"sch_{number}") for number in range(3)]
        await store.apply(
            [
                *(CreateSchedule(each, 9) for each in made),
                CreateSchedule(schedule("sch_x", OTHER), 9),
                CreateSchedule(schedule("sch_y", stranger), 9),
                PauseSchedule(AGENT, ScheduleId("sch_1"), NOW),
                *(backfilling("sch_0", DUE - timedelta(minutes=5 * number)) for number in range(3)),
            ]
        )

        async def named(where: ScheduleFilter) -> list[str]:
            return [each.schedule_id for each in await store.read(where)]

        assert await named(ScheduleFilter(AGENT.tenant)) == ["sch_0", "sch_1", "sch_2", "sch_x"]
        assert await named(replace(ALL, limit=2)) == ["sch_0", "sch_1"]
        assert await named(replace(ALL, after=ScheduleId("sch_1"))) == ["sch_2"]
        for elsewhere in ("unknown", "sch_x", "sch_y"):
            assert await named(replace(ALL, after=ScheduleId(elsewhere))) == []
        assert await named(ScheduleFilter(AGENT.tenant, after=ScheduleId("sch_y"))) == []
        assert await named(replace(ALL, status=ScheduleStatus.PAUSED)) == ["sch_1"]
        assert await store.read(ScheduleById(AGENT.tenant, ScheduleId("sch_x"))) == schedule("sch_x", OTHER)
        assert await store.read(ScheduleById(AGENT.tenant, ScheduleId("sch_y"))) is None
        assert {
            each.schedule_id for each in await store.read(SchedulesByIds([ScheduleId("sch_y"), ScheduleId("no")]))
        } == {"sch_y"}
        newest = await store.read(TicksOfSchedule(ScheduleId("sch_0"), None, 2))
        assert [each.due_at for each in newest] == [DUE, DUE - timedelta(minutes=5)]
        assert [each.due_at for each in await store.read(TicksOfSchedule(ScheduleId("sch_0"), newest[-1].due_at))] == [
            DUE - timedelta(minutes=10)
        ]

    async def test_ticks_are_summed_by_spans_and_outcomes_and_those_of_one_tick_stay_together(
        self, store: Store
    ) -> None:
        hour, sch = timedelta(hours=1), ScheduleId("sch_1")
        await store.apply([CreateSchedule(schedule("sch_1"), 9), CreateSchedule(schedule("sch_2"), 9)])
        due = DUE
        for number, (outcome, count) in enumerate(
            [
                ("skipped", 9),
                ("fired", 1),
                ("skipped", 1),
                ("fired", 1),
                ("skipped", 12),
                ("caught_up", 1),
                ("fired", 1),
            ]
        ):
            found, ends = FiringId(f"fir_{number}"), due + (count - 1) * timedelta(minutes=5)
            tick = Tick(found, sch, due, TickOutcome(outcome), ends, None, "", ends if count > 1 else None, count)
            following = ends + timedelta(minutes=5)
            [said] = await store.apply([FireSchedule(sch, due, (tick,), following, None)])
            assert said == ScheduleFired(None)
            due = following

        bounds = (DUE + hour / 2, DUE + hour, DUE + 2 * hour, DUE + 2 * hour + timedelta(minutes=5))
        found = await store.read(TickSums(AGENT.tenant, sch, bounds))

        def at(minutes: int) -> datetime:
            return DUE + timedelta(minutes=minutes)

        assert found == [
            TickSum(-1, TickOutcome.SKIPPED, 9, DUE, at(40)),
            TickSum(0, TickOutcome.FIRED, 2, at(45), at(55)),
            TickSum(0, TickOutcome.SKIPPED, 1, at(50), at(50)),
            TickSum(1, TickOutcome.SKIPPED, 12, at(60), at(115)),
            TickSum(2, TickOutcome.CAUGHT_UP, 1, at(120), at(120)),
        ]
        assert await store.read(TickSums(AGENT.tenant, sch, (DUE + hour, DUE + 2 * hour))) == [
            replace(found[3], span=0)
        ]
        assert await store.read(TickSums(TenantId("acme"), sch, bounds)) == []
        assert await store.read(TickSums(AGENT.tenant, ScheduleId("sch_2"), bounds)) == []

    async def test_everything_that_a_schedule_says_is_read_as_it_was_written(self, store: Store) -> None:
        whole = replace(
            schedule("sch_1"),
            kind=ScheduleKind.INTERVAL,
            interval_seconds=90,
            jitter_seconds=7,
            overlap=OverlapPolicy.CANCEL_PREVIOUS,
            catch_up_seconds=0.5,
            paused_until=NOW,
            created_by_run=RunId("run_1"),
        )

        await store.apply([CreateSchedule(whole, 9)])

        assert await store.read(ScheduleById(AGENT.tenant, ScheduleId("sch_1"))) == whole


async def statuses(store: Store, *run_ids: str) -> list[RunStatus | None]:
    """Return where runs of AGENT stand."""
    runs = [await store.read(RunById(AGENT.tenant, RunId(each))) for each in run_ids]
    return [None if run is None else run.status for run in runs]


def backfilling(schedule_id: str, due: datetime, agent: AgentRef = AGENT) -> BackfillTick:
    """Return the backfill of a due time with a run of the agent."""
    fired = firing(schedule_id, due, None)
    assert fired.run is not None
    tick = replace(fired.ticks[0], firing_id=FiringId(f"back-{schedule_id}-{due:%H-%M}"), outcome=TickOutcome.CAUGHT_UP)
    return BackfillTick(agent, tick, replace(fired.run, agent=agent))
