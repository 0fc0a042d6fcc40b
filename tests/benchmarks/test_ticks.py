from datetime import timedelta

import pytest
from msgspec.structs import replace

from benchmarks import ticks
from benchmarks.ticks import START, Findings, compare, made
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.schedule import ScheduleKind
from owlclaw_ray.schedules.firings import plan_firing

DAY = timedelta(days=1)
END = START + DAY


def steady():
    """A schedule of an hour, its ticks of a day, and the runs that they tell of."""
    schedule = next(each for each in made(7) if each.kind is ScheduleKind.INTERVAL and each.interval_seconds == 3_600)
    told, runs, after = [], [], schedule
    for hours in range(3, 25, 3):
        now = START + timedelta(hours=hours)
        plan = plan_firing(after, now, DAY)
        told += plan.ticks
        if plan.run is not None:
            runs.append(Run(plan.run.run_id, len(runs), schedule.agent, plan.run.trigger, RunStatus.QUEUED, now))
        after = replace(after, next_fire_at=plan.next_fire_at)
    return schedule, told, runs


def broken(schedule, told, runs):
    findings = Findings()
    compare(schedule, told, runs, END, findings)
    return findings.broken


def test_what_is_whole_breaks_no_promise():
    findings = Findings()
    compare(*steady(), END, findings)

    assert findings.broken == []
    assert findings.due == findings.accounted == 24


def test_a_tick_that_is_missing_doubled_or_counts_wrongly_is_found():
    schedule, told, runs = steady()
    wrong = replace(told[0], count=told[0].count + 1)

    for ticks_told in (told[1:], [*told, told[0]], [wrong, *told[1:]]):
        assert "not in exactly one tick" in broken(schedule, ticks_told, runs)[0]


def test_a_run_that_is_missing_doubled_or_nobodys_is_found():
    schedule, told, runs = steady()

    assert "there are" in broken(schedule, told, runs[1:])[0]
    assert "has two runs" in broken(schedule, told, [*runs, replace(runs[0], run_id="run_x")])[-1]


def test_schedules_of_every_kind_are_made_the_same_every_time():
    assert made(7) == made(7) != made(8)
    assert {schedule.kind for schedule in made(7)} == set(ScheduleKind) - {ScheduleKind.HEARTBEAT}
    assert len({schedule.timezone for schedule in made(7)}) == 4


@pytest.mark.timeout(170)
def test_no_time_is_lost_or_fires_twice_when_processes_are_killed_and_clocks_jump(tmp_path):
    findings = ticks.run(4, 11, tmp_path)

    assert findings.broken == []
    assert findings.due == findings.accounted > ticks.SCHEDULES
    assert findings.runs > 0
