"""What every Store promises about schedules, as tests."""
# ruff: noqa: D102 - the names of the tests are the contract

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind, ScheduleStatus, Tick, TickOutcome
from owlclaw_ray.domain.trigger import BusyPolicy, Trigger, TriggerKind
from owlclaw_ray.ids import FiringId, RunId, ScheduleId
from owlclaw_ray.ports.store import (
    AlreadyFired,
    CancelSchedule,
    CreateSchedule,
    FireSchedule,
    ScheduleCancelled,
    ScheduleCreated,
    ScheduleFired,
    Store,
    SubmitRun,
    TooManySchedules,
)

NOW = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
DUE = NOW + timedelta(minutes=5)
AGENT = AgentRef.parse("trader:AAPL")
OTHER = AgentRef.parse("trader:MSFT")


def schedule(schedule_id: str, agent: AgentRef = AGENT, due: datetime = DUE) -> Schedule:
    """Return an active cron schedule of the agent."""
    return Schedule(
        ScheduleId(schedule_id), agent, ScheduleKind.CRON, "看盘\x00", NOW, due, "*/5 * * * *", "Asia/Shanghai"
    )


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
        assert await store.schedules(AGENT) == [first]

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

        assert await store.due_schedules(NOW) == []
        assert await store.due_schedules(DUE) == [early]
        assert await store.due_schedules(DUE + timedelta(days=1)) == [early, late]
        assert await store.due_schedules(DUE + timedelta(days=1), limit=1) == [early]
        assert await store.next_due() == DUE

    async def test_a_firing_queues_its_run_and_moves_the_schedule_on_once(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9)])
        following = DUE + timedelta(minutes=5)

        fired, raced = await store.apply([firing("sch_1", DUE, following), firing("sch_1", DUE, following)])
        resent = (await store.apply([firing("sch_1", DUE, following)]))[0]

        run = await store.run(AGENT.tenant, RunId("run-sch_1-35"))
        assert isinstance(fired, ScheduleFired)
        assert fired.run is not None
        assert run is not None
        assert (run.seq, run.trigger.source, run.status) == (fired.run.seq, "sch_1", RunStatus.QUEUED)
        assert raced == resent == AlreadyFired()
        assert await store.next_due() == following
        assert await store.ticks(ScheduleId("sch_1")) == list(firing("sch_1", DUE, following).ticks)

    async def test_a_known_firing_id_fires_nothing(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9), firing("sch_1", DUE, DUE)])

        assert (await store.apply([firing("sch_1", DUE, DUE)]))[0] == AlreadyFired()

    async def test_a_schedule_without_a_next_time_is_done(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9)])

        outcome = (await store.apply([firing("sch_1", DUE, None, queues=False)]))[0]

        assert outcome == ScheduleFired(None)
        assert await store.next_due() is None
        [done] = await store.schedules(AGENT)
        assert (done.status, done.next_fire_at) == (ScheduleStatus.DONE, None)

    async def test_a_firing_that_finds_its_agents_queue_full_is_skipped_and_says_why(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9), CreateSchedule(schedule("sch_2"), 9)])
        following = DUE + timedelta(minutes=5)
        first, second = (firing(each, DUE, following) for each in ("sch_1", "sch_2"))
        assert second.run is not None
        limited = replace(second, run=replace(second.run, queue_limit=1))

        outcomes = await store.apply([first, limited])
        resent = (await store.apply([limited]))[0]

        [tick] = await store.ticks(ScheduleId("sch_2"))
        assert (outcomes[1], resent) == (ScheduleFired(None), AlreadyFired())
        assert (tick.outcome, tick.run_id) == (TickOutcome.SKIPPED, None)
        assert tick.reason == "1 runs of the agent were queued, and no more may be (limits.queued_runs)"
        assert await store.run(AGENT.tenant, RunId("run-sch_2-35")) is None
        assert {each.next_fire_at for each in await store.schedules(AGENT)} == {following}

    async def test_a_firing_for_idle_agents_alone_is_skipped_where_its_agent_is_busy(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9), CreateSchedule(schedule("sch_2"), 9)])
        first, second = (firing(each, DUE, None) for each in ("sch_1", "sch_2"))
        assert second.run is not None

        await store.apply([first, replace(second, run=replace(second.run, busy=BusyPolicy.REJECT))])

        [tick] = await store.ticks(ScheduleId("sch_2"))
        assert (tick.outcome, tick.reason) == (TickOutcome.SKIPPED, "the agent was busy with run-sch_1-35")

    async def test_cancelling_names_the_runs_that_are_under_way(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9), firing("sch_1", DUE, DUE + timedelta(minutes=5))])

        first, second = await store.apply([CancelSchedule(AGENT, ScheduleId("sch_1"), NOW)] * 2)

        assert isinstance(first, ScheduleCancelled)
        assert isinstance(second, ScheduleCancelled)
        assert (first.cancelled, second.cancelled) == (True, False)
        assert first.running == second.running == ("run-sch_1-35",)
        assert (await store.apply([firing("sch_1", DUE + timedelta(minutes=5), None)]))[0] == AlreadyFired()

    async def test_only_the_agents_own_schedule_is_cancelled(self, store: Store) -> None:
        await store.apply([CreateSchedule(schedule("sch_1"), 9)])

        outcomes = await store.apply([CancelSchedule(OTHER, ScheduleId(each), NOW) for each in ("sch_1", "sch_2")])

        assert [isinstance(each, ScheduleCancelled) and each.cancelled for each in outcomes] == [False, False]
        assert await store.schedules(AGENT) == [schedule("sch_1")]
