"""Whether every due time is accounted for once while processes are killed and clocks jump.

A process fires schedules from a store on disk, with a clock that runs fast, starts somewhere else than the last one stopped, and is
set forward and back while it runs; some schedules are paused and resumed by the way. It is killed (SIGKILL) at a random moment, and
another takes its place. In the end everything that is due is fired, and the ticks and runs in the store are compared with the
due times that the schedules had.

`python -m benchmarks.ticks --trials 100 --seed 7` prints what was found; the exit code is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import sys
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from msgspec.structs import replace
from typing_extensions import override

from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, Limits, ModelChoice
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.schedule import OverlapPolicy, Schedule, ScheduleKind, ScheduleStatus, Tick, TickOutcome
from owlclaw_ray.ids import DEFAULT_TENANT, ScheduleId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.schedules.cron import next_fire
from owlclaw_ray.schedules.firings import ScheduleFirer, due_times_between
from owlclaw_ray.schedules.scheduler import Scheduler
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import Command, CreateSchedule, Outcome, PauseSchedule, ResumeSchedule
from owlclaw_ray.store.queries import Query, RunFilter, ScheduleFilter, TicksOfSchedule
from owlclaw_ray.store.sql.factory import open_store

SCHEDULES = 200
START = datetime(2026, 3, 5, 12, tzinfo=UTC)
"""Before clocks are set forward in New York and Berlin, and back on Lord Howe Island."""
SPEED = 600.0
_T = TypeVar("_T")
_FORWARD, _BACK = timedelta(hours=8), timedelta(hours=3)
_MOST_TRANSACTIONS = 20
"""Before a process is killed, and _LONGEST_WAIT seconds: so that it dies before, in and after transactions on any machine."""
_LONGEST_WAIT = 0.05
_AGENTS = 20
_MOST_TIMES = 1_000_000
_ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe")
_EXPRESSIONS = ("*/15 * * * *", "30 2 * * *", "30 1 * * *", "@hourly", "*/7 1-5 * * *", "0 9 * * MON-FRI")
_INTERVALS = (60, 61, 900, 3_600)


class SetClock(SystemClock):
    """A clock whose time of day runs fast and can be set; durations are real."""

    def __init__(self, at: datetime) -> None:
        self._at, self._began = at, time.monotonic()

    def now(self) -> datetime:
        """Return the time of day."""
        return self._at + timedelta(seconds=(time.monotonic() - self._began) * SPEED)

    def set_by(self, change: timedelta) -> None:
        """Set the time of day forward or back."""
        self._at += change


class AnyDefinition:
    """Implements Definitions: agents of every name, whose queues hold what there is."""

    async def get(self, name: str) -> AgentDefinition:
        """Return a definition."""
        limits = Limits(queued_runs=1_000_000)
        return AgentDefinition(name, "1", "", "", "", "", ModelChoice(("scripted:echo",)), limits)


@dataclass(frozen=True, slots=True)
class ServerLifecycle:
    """What one process is to do until it is killed."""

    folder: str
    begins_at: datetime
    seed: int


@dataclass(slots=True)
class Findings:
    """What the store says in the end."""

    trials: int = 0
    due: int = 0
    ticks: int = 0
    accounted: int = 0
    runs: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    """What must not be, in words."""


def url_of(folder: str) -> str:
    """Return the store's URL."""
    return f"sqlite:///{folder}/owlclaw.db"


def made(seed: int) -> list[Schedule]:
    """Return schedules of every kind."""
    chance = random.Random(seed)  # noqa: S311 - it is to be the same every time
    return [_schedule(number, chance) for number in range(SCHEDULES)]


def _schedule(number: int, chance: random.Random) -> Schedule:
    agent = AgentRef.parse(f"watch:{number % _AGENTS}")
    kind = chance.choice((ScheduleKind.CRON, ScheduleKind.CRON, ScheduleKind.INTERVAL, ScheduleKind.ONCE))
    schedule = Schedule(ScheduleId(f"sch_{number:03}"), agent, kind, "look", START, START)
    recurring = replace(
        schedule,
        jitter_seconds=chance.choice((0, 0, 40)),
        overlap=chance.choice(list(OverlapPolicy)),
        catch_up_seconds=chance.choice((None, None, 0.0, 7_200.0)),
    )
    match kind:
        case ScheduleKind.ONCE:
            return replace(schedule, next_fire_at=START + timedelta(minutes=chance.randrange(1, 10_000)))
        case ScheduleKind.INTERVAL | ScheduleKind.HEARTBEAT:
            due = START + timedelta(seconds=chance.randrange(1, 3_600))
            return replace(recurring, interval_seconds=chance.choice(_INTERVALS), next_fire_at=due + recurring.delay)
        case ScheduleKind.CRON:
            expression, zone = chance.choice(_EXPRESSIONS), chance.choice(_ZONES)
            due = next_fire(expression, zone, START)
            return replace(recurring, cron_expression=expression, timezone=zone, next_fire_at=due + recurring.delay)


def run(trials: int, seed: int, folder: Path) -> Findings:
    """Fire schedules through so many processes that are killed, and return what became of their due times."""
    asyncio.run(_store_all(folder, made(seed)))
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    chance = random.Random(seed)  # noqa: S311 - it is to be the same every time
    now = latest = START
    for trial in range(trials):
        now += chance.uniform(-1, 1) * (_FORWARD if chance.random() < 0.7 else _BACK) + _FORWARD / 4
        now = max(now, START)
        ours, theirs = processes.Pipe()
        process = processes.Process(target=live, args=(ServerLifecycle(str(folder), now, seed + trial), theirs))
        process.start()
        theirs.close()
        for _ in range(chance.randrange(_MOST_TRANSACTIONS)):
            ours.recv()
        time.sleep(chance.uniform(0.0, _LONGEST_WAIT))
        process.kill()
        process.join()
        latest = max(latest, now + _FORWARD + timedelta(seconds=SPEED))
    return asyncio.run(_found(folder, trials, made(seed), latest + timedelta(days=1)))


async def _store_all(folder: Path, schedules: Sequence[Schedule]) -> None:
    store = await open_store(url_of(str(folder)), writer="first")
    await store.apply([CreateSchedule(each, SCHEDULES) for each in schedules])
    await store.close()


class Telling(Store):
    """A store that tells the parent of each transaction before it begins."""

    def __init__(self, store: Store, parent: Connection) -> None:
        self._store, self._parent = store, parent

    @override
    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        self._parent.send(None)
        return await self._store.apply(commands)

    @override
    async def read(self, query: Query[_T]) -> _T:
        return await self._store.read(query)

    @override
    async def check_writable(self) -> None:
        await self._store.check_writable()

    @override
    async def close(self) -> None:
        await self._store.close()


def live(life: ServerLifecycle, parent: Connection) -> None:
    """Fire schedules until the process is killed."""
    asyncio.run(_live(life, parent))


async def _live(life: ServerLifecycle, parent: Connection) -> None:
    chance = random.Random(life.seed)  # noqa: S311 - it is to be the same every time
    clock, store = SetClock(life.begins_at), Telling(await open_store(url_of(life.folder), writer="killed"), parent)
    scheduler = Scheduler(schedule_firer=_store_firer(store, clock), store=store, clock=clock, poll=0.005)
    scheduler.start()
    while True:
        await asyncio.sleep(chance.uniform(0.0, 0.03))
        clock.set_by(chance.choice((_FORWARD, -_BACK)) * chance.random() / 4)
        await _pause_some(store, clock, chance)


async def _pause_some(store: Store, clock: SetClock, chance: random.Random) -> None:
    for schedule in chance.sample(list(await store.read(ScheduleFilter(DEFAULT_TENANT))), 3):
        kind = chance.choice((PauseSchedule, ResumeSchedule, ResumeSchedule))
        await store.apply([kind(schedule.agent, schedule.schedule_id, clock.now())])


def _store_firer(store: Store, clock: SystemClock) -> ScheduleFirer:
    return ScheduleFirer(
        store=store,
        wake=_nobody,
        cancel=_nobody,
        definitions=AnyDefinition(),
        clock=clock,
    )


async def _nobody(*_: object) -> None:
    """Nobody executes the runs."""


class StoppedClock(SystemClock):
    """A clock that says one time."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        """Return that time."""
        return self._at


async def _found(folder: Path, trials: int, schedules: Iterable[Schedule], end: datetime) -> Findings:
    """Fire what is due at the end, and compare."""
    store = await open_store(url_of(str(folder)), writer="last")
    for each in await store.read(ScheduleFilter(DEFAULT_TENANT, status=ScheduleStatus.PAUSED)):
        await store.apply([ResumeSchedule(each.agent, each.schedule_id, end)])
    await _store_firer(store, StoppedClock(end)).fire_all_due()
    findings = Findings(trials)
    runs: dict[str, list[Run]] = {}
    for number in range(_AGENTS):
        agent = AgentRef.parse(f"watch:{number}")
        for run_ in await store.read(RunFilter(DEFAULT_TENANT, agent, limit=1_000_000)):
            runs.setdefault(run_.trigger.source, []).append(run_)
    for schedule in schedules:
        ticks = await store.read(TicksOfSchedule(schedule.schedule_id, None, 1_000_000))
        compare(schedule, ticks, runs.get(schedule.schedule_id, ()), end, findings)
    await store.close()
    return findings


def compare(schedule: Schedule, ticks: Sequence[Tick], runs: Sequence[Run], end: datetime, findings: Findings) -> None:
    """Note what the ticks and runs of a schedule have to do with the times that were due until the end."""
    first = schedule.next_due
    assert first is not None
    until = end - schedule.delay
    due = [first]
    if schedule.kind is not ScheduleKind.ONCE:
        due = due_times_between(schedule, first, until, _MOST_TIMES)
    due = [each for each in due if each <= until]
    covered = Counter(each for tick in ticks for each in _covered(tick, due))
    fired = [tick.run_id for tick in ticks if tick.outcome is not TickOutcome.SKIPPED]
    findings.due += len(due)
    findings.accounted += sum(tick.count for tick in ticks)
    findings.runs += len(runs)
    findings.ticks += len(ticks)
    findings.skipped.update(_kind(tick.reason) for tick in ticks if tick.outcome is TickOutcome.SKIPPED)
    wrong = [each for each in due if covered[each] != 1]
    name = f"{schedule.schedule_id} ({schedule.kind.value})"
    if wrong or sum(tick.count for tick in ticks) != len(due):
        findings.broken.append(f"{name}: {len(wrong)} of {len(due)} times are not in exactly one tick: {wrong[:3]}")
    if sorted(run.run_id for run in runs) != sorted(str(each) for each in fired):
        findings.broken.append(f"{name}: {len(fired)} ticks fired, and there are {len(runs)} runs")
    times = Counter(str(run.trigger.payload["due_at"]) for run in runs if isinstance(run.trigger.payload, dict))
    if any(count > 1 for count in times.values()):
        findings.broken.append(f"{name}: a due time has two runs: {times.most_common(1)}")


def _kind(reason: str) -> str:
    """Return the words of a reason without the run that it names."""
    return " ".join(word for word in reason.split() if not word.startswith("run_"))


def _covered(tick: Tick, due: Sequence[datetime]) -> Sequence[datetime]:
    last = tick.last_due_at or tick.due_at
    return due[bisect_left(due, tick.due_at) : bisect_right(due, last)]


def main(arguments: Sequence[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ticks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="owlclaw-ticks-") as folder:
        findings = run(options.trials, options.seed, Path(folder))
    print(
        f"{findings.trials} kills, {SCHEDULES} schedules: {findings.due} times due, {findings.due - findings.accounted} not"
        f" accounted for; {findings.ticks} ticks, {findings.runs} runs; skipped: {dict(findings.skipped)}"
    )
    for each in findings.broken:
        print(each)
    return 1 if findings.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
