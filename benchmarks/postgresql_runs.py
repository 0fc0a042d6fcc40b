"""`python -m benchmarks.postgresql_runs`: how many runs a second a PostgreSQL server takes, by the commits a second of pgbench.

Rounds of runs (model → log_decision → model, scripted, the engine without Ray in this process) and of pgbench (one row inserted and
committed by each of 16 clients) take turns on the same server, whose commits reach the disk. The figure to carry to another machine is
the ratio of the CPU seconds that PostgreSQL's processes need for a run and for one of pgbench's commits: it holds on a busy machine,
where rates do not. A server that does N commits a second in pgbench, with its processors busy, takes N divided by it in runs a second.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import psutil
from msgspec import Struct

from benchmarks.machine import load_average
from owlclaw_ray.testing.in_process import InProcessRuntime, in_process_runtime
from owlclaw_ray.testing.postgres import PostgresServer, find_binaries

AGENTS, CLIENTS, ROUNDS, SECONDS = 64, 16, 5, 5.0
_DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "100"}
_SCRIPT = (
    "INSERT INTO committed VALUES (:client_id, 'some hundred bytes of something that is committed' || random());\n"
)


class Round(Struct, frozen=True):
    """What was done in some seconds, and what it took the server."""

    done: int
    seconds: float
    commits: int
    cpu: float
    """Seconds of all of PostgreSQL's processes."""

    @property
    def rate(self) -> float:
        """Runs, or commits of pgbench, a second."""
        return self.done / self.seconds

    @property
    def cpu_ms(self) -> float:
        """PostgreSQL's CPU milliseconds for one."""
        return 1_000 * self.cpu / self.done


class ServerMeter:
    """Counts the commits of a database, and the CPU time of its server."""

    def __init__(self, connection: asyncpg.Connection, folder: Path) -> None:
        self._connection, self._folder = connection, folder

    async def read(self) -> tuple[int, float, float]:
        """Return commits, CPU seconds and the time, all since some moment."""
        await self._connection.execute("SELECT pg_stat_clear_snapshot()")
        commits = await self._connection.fetchval("SELECT sum(xact_commit)::bigint FROM pg_stat_database")
        return commits, self.cpu(), time.perf_counter()

    def cpu(self) -> float:
        """Return the CPU seconds of the server: of its processes, and of those that have ended."""
        first = psutil.Process(int((self._folder / "data" / "postmaster.pid").read_text().split("\n", 1)[0]))
        ended, spent = first.cpu_times(), 0.0
        for process in (first, *first.children()):
            with suppress(psutil.NoSuchProcess):  # a server process of a connection that has ended meanwhile
                times = process.cpu_times()
                spent += times.user + times.system
        return spent + ended.children_user + ended.children_system


async def measure(rounds: int = ROUNDS, seconds: float = SECONDS, agents: int = AGENTS) -> Mapping[str, list[Round]]:
    """Return the rounds of runs and of pgbench on a server that is made for it. Raises FileNotFoundError without its binaries."""
    binaries = find_binaries()
    pgbench = shutil.which("pgbench")
    if binaries is None or pgbench is None:
        raise FileNotFoundError("PostgreSQL's server binaries and pgbench: install the package postgresql")
    with TemporaryDirectory(prefix="owlclaw-") as name:
        server = PostgresServer(Path(name) / "pg", binaries, settings=_DURABLE)
        await asyncio.to_thread(server.start)
        try:
            return await _measure(server, pgbench, Path(name), rounds, seconds, agents)
        finally:
            await asyncio.to_thread(server.stop)


async def _measure(  # noqa: PLR0917 - private
    server: PostgresServer, pgbench: str, folder: Path, rounds: int, seconds: float, agents: int
) -> Mapping[str, list[Round]]:
    script = folder / "commit.sql"
    script.write_text(_SCRIPT)
    agent = folder / "agents" / "bench"
    agent.mkdir(parents=True)
    (agent / "SOUL.md").write_text("You are calm and precise.\n")
    (agent / "IDENTITY.md").write_text("# Bench\n\n## My Capabilities\n- answer triggers\n")
    (agent / "agent.yaml").write_text(json.dumps({"model": "scripted:tool_once", "isolation": "shared"}))
    connection = await asyncpg.connect(server.url())
    await connection.execute("CREATE TABLE committed (client int, what text)")
    meter, found = ServerMeter(connection, folder / "pg"), {"runs": list[Round](), "pgbench": list[Round]()}
    async with in_process_runtime(
        agents_dir=folder / "agents", data_dir=folder / "data", store_url=server.url()
    ) as runtime:
        await _runs(runtime, meter, 1.0, agents)  # every agent is activated
        for _ in range(rounds):
            found["pgbench"].append(await _commits(pgbench, script, server.url(), meter, seconds))
            found["runs"].append(await _runs(runtime, meter, seconds, agents))
    await connection.close()
    return found


async def _runs(runtime: InProcessRuntime, meter: ServerMeter, seconds: float, agents: int) -> Round:
    commits, cpu, began = await meter.read()

    async def keep_busy(number: int) -> int:
        done = 0
        while time.perf_counter() - began < seconds:
            await runtime.trigger(f"bench:{number}")
            done += 1
        return done

    done = sum(await asyncio.gather(*map(keep_busy, range(agents))))
    after, spent, ended = await meter.read()
    return Round(done, ended - began, after - commits, spent - cpu)


async def _commits(pgbench: str, script: Path, url: str, meter: ServerMeter, seconds: float) -> Round:
    commits, cpu, began = await meter.read()
    command = [
        pgbench,
        "-n",
        "-c",
        str(CLIENTS),
        "-j",
        "2",
        "-M",
        "prepared",
        "-T",
        str(max(1, round(seconds))),
        "-f",
        str(script),
    ]
    bench = await asyncio.create_subprocess_exec(*command, url, stdout=asyncio.subprocess.DEVNULL)
    if code := await bench.wait():
        raise RuntimeError(f"pgbench ended with code {code}")
    after, spent, now = await meter.read()
    return Round(after - commits, now - began, after - commits, spent - cpu)


def report(found: Mapping[str, list[Round]]) -> str:
    """Return the figures as text, medians of the rounds."""
    runs, commits = found["runs"], found["pgbench"]
    costs = [run.cpu_ms / commit.cpu_ms for run, commit in zip(runs, commits, strict=True)]
    rates = [run.rate / commit.rate for run, commit in zip(runs, commits, strict=True)]
    per_run = statistics.median(each.commits / each.done for each in runs)
    return "\n".join(
        [
            f"pgbench: {_said(commits)}",
            f"runs: {_said(runs)}, {per_run:.2f} commits each",
            f"CPU of a run by that of a commit of pgbench: {_spread(costs)}",
            f"runs/s by commits/s, of one Keeper's process: {_spread(rates)}",
            f"load {load_average()}, {os.cpu_count()} cores",
        ]
    )


def _said(rounds: Sequence[Round]) -> str:
    rate, cpu = (
        statistics.median(values) for values in zip(*((each.rate, each.cpu_ms) for each in rounds), strict=True)
    )
    return f"{rate:.0f} a second, {cpu:.3f} CPU-ms of PostgreSQL each"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    """Measure, and print the figures."""
    print(report(asyncio.run(measure())))


if __name__ == "__main__":
    main()
