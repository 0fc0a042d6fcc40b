"""Everything that is known of a session after its end, from four places that do not trust one another.

The store says what the runtime believes; the handlers' log what was really executed; the client's log what it was promised; the
killer's log what was done to the system.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from benchmarks.chaos.installation import Installation
from benchmarks.chaos.session import ANSWERS, BLOWS
from benchmarks.chaos.strikes import Role
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import JournalEntry
from owlclaw_ray.domain.ledger import ChainBreak, ChainedRecord
from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.schedule import Schedule, Tick
from owlclaw_ray.ids import DEFAULT_TENANT, RunId, ScheduleId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.memory.documents import ACTIVE, UNDATED
from owlclaw_ray.memory.folders import MemoryFolders
from owlclaw_ray.memory.markdown import parse
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.ledger_pages import ledger_breaks, ledger_records
from owlclaw_ray.store.queries import (
    AgentPage,
    AgentRecord,
    JournalOfRun,
    LedgerFilter,
    MemoryOfAgent,
    RunFilter,
    ScheduleFilter,
    TicksOfSchedule,
)
from owlclaw_ray.store.sql.factory import open_store

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PAGE = 500
_EVERYTHING = 10_000_000


@dataclass(frozen=True, slots=True)
class Execution:
    """One time that a handler really ran."""

    run_id: str
    call_id: str
    tool: str
    pid: int
    started: datetime
    ended: datetime | None
    """None if its process died in the middle."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Something that the client was told, or did."""

    what: str
    """`accepted`, `refused`, `cancelling` (asked for) or `cancel` (answered)."""
    number: int
    key: str
    run_id: str
    """Empty for `refused`."""
    told: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Blow:
    """Something that the killer did."""

    number: int
    role: Role
    what: str
    at: datetime
    load: float
    """The machine's load average; over its number of cores, everything waits for the processor."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the checker judges."""

    answers: Sequence[Answer]
    blows: Sequence[Blow]
    executions: Sequence[Execution]
    runs: Mapping[RunId, Run]
    journals: Mapping[RunId, Sequence[JournalEntry]]
    ledger: Sequence[ChainedRecord]
    chain_breaks: Sequence[ChainBreak]
    agents: Sequence[AgentRecord]
    schedules: Mapping[ScheduleId, Schedule]
    ticks: Mapping[ScheduleId, Sequence[Tick]]
    memories: Mapping[AgentRef, Sequence[Memory]]


async def read_evidence(folder: Path, store_url: str = "") -> Evidence:
    """Return the evidence of the session in a folder; its system must have ended. Without a URL its store is the embedded one."""
    installation = Installation(folder)
    store = await open_store(store_url or installation.sqlite_url, writer="checker")
    try:
        agents = await store.read(AgentPage(DEFAULT_TENANT, limit=_EVERYTHING))
        runs = await _runs(store)
        schedules = [
            schedule for each in agents for schedule in await store.read(ScheduleFilter(DEFAULT_TENANT, each.agent))
        ]
        folders = MemoryFolders(installation.data_dir, SystemClock())
        return Evidence(
            answers=[_answer(line) for line in _lines(folder / ANSWERS)],
            blows=[_blow(line) for line in _lines(folder / BLOWS)],
            executions=_executions(installation.effects),
            runs=runs,
            journals={run_id: await store.read(JournalOfRun(DEFAULT_TENANT, run_id)) for run_id in runs},
            ledger=await ledger_records(store, LedgerFilter(DEFAULT_TENANT, limit=_EVERYTHING)),
            chain_breaks=await ledger_breaks(store, DEFAULT_TENANT),
            agents=agents,
            schedules={each.schedule_id: each for each in schedules},
            ticks={each.schedule_id: await store.read(TicksOfSchedule(each.schedule_id)) for each in schedules},
            memories={each.agent: await _memories(store, folders, each.agent) for each in agents},
        )
    finally:
        await store.close()


async def _memories(store: Store, folders: MemoryFolders, agent: AgentRef) -> Sequence[Memory]:
    """Return what the agent remembers, in whichever home."""
    stored = await store.read(MemoryOfAgent(agent, {ACTIVE: 0}))
    if stored.version:
        return parse(stored.texts[ACTIVE].text, UNDATED).memories
    return folders.memories(agent)


async def _runs(store: Store) -> dict[RunId, Run]:
    """Return all runs in the order of their acceptance."""
    found: list[Run] = []
    before = None
    while page := await store.read(RunFilter(DEFAULT_TENANT, before_seq=before, limit=_PAGE)):
        found += page
        before = page[-1].seq
    return {run.run_id: run for run in reversed(found)}


def _lines(log: Path) -> Iterator[dict[str, Any]]:
    if log.exists():
        for line in log.read_bytes().splitlines():
            yield orjson.loads(line)


def _answer(line: dict[str, Any]) -> Answer:
    return Answer(line["what"], line["number"], line["key"], line.get("run_id", ""), line)


def _blow(line: dict[str, Any]) -> Blow:
    return Blow(line["number"], Role(line["role"]), line["what"], _time(line["wall_ns"]), line.get("load", 0.0))


def _executions(log: Path) -> list[Execution]:
    lines = list(_lines(log))
    ends = {line["execution"]: _time(line["wall_ns"]) for line in lines if line["phase"] == "end"}
    return [
        Execution(
            line["run_id"],
            line["call_id"],
            line["tool"],
            line["pid"],
            _time(line["wall_ns"]),
            ends.get(line["execution"]),
        )
        for line in lines
        if line["phase"] == "start"
    ]


def _time(wall_ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=wall_ns // 1_000)
