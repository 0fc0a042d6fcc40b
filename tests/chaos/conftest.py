"""A small session without a fault, and the means to forge it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.chaos.checker import Promise, check
from benchmarks.chaos.evidence import Evidence, read_evidence
from benchmarks.chaos.installation import Installation
from benchmarks.chaos.session import ANSWERS, BLOWS
from owlclaw_ray import AgentRef, load_app
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.store.commands import RunAccepted
from owlclaw_ray.store.queries import JournalOfRun, RunFilter
from owlclaw_ray.testing.in_process import InProcessRuntime, in_process_runtime

AGENT = AgentRef.parse("crowd:1")
_PAUSE = 0.02


def turn(*calls: tuple[str, dict[str, Any]], latency: float = 0.0) -> dict[str, Any]:
    return {"latency": latency, "calls": [list(call) for call in calls]}


FIRST = [
    turn(
        ("log_decision", {"reasoning": "because"}),
        ("chaos.look", {"milliseconds": 0}),
        ("chaos.pay", {"milliseconds": 0}),
        ("chaos.put", {"milliseconds": 0}),
    ),
    turn(("remember", {"content": "the disk fills on Fridays"}), ("schedule_once", {"delay_seconds": 1, "focus": "x"})),
]
STOPPED = [turn(("chaos.look", {"milliseconds": 0})), turn(("chaos.put", {"milliseconds": 0}), latency=60.0)]
SECOND = [turn(("chaos.pay", {"milliseconds": 0})), turn(("chaos.put", {"milliseconds": 0}), latency=2.0)]


@dataclass
class Session:
    """The folder of a session that is over."""

    folder: Path
    runs: list[str]
    """The first, the second (which was resumed), the one cancelled in the queue, the one cancelled while a model was asked,
    the one that a schedule made.
    """

    @property
    def first(self) -> str:
        return self.runs[0]

    @property
    def second(self) -> str:
        return self.runs[1]

    def sql(self, *statements: str) -> None:
        """Change the store behind its back; `{first}`, `{second}` … stand for run ids."""
        connection = sqlite3.connect(Installation(self.folder).data_dir / "owlclaw.db")
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        names = dict(zip(("first", "second", "cancelled", "stopped", "scheduled"), self.runs, strict=True))
        for statement in statements:
            assert connection.execute(statement.format(**names)).rowcount, statement
        connection.commit()
        connection.close()

    def effects(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in Installation(self.folder).effects.read_bytes().splitlines()]

    def write_effects(self, lines: list[dict[str, Any]]) -> None:
        Installation(self.folder).effects.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))

    def evidence(self) -> Evidence:
        return asyncio.run(read_evidence(self.folder))

    def broken(self) -> set[Promise]:
        return {violation.promise for violation in check(self.evidence())}


def _note(log: Path, **line: Any) -> None:
    with log.open("ab") as file:
        file.write(orjson.dumps({"wall_ns": 0, **line}) + b"\n")


async def _play(folder: Path) -> list[str]:
    installation = Installation(folder)
    app = load_app("chaos_application:app", folder)
    async with in_process_runtime(agents_dir=folder / "agents", data_dir=installation.data_dir, app=app) as runtime:
        first, second, cancelled, stopped = [
            await _submit(runtime, folder, number, turns) for number, turns in enumerate([FIRST, SECOND, [], STOPPED])
        ]
        await _cancel(runtime, folder, 2, cancelled)
        await runtime.outcome(first)
        await _has_used_a_tool(runtime, second)
        await runtime.crash_hosts()
        await runtime.outcome(second)
        await _has_used_a_tool(runtime, stopped)
        await _cancel(runtime, folder, 3, stopped)
        await runtime.outcome(stopped)
        while not (fired := await _fired(runtime)):
            await runtime.schedule_firer.fire_all_due()
            await asyncio.sleep(_PAUSE)
    return [first.run_id, second.run_id, cancelled.run_id, stopped.run_id, fired]


async def _submit(runtime: InProcessRuntime, folder: Path, number: int, turns: list[Any]) -> RunAccepted:
    trigger = Trigger(TriggerKind.API, {"number": number, "turns": turns})
    accepted = await runtime.submit(AGENT, trigger, idempotency_key=f"key-{number}")
    answer = {"what": "accepted", "number": number, "key": f"key-{number}", "run_id": accepted.run_id}
    _note(folder / ANSWERS, **answer, agent=AGENT.agent_id, duplicate=False)
    return accepted


async def _cancel(runtime: InProcessRuntime, folder: Path, number: int, accepted: RunAccepted) -> None:
    _note(folder / ANSWERS, what="cancelling", number=number, key=f"key-{number}", run_id=accepted.run_id)
    await runtime.cancel(DEFAULT_TENANT, accepted.run_id)


async def _has_used_a_tool(runtime: InProcessRuntime, accepted: RunAccepted) -> None:
    while True:
        journal = await runtime.store.read(JournalOfRun(DEFAULT_TENANT, accepted.run_id))
        if any(entry.kind is EntryKind.TOOL_FINISHED for entry in journal):
            return
        await asyncio.sleep(_PAUSE)


async def _fired(runtime: InProcessRuntime) -> str:
    """Return the run that the schedule made, when it is over."""
    for run in await runtime.runs(RunFilter(DEFAULT_TENANT, status=RunStatus.COMPLETED)):
        if run.trigger.kind is TriggerKind.SCHEDULE_ONCE:
            return run.run_id
    return ""


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("chaos")
    path, modules = list(sys.path), set(sys.modules)
    Installation(folder).write()
    runs = asyncio.run(_play(folder))
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name == "chaos_application":
            del sys.modules[name]
    _note(folder / BLOWS, number=0, role="agent", what="killed")
    return Session(folder, runs)


@pytest.fixture
def session(played: Session, tmp_path: Path) -> Session:
    """A copy to forge."""
    return Session(Path(shutil.copytree(played.folder, tmp_path / "session")), played.runs)
