"""`python -m benchmarks.run_lists`: how long a page of runs takes, for each filter.

A store is filled with `--runs` runs: of 1,000 agents and 20 definitions, accepted in 90 days, nearly all over, every focus a line of
words and numbers and every eighth one in Chinese; of 102,400 different ones, which come again and again. Then pages of 50 runs are
read through the store, each filter alone and combined, such that many match, few, or none. Milliseconds are of the whole read: the first
one, then p50 and p95 of `--rounds`, and the mean of CPU milliseconds, which are this process's and those of PostgreSQL's server.
The last lines name what took more than GOAL_MS.

With `--cost` nothing is listed: runs are accepted, claimed and finished, 50 in a commit, in turns in a store as it is and in one without
what the filters need (four indexes and the words), both with that many runs already. CPU milliseconds are of this process for SQLite,
and of the server's processes for PostgreSQL.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import asyncpg
from msgspec.structs import replace

from benchmarks.distribution import percentile
from benchmarks.machine import describe, load_average
from benchmarks.postgresql_runs import ServerMeter
from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.run import RunResult, RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT, ActivationId, RunId, TenantId
from owlclaw_ray.store.commands import ActivateAgent, AgentActivated, FinishRun, SubmitRun
from owlclaw_ray.store.run_search import RunSearch
from owlclaw_ray.store.sql.codec import to_micros
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.sql.focus_index import bucket_of, term_of, term_rows
from owlclaw_ray.store.sql.sql_store import SqlStore
from owlclaw_ray.testing.postgres import ORDINARY_USER, PostgresServer, find_binaries

GOAL_MS = 50.0
ROUNDS = 20
_COMMITTED, _TOGETHER, _TURNS = 1_000, 50, 9
_BLOCK = 25 * 4_096
_FIRST = datetime(2026, 8, 1, tzinfo=UTC)
_DAYS = 90
_RUN_COLUMNS = (
    "seq",
    "run_id",
    "tenant",
    "agent",
    "trigger",
    "created_at",
    "status",
    "started_at",
    "finished_at",
    "cancel_requested",
    "claimed_epoch",
    "result",
    "payload",
)
_NO_WORDS = patch("owlclaw_ray.store.sql.submission.term_rows", return_value=())
_TERM_COLUMNS = ("tenant", "term", "seq")
_WORDS = ("refund", "invoice", "shipment", "complaint", "review", "forecast", "inventory", "price", "margin", "payment")
_CHINESE = ("退款", "发票", "物流", "投诉", "评价", "库存", "价格", "付款")
_RESULT = json.dumps({"status": "completed", "turns": 2, "tool_calls": 1, "final_text": "It is done. " * 12})


def run_rows(count: int, step: int) -> Iterator[tuple[tuple[Any, ...], Sequence[tuple[str, int, int]]]]:
    """Yield a row of each run, and the rows of its words; `step`: microseconds from one to the next."""
    for seq in range(1, count + 1):
        mixed = seq * 2_654_435_761 % 2**32
        tenant = "acme" if mixed % 50 == 0 else "default"
        number = mixed // 64 % 1_000
        kind = TriggerKind.HEARTBEAT if mixed % 97 == 0 else TriggerKind.WEBHOOK if mixed % 5 == 0 else TriggerKind.API
        kind = TriggerKind.EVENT if seq == _BLOCK // 2 + 1 else kind
        status = "failed" if mixed % 31 == 0 else "completed"
        status = "timeout" if seq in {_BLOCK // 3, _BLOCK // 5} else status
        focus = (
            f"order {seq}: {_WORDS[mixed % 10]} of customer {mixed % 5_003}"
            if mixed % 8
            else f"处理订单{seq}的{_CHINESE[mixed // 8 % 8]}"
        )
        focus = "a zeppelin over the harbour" if seq == _BLOCK // 7 else focus
        trigger = json.dumps({"kind": kind.value, "focus": focus, "source": "", "merged": 1}, ensure_ascii=False)
        at = to_micros(_FIRST) + seq * step
        agent = f"{tenant}/d{number % 20}:k{number}"
        row = (seq, f"run_{seq}", tenant, agent, trigger.replace('": ', '":'), at, status, at, at + 900_000)
        yield (*row, False, 1, _RESULT, '{"n":1}'), [*term_rows(tenant, seq, kind, focus)]


def copies(count: int, step: int, waiting: int) -> Iterator[str]:
    """Yield the statements that make `count` runs of the first block: the same ones later, and the last ones (`waiting`) not over."""
    columns = [f'"{name}"' for name in _RUN_COLUMNS]
    for number, after in enumerate(range(_BLOCK, count, _BLOCK), start=1):
        new = {
            '"seq"': f"seq + {after}",
            '"run_id"': f"run_id || '_{number}'",
            '"created_at"': f"created_at + {after * step}",
        }
        yield (
            f"INSERT INTO runs ({', '.join(columns)}) SELECT {', '.join(new.get(each, each) for each in columns)}"  # noqa: S608 - constants
            f" FROM runs WHERE seq <= {min(_BLOCK, count - after)}"
        )
        shift = term_of(bucket_of(after), 0)
        yield (
            f"INSERT INTO focus_terms SELECT tenant, term + {shift}, seq + {after}"  # noqa: S608 - constants
            f" FROM focus_terms WHERE seq <= {min(_BLOCK, count - after)}"
        )
    over = "started_at = NULL, finished_at = NULL, result = NULL"
    yield f"UPDATE runs SET status = 'queued', {over} WHERE seq > {count - waiting}"  # noqa: S608 - constants


def fill_sqlite(path: Path, count: int, waiting: int = 200) -> None:
    """Write the runs into a store's file, and build its indexes then; the last ones (`waiting`) are queued."""
    connection, step = sqlite3.connect(path, isolation_level=None), _DAYS * 86_400_000_000 // count
    connection.execute("PRAGMA synchronous = OFF")
    indexes = connection.execute("SELECT name, sql FROM sqlite_master WHERE name LIKE 'runs_%' AND sql IS NOT NULL")
    definitions = dict(indexes.fetchall())
    connection.execute("BEGIN")
    for name in definitions:
        connection.execute(f"DROP INDEX {name}")
    runs = f"INSERT INTO runs ({', '.join(map(_quoted, _RUN_COLUMNS))}) VALUES ({', '.join('?' * len(_RUN_COLUMNS))})"  # noqa: S608 - constants
    rows = [*run_rows(min(count, _BLOCK), step)]
    connection.executemany(runs, [run for run, _ in rows])
    terms = sorted(term for _, terms in rows for term in terms)
    connection.executemany("INSERT INTO focus_terms VALUES (?, ?, ?)", terms)
    for statement in (*copies(count, step, waiting), *definitions.values()):
        connection.execute(statement)
    connection.execute("COMMIT")
    connection.close()


def _quoted(name: str) -> str:
    return f'"{name}"'


async def fill_postgresql(url: str, count: int) -> None:
    """Write the runs into a store's database."""
    connection, step = await asyncpg.connect(url), _DAYS * 86_400_000_000 // count
    rows = [*run_rows(min(count, _BLOCK), step)]
    await connection.copy_records_to_table("runs", records=[run for run, _ in rows], columns=_RUN_COLUMNS)
    terms = sorted(term for _, terms in rows for term in terms)
    await connection.copy_records_to_table("focus_terms", records=terms, columns=_TERM_COLUMNS)
    for statement in copies(count, step, 200):
        await connection.execute(statement, timeout=3_600)
    await connection.fetchval("SELECT setval('runs_seq', $1)", count)
    await connection.execute("VACUUM ANALYZE runs")
    await connection.execute("VACUUM ANALYZE focus_terms")
    await connection.close()


def searches(count: int) -> Mapping[str, RunSearch]:
    """Return what is asked for, by what it is called in the answer."""
    every, middle = RunSearch(DEFAULT_TENANT), _FIRST + timedelta(days=_DAYS / 2)
    agent, quiet = AgentRef.parse("d7:k7"), AgentRef.parse("d7:nobody")
    failed = RunStatus.FAILED
    time_range = {"since": middle, "until": middle + timedelta(hours=1)}
    return {
        "all": every,
        "all, half of the runs back": replace(every, before_seq=count // 2),
        "all, 500 on a page with payloads": replace(every, limit=500, payloads=True),
        "all, what is new since 200 runs": replace(every, after_seq=count - 200),
        "status failed": replace(every, status=failed),
        "status timeout (20 runs)": replace(every, status=RunStatus.TIMEOUT),
        "status skipped (none)": replace(every, status=RunStatus.SKIPPED),
        "not over": replace(every, open=True),
        "status failed, 1,000 on a page": replace(every, status=failed, limit=1_000),
        "agent": replace(every, agent=agent),
        "agent, not over": replace(every, agent=agent, open=True),
        "agent, failed": replace(every, agent=agent, status=failed),
        "agent, failed, event (none)": replace(every, agent=agent, status=failed, kind=TriggerKind.EVENT),
        "agent without runs": replace(every, agent=quiet),
        "definition": replace(every, definition="d7"),
        "definition, failed": replace(every, definition="d7", status=failed),
        "definition, not over": replace(every, definition="d7", open=True),
        "definition, event": replace(every, definition="d7", kind=TriggerKind.EVENT),
        "definition without runs": replace(every, definition="nothing"),
        "trigger webhook": replace(every, kind=TriggerKind.WEBHOOK),
        "trigger event (ten runs)": replace(every, kind=TriggerKind.EVENT),
        "trigger agent (none)": replace(every, kind=TriggerKind.AGENT),
        "trigger event, failed": replace(every, kind=TriggerKind.EVENT, status=failed),
        "an hour": replace(every, **time_range),
        "an hour, definition, failed": replace(every, definition="d7", status=failed, **time_range),
        "an hour, trigger event (none)": replace(every, kind=TriggerKind.EVENT, **time_range),
        "before the first run (none)": replace(every, until=_FIRST - timedelta(days=1)),
        "text refund (a tenth)": replace(every, text="refund"),
        "text of ten runs, beside a word of all": replace(every, text="order 51001"),
        "text of no run, beside a word of all": replace(every, text="order nonesuch"),
        "text 订单 (an eighth)": replace(every, text="订单"),
        "text 投诉 (a 64th)": replace(every, text="投诉"),
        "text zeppelin (ten runs)": replace(every, text="zeppelin harbour"),
        "text of no run": replace(every, text="nonesuch"),
        "text refund margin (none; each in a tenth)": replace(every, text="refund margin"),
        "text 单 (one character)": replace(every, text="单"),
        "text refund, timeout": replace(every, text="refund", status=RunStatus.TIMEOUT),
        "text zeppelin, failed": replace(every, text="zeppelin", status=failed),
        "text refund, agent": replace(every, text="refund", agent=agent),
        "text of no run, definition": replace(every, text="nonesuch", definition="d7"),
        "text refund, definition, event (none)": replace(every, text="refund", definition="d7", kind=TriggerKind.EVENT),
        "text of no run, an hour": replace(every, text="nonesuch", **time_range),
        "text refund of another tenant": RunSearch(TenantId("acme"), text="refund"),
    }


async def measure(store: SqlStore, count: int, rounds: int, server: Callable[[], float]) -> None:
    """Print a line for each search: how many runs were found, whether there are more pages, and milliseconds. `server`: the CPU seconds
    of the database's processes.
    """
    print("| filter | found | goes on | first ms | p50 ms | p95 ms | CPU ms |\n|---|---|---|---|---|---|---|")
    slow, waited = list[str](), list[str]()
    for name, search in searches(count).items():
        began = time.perf_counter()
        found = await store.read(search)
        first, taken = 1_000 * (time.perf_counter() - began), list[float]()
        spent = time.process_time() + server()
        for _ in range(rounds):
            began = time.perf_counter()
            found = await store.read(search)
            taken.append(1_000 * (time.perf_counter() - began))
        cpu = 1_000 * (time.process_time() + server() - spent) / rounds
        goes_on = "no" if found.following is None else "searching" if found.searched_to else "yes"
        ms = (first, percentile(taken, 50), percentile(taken, 95), cpu)
        print(f"| {name} | {len(found.runs)} | {goes_on} | {' | '.join(f'{each:.1f}' for each in ms)} |", flush=True)
        slow += [name] if cpu > GOAL_MS else []
        waited += [name] if ms[1] > GOAL_MS else []
    print(f"over {GOAL_MS:g} CPU-ms: {', '.join(slow) or 'none'}")
    print(f"over {GOAL_MS:g} ms at p50: {', '.join(waited) or 'none'} (load {load_average()})", flush=True)


_STRIP = "".join(
    f"DROP INDEX {name};"
    for name in ("runs_over", "runs_over_by_agent", "runs_over_by_definition", "runs_by_definition")
)


async def spend(store: SqlStore, first: int, meter: Callable[[], float]) -> float:
    """Have _COMMITTED runs accepted, claimed and finished; return CPU milliseconds for each."""
    agents = [AgentRef.parse(f"d{at % 20}:c{at}") for at in range(_COMMITTED)]
    focus = [run[4] for run, _ in islice(run_rows(_COMMITTED + 1, 1), _COMMITTED)]
    began = meter()
    for at in range(0, _COMMITTED, _TOGETHER):
        some = range(at, at + _TOGETHER)
        runs = {each: RunId(f"run_c{first + each}") for each in some}
        triggers = {each: Trigger(TriggerKind.API, {"n": each}, json.loads(focus[each])["focus"]) for each in some}
        await store.apply([SubmitRun(runs[each], agents[each], triggers[each], _FIRST) for each in some])
        taken = await store.apply(
            [ActivateAgent(agents[each], ActivationId(f"act_{first}_{each}"), _FIRST, claim=True) for each in some]
        )
        ends = []
        for each, outcome in zip(some, taken, strict=True):
            assert isinstance(outcome, AgentActivated), outcome
            facts = (JournalEntry(3, EntryKind.RUN_FINISHED, _FIRST, {}),)
            result = RunResult(RunStatus.COMPLETED, turns=2, final_text="It is done.")
            ends.append(FinishRun(runs[each], agents[each], outcome.epoch, facts, result, AgentState(), _FIRST))
        await store.apply(ends)
    return 1_000 * (meter() - began) / _COMMITTED


async def compare(urls: Sequence[str], meter: Callable[[], float]) -> None:
    """Print what a run costs with the indexes and without, round by round."""
    stores = [await open_store(url, writer="keeper") for url in urls]
    ratios = []
    for turn in range(_TURNS):
        taken = []
        for at, store in enumerate(stores):
            with _NO_WORDS if at else nullcontext():
                taken.append(await spend(store, turn * _COMMITTED, meter))
        ratios.append(taken[0] / taken[1])
        print(f"CPU-ms a run: {taken[0]:.3f} with, {taken[1]:.3f} without: {ratios[-1]:.3f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.3f}")
    for store in stores:
        await store.close()


def sizes_sqlite(path: Path) -> None:
    """Print bytes a run of each table and index of runs, which SQLite counts where it can."""
    connection = sqlite3.connect(path)
    runs = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
    try:
        rows = connection.execute(
            "SELECT name, sum(pgsize) FROM dbstat WHERE name LIKE 'runs%' OR name LIKE 'focus%' GROUP BY name"
        ).fetchall()
    except sqlite3.OperationalError:
        rows = [("dbstat is not compiled in; the whole file", path.stat().st_size)]
    print("bytes a run:", ", ".join(f"{name} {size / runs:.0f}" for name, size in rows))
    connection.close()


async def sizes_postgresql(url: str) -> None:
    """Print bytes a run of each table and index of runs."""
    connection = await asyncpg.connect(url)
    runs = await connection.fetchval("SELECT count(*) FROM runs")
    rows = await connection.fetch(
        "SELECT relname, pg_relation_size(oid) AS size FROM pg_class WHERE relkind IN ('r', 'i')"
        " AND (relname LIKE 'runs%' OR relname LIKE 'focus%') ORDER BY relname"
    )
    print("bytes a run:", ", ".join(f"{row['relname']} {row['size'] / runs:.0f}" for row in rows))
    await connection.close()


async def _main(count: int, database: str, folder: Path, rounds: int, *, cost: bool) -> None:
    print(describe(), load_average())
    if database == "sqlite":
        path = folder / "owlclaw.db"
        if cost:
            await (await open_store(f"sqlite:///{path}", writer="keeper")).close()
            fill_sqlite(path, count)
            bare = shutil.copy(path, folder / "bare.db")
            connection = sqlite3.connect(bare)
            connection.executescript(_STRIP)
            connection.close()
            await compare([f"sqlite:///{path}", f"sqlite:///{bare}"], time.process_time)
            return
        await _measure_at(f"sqlite:///{path}", count, lambda: asyncio.to_thread(fill_sqlite, path, count), rounds)
        return
    binaries = find_binaries()
    if binaries is None:
        raise SystemExit("PostgreSQL's server binaries are not installed")
    server = PostgresServer(folder / "pg", binaries, settings={"shared_buffers": "512MB"})
    await asyncio.to_thread(server.start)
    try:
        administrator = await asyncpg.connect(server.url())
        for name in ("owlclaw", "bare"):
            await administrator.execute(f"CREATE DATABASE {name} OWNER {ORDINARY_USER}")
        meter = ServerMeter(administrator, folder / "pg")
        urls = [server.url(name, ORDINARY_USER) for name in ("owlclaw", "bare")]
        if not cost:
            await _measure_at(urls[0], count, lambda: fill_postgresql(server.url("owlclaw"), count), rounds, meter.cpu)
            return
        for name, url in zip(("owlclaw", "bare"), urls, strict=True):
            await (await open_store(url, writer="keeper")).close()
            await fill_postgresql(server.url(name), count)
        owner = await asyncpg.connect(server.url("bare"))
        await owner.execute(_STRIP)
        await owner.close()
        await compare(urls, meter.cpu)
    finally:
        await asyncio.to_thread(server.stop)


async def _measure_at(
    url: str, count: int, fill: Callable[[], Awaitable[None]], rounds: int, server: Callable[[], float] = float
) -> None:
    await (await open_store(url, writer="keeper")).close()
    began = time.perf_counter()
    await fill()
    await (asyncio.to_thread(sizes_sqlite, Path(url[10:])) if url.startswith("sqlite") else sizes_postgresql(url))
    print(f"filled with {count:,} runs in {time.perf_counter() - began:.0f} s", flush=True)
    store = await open_store(url, writer="keeper")
    await measure(store, count, rounds, server)
    await store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run_lists")
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--folder", type=Path, default=None, help="where the store is made; default: a temporary one")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each page is read")
    parser.add_argument("--cost", action="store_true", help="what the filters cost the commits of runs")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="owlclaw-", dir=options.folder) as place:
        asyncio.run(_main(options.runs, options.database, Path(place), options.rounds, cost=options.cost))
