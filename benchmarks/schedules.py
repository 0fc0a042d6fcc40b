"""Registering and firing schedules, with a million stored and with none.

Without Ray: the store on disk, its group commit, and the alarm clock that the runtime uses, in one process. The schedules that are
stored beside those that fire are active and fall due in a year; ten thousand agents have a hundred each. Whatever is measured is
measured in an empty store as well.

Registrations come from 64 callers, each of which waits for its commit. Firings: schedules that repeat, all due at once, each of
an agent of its own. Lateness: schedules that fall due evenly over some seconds, from the due time until the run is committed and
its agent would be woken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import ticks
from benchmarks.distribution import percentile
from benchmarks.question import Answer, Figure, Say, Size
from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind
from owlclaw_ray.ids import RunId, ScheduleId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.schedules.firings import ScheduleFirer
from owlclaw_ray.schedules.scheduler import Scheduler
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import CreateSchedule, ScheduleCreated
from owlclaw_ray.store.group_commit import GroupCommit
from owlclaw_ray.store.queries import NextDueTime
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.sql.locations import locate
from owlclaw_ray.store.sql.row_codecs import SCHEDULES
from owlclaw_ray.testing.in_process import GroupedStore

TITLE = "Registering and firing schedules, with many stored and with none; times that are lost under kill -9."

CALLERS = 64
OF_AN_AGENT = 100
GOAL_RATE = 1_000.0
GOAL_LATENESS_MS = 250.0
_YEAR = timedelta(days=365)
_EMPTY_IS = "the same in an empty store"


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much there is of everything."""

    stored: int
    registered: int
    fired: int
    spread: int
    """Schedules that fall due one after another."""
    seconds: float
    """Over how long."""
    trials: int


AMOUNTS = {
    Size.SMOKE: Amounts(20_000, 1_000, 1_000, 400, 2.0, 5),
    Size.FULL: Amounts(1_000_000, 10_000, 10_000, 4_000, 10.0, 100),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """What one store was capable of."""

    registrations_per_second: float
    registration_cpu_us: float
    firings_per_second: float
    firing_cpu_us: float
    """CPU-microseconds of the whole process, which other load changes less than rates."""
    lateness_p50_ms: float
    lateness_p99_ms: float
    look_ms: float
    """What it takes to see that nothing is due."""


def answer(size: Size, say: Say) -> Answer:
    """Measure an empty store, a full one, and what kills and clock jumps do."""
    amounts = AMOUNTS[size]
    measured = {}
    for stored in (0, amounts.stored):
        with TemporaryDirectory(prefix="owlclaw-schedules-") as folder:
            measured[stored] = asyncio.run(measure(Path(folder), stored, amounts))
        say(f"{stored:,} stored: {measured[stored]}")
    with TemporaryDirectory(prefix="owlclaw-ticks-") as folder:
        findings = ticks.run(amounts.trials, 7, Path(folder))
    return Answer(
        "schedules",
        (*figures(measured[0], measured[amounts.stored], amounts.stored), *broken_figures(findings)),
        details={
            "measured": {str(stored): asdict(each) for stored, each in measured.items()},
            "trials": asdict(findings),
        },
    )


def figures(empty: Measured, full: Measured, stored: int) -> tuple[Figure, ...]:
    """Return what a full store is capable of, beside an empty one."""
    full_is, rate = f"{stored:,} stored", f"at least {GOAL_RATE:,.0f} /s"
    return (
        Figure(
            f"registrations_per_second, {full_is}",
            full.registrations_per_second,
            "/s",
            empty.registrations_per_second,
            _EMPTY_IS,
            rate,
            full.registrations_per_second >= GOAL_RATE,
        ),
        Figure(
            f"firings_per_second, {full_is}",
            full.firings_per_second,
            "/s",
            empty.firings_per_second,
            _EMPTY_IS,
            rate,
            full.firings_per_second >= GOAL_RATE,
        ),
        Figure(
            f"lateness_p99_ms, {full_is}",
            full.lateness_p99_ms,
            "ms",
            empty.lateness_p99_ms,
            _EMPTY_IS,
            f"at most {GOAL_LATENESS_MS:g} ms",
            full.lateness_p99_ms <= GOAL_LATENESS_MS,
        ),
        Figure(f"lateness_p50_ms, {full_is}", full.lateness_p50_ms, "ms", empty.lateness_p50_ms, _EMPTY_IS),
        Figure(f"registration_cpu_us, {full_is}", full.registration_cpu_us, "us", empty.registration_cpu_us, _EMPTY_IS),
        Figure(f"firing_cpu_us, {full_is}", full.firing_cpu_us, "us", empty.firing_cpu_us, _EMPTY_IS),
        Figure(f"look_ms, {full_is}", full.look_ms, "ms", empty.look_ms, _EMPTY_IS),
    )


def broken_figures(findings: ticks.Findings) -> tuple[Figure, ...]:
    """Return what was lost or doubled."""
    lost = findings.due - findings.accounted
    what = f"{findings.trials} kills"
    return (
        Figure(f"times_not_accounted_for, {what}", lost, "", goal="0", met=lost == 0),
        Figure(
            f"broken_promises, {what}",
            len(findings.broken),
            "",
            goal="0",
            met=not findings.broken,
            note=f"of {findings.due:,} times of {ticks.SCHEDULES} schedules, {findings.runs:,} runs",
        ),
    )


async def measure(folder: Path, stored: int, amounts: Amounts) -> Measured:
    """Measure a store that holds so many schedules which are not due."""
    bench = await Bench.open(folder)
    try:
        await bench.store_many(stored)
        registrations, registration_cpu = await bench.registrations(amounts.registered)
        firings, firing_cpu = await bench.firings(amounts.fired)
        look = await bench.look()
        p50, p99 = await bench.lateness(amounts.spread, amounts.seconds)
        return Measured(registrations, registration_cpu, firings, firing_cpu, p50, p99, look)
    finally:
        await bench.close()


class Bench:
    """A store with its group commit, and what fires from it."""

    def __init__(self, url: str, store: Store) -> None:
        self._url, self._store, self._commits = url, store, GroupCommit(store)
        self._grouped, self._clock = GroupedStore(store, self._commits), SystemClock()
        self._due: dict[AgentRef, float] = {}
        self._late: list[float] = []
        self._all_fired = asyncio.Event()
        self._store_firer = ScheduleFirer(
            store=self._grouped,
            wake=self._woken,
            cancel=_nothing,
            definitions=ticks.AnyDefinition(),
            clock=self._clock,
        )

    @classmethod
    async def open(cls, folder: Path) -> Bench:
        """Return a bench over a new store."""
        url = f"sqlite:///{folder}/owlclaw.db"
        return cls(url, await open_store(url, writer="bench"))

    async def close(self) -> None:
        """Close the store."""
        await self._commits.close()
        await self._store.close()

    async def store_many(self, number: int) -> None:
        """Store schedules that fall due in a year, past the commands."""
        due = self._clock.now() + _YEAR
        await asyncio.to_thread(insert, self._url, number, due)

    async def registrations(self, number: int) -> tuple[float, float]:
        """Return how many schedules a second the store takes, and the CPU-microseconds of each."""
        due, numbers = self._clock.now() + _YEAR, iter(range(number))

        async def register() -> None:
            for each in numbers:
                agent = AgentRef.parse(f"new:{each // OF_AN_AGENT}")
                outcomes = await self._commits.apply(
                    [CreateSchedule(recurring(f"new_{each}", agent, due), OF_AN_AGENT)]
                )
                assert isinstance(outcomes[0], ScheduleCreated)

        return await _rate(number, *(register() for _ in range(CALLERS)))

    async def firings(self, number: int) -> tuple[float, float]:
        """Return how many schedules a second fire that are all due, and the CPU-microseconds of each."""
        due = self._clock.now()
        await self._create([recurring(f"due_{each}", AgentRef.parse(f"due:{each}"), due) for each in range(number)])
        return await _rate(number, self._ring_for(number))

    async def _ring_for(self, number: int) -> None:
        fired = await self._store_firer.fire_all_due()
        assert fired == number, fired

    async def look(self) -> float:
        """Return how many milliseconds a look takes when nothing is due."""
        rounds = 50
        began = time.monotonic()
        for _ in range(rounds):
            assert await self._store_firer.fire_all_due() == 0
            await self._grouped.read(NextDueTime())
        return round((time.monotonic() - began) * 1_000 / rounds, 3)

    async def lateness(self, number: int, seconds: float) -> tuple[float, float]:
        """Return by how many milliseconds schedules are late that fall due one after another: half of them, and 99 in 100, by less."""
        agents = [AgentRef.parse(f"spread:{each}") for each in range(number)]
        begins = self._clock.now() + timedelta(seconds=number / 2_000 + 1)
        dues = [begins + timedelta(seconds=seconds * each / number) for each in range(number)]
        await self._create([recurring(str(agent), agent, due) for agent, due in zip(agents, dues, strict=True)])
        offset = time.monotonic() - self._clock.now().timestamp()
        self._due = {agent: due.timestamp() + offset for agent, due in zip(agents, dues, strict=True)}
        scheduler = Scheduler(schedule_firer=self._store_firer, store=self._grouped, clock=self._clock)
        scheduler.start()
        await self._all_fired.wait()
        await scheduler.stop()
        p50, p99 = (round(1_000 * percentile(self._late, percent), 2) for percent in (50, 99))
        return p50, p99

    async def _create(self, schedules: Sequence[Schedule]) -> None:
        for at in range(0, len(schedules), 500):
            await self._store.apply([CreateSchedule(each, OF_AN_AGENT) for each in schedules[at : at + 500]])

    async def _woken(self, agents: Sequence[AgentRef]) -> None:
        now = time.monotonic()
        self._late += [now - self._due[agent] for agent in agents if agent in self._due]
        if self._due and len(self._late) == len(self._due):
            self._all_fired.set()


async def _nothing(_agent: AgentRef, _run_id: RunId) -> None:
    """Nobody executes the runs."""


async def _rate(number: int, *work: Coroutine[None, None, None]) -> tuple[float, float]:
    began, used = time.monotonic(), time.process_time()
    await asyncio.gather(*work)
    rate = number / (time.monotonic() - began)
    return round(rate, 1), round(1_000_000 * (time.process_time() - used) / number, 1)


def recurring(name: str, agent: AgentRef, due: datetime) -> Schedule:
    """Return a schedule that fires at that time, and every morning."""
    return Schedule(
        ScheduleId(f"sch_{name}"),
        agent,
        ScheduleKind.CRON,
        "look at the prices of the day",
        due - timedelta(days=1),
        due,
        cron_expression="0 9 * * *",
        timezone="Asia/Shanghai",
    )


def insert(url: str, number: int, due: datetime) -> None:
    """Write schedules into the table, and their agents, without commands."""
    from sqlalchemy import create_engine

    from owlclaw_ray.store.sql.codec import agent_key, dump, to_micros
    from owlclaw_ray.store.sql.schema import agents, schedules

    engine = create_engine(locate(url).url)
    columns = [column.name for column in SCHEDULES.columns]
    for first in range(0, number, 20_000):
        made = [
            recurring(
                f"old_{each}", AgentRef.parse(f"old:{each // OF_AN_AGENT}"), due + timedelta(seconds=each % 86_400)
            )
            for each in range(first, min(first + 20_000, number))
        ]
        owners = [
            {
                "agent": agent_key(agent),
                "tenant": agent.tenant,
                "definition": agent.definition,
                "epoch": 0,
                "state": dump(AgentState()),
                "created_at": to_micros(due),
            }
            for agent in dict.fromkeys(each.agent for each in made)
        ]
        with engine.begin() as connection:
            connection.execute(agents.insert(), owners)
            connection.execute(
                schedules.insert(), [dict(zip(columns, SCHEDULES.row(each), strict=True)) for each in made]
            )
    engine.dispose()
