"""What the console costs: pages over a long past, pages that are left open, and how soon what happens is seen.

The system is `owlclaw up` on a store that has many runs, and one of 10,000 entries, before it starts. Pages are opened one after
another; CPU is that of all processes of the system, less what it uses while nobody asks anything. Pages that are open are played by clients
that ask for what the page's scripts ask for, as often, and follow what they follow (`console_clients`); meanwhile a run begins every
second, so that there is something new to show. How soon an entry is seen is taken from its `at`, which is before its commit, until it has
arrived at a client, and until Chromium has it in its page and has come to the next frame; without Chromium and Playwright that figure is
missing. The baseline of times is /healthz of the same system.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import httpx

from benchmarks.console_clients import Poll, RunPageStream, keep_open, with_streams_open
from benchmarks.distribution import percentile
from benchmarks.meter import Meter, disturbance
from benchmarks.past import long_run, write
from benchmarks.question import Answer, Figure, Say, Size
from benchmarks.run_lists import fill_sqlite
from benchmarks.system import RunningSystem, running_system
from owlclaw_ray.client import SyncClient
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.ids import RunId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.store.sql.factory import open_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TITLE = "The console: pages of a long past, open pages, and how soon an event is seen."
ENTRIES, AGENTS, APPROVALS = 10_000, 120, 20
_LONG = AgentRef.parse("bench:long")
_LONG_RUN = RunId("run_long")
_AT_ONCE = 500
_TURNS = 40
_HOUR = '{"rules": [{"turns": [{"text": "at last", "latency": 3600}]}]}'
_STEP: JsonObject = {"latency": 0.2, "tool_calls": [{"name": "log_decision", "arguments": {"reasoning": "Nothing"}}]}
_BUSY = json.dumps({"rules": [{"turns": [_STEP] * _TURNS, "then": {"text": "done"}}]})
_PAYS_BACK = '{"rules": [{"turns": [{"tool_calls": [{"name": "shop__refund", "arguments": {"order": "17"}}]}]}]}'
_APPLICATION = '''from owlclaw_ray import OwlClaw

app = OwlClaw("shop")


@app.handler("refund", tags=["dangerous"])
def refund(order: str) -> str:
    """Pay money back."""
    return order
'''
_WATCH = """() => {
  window.seen = {};
  const note = (id) => () => { window.seen[id] = (performance.timeOrigin + performance.now()) / 1000; };
  new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach((node) => {
    if (node.id) requestAnimationFrame(note(node.id.slice(1)));
  }))).observe(document.getElementById("entries"), { childList: true });
  return Date.now() / 1000;
}"""
"""Notes when each entry that is added to the page is drawn; returns the time."""
_GOALS = {"runs": 50.0, "GET /v1/runs": 50.0, "a run of 10,000 entries": 500.0}
"""Milliseconds of some pages."""
_LIMITS = {"model_timeout": 7_200, "run_timeout": 7_200}


@dataclass(frozen=True, slots=True)
class _Amounts:
    runs: int
    pages: int
    seconds: float
    rounds: int
    watched: int
    """Runs that are watched, one after another."""


def _amounts(size: Size) -> _Amounts:
    if size is Size.SMOKE:
        return _Amounts(runs=20_000, pages=200, seconds=8.0, rounds=5, watched=1)
    return _Amounts(runs=1_000_000, pages=200, seconds=30.0, rounds=20, watched=5)


def answer(size: Size, say: Say) -> Answer:
    """Fill a store, start the system on it, and look at its pages."""
    amounts = _amounts(size)
    agents: dict[str, dict[str, object]] = {
        "bench": {"model": "scripted:tool_once", "isolation": "shared"},
        "busy": {"model": "scripted:busy.yaml", "isolation": "shared"},
        "patient": {"model": "scripted:hour.yaml", "isolation": "shared", "limits": _LIMITS},
        "cashier": {"model": "scripted:pays.yaml", "isolation": "shared"},
    }
    files = {"agents/busy/busy.yaml": _BUSY, "agents/patient/hour.yaml": _HOUR, "agents/cashier/pays.yaml": _PAYS_BACK}
    with TemporaryDirectory(prefix="owl-bench-") as name:
        say(f"writing {amounts.runs:,} runs, and one of {ENTRIES:,} entries")
        asyncio.run(_write_past(Path(name) / "owlclaw.db", amounts.runs))
        with (
            running_system(agents, files=files, application=_APPLICATION, data_dir=name) as system,
            SyncClient(system.url, timeout=120) as client,
        ):
            _occupy(client, amounts.pages)
            system.settle()
            meter = Meter(system.tree)
            time.sleep(amounts.seconds)
            idle = meter.read()
            background = sum(idle.cpu_seconds.values()) / idle.wall_seconds
            say(f"nobody looks: {100 * background:.1f} % of a core")
            opened = [*_opened(system, amounts, background, say)]
            seen = _seen(system.url, client, amounts.watched, say)
            with _something_happens(system.url):
                kept, shares = _kept_open(system, client, amounts, say)
            system.kill()
    details = {"opened": opened, "open": shares, "seen": seen, "idle": asdict(idle)}
    return Answer("console", (*_figures_of_pages(opened), *kept, *_figures_of_events(seen)), details=details)


async def _write_past(file: Path, runs: int) -> None:
    url = f"sqlite:///{file}"
    await (await open_store(url, writer="past")).close()
    await asyncio.to_thread(fill_sqlite, file, runs, 0)
    await write(file, long_run(_LONG_RUN, _LONG, ENTRIES, SystemClock().now() - timedelta(hours=3)))


def _occupy(client: SyncClient, pages: int) -> None:
    """Have agents be known, calls wait for a person, and runs wait behind one that takes an hour."""
    client.submit_batch([{"agent": f"bench:{at}"} for at in range(AGENTS)])
    client.submit_batch([{"agent": f"cashier:{at}"} for at in range(APPROVALS)])
    client.submit_batch([{"agent": f"patient:{at % 20}"} for at in range(pages + 20)])
    end = time.monotonic() + 120
    while len(client.approvals()) < APPROVALS and time.monotonic() < end:
        time.sleep(0.5)


def _pages(first_run: str) -> Mapping[str, str]:
    return {
        "runs": "/console/runs",
        "runs, status failed": "/console/runs?status=failed",
        "runs, text refund": "/console/runs?text=refund",
        "runs, text of no run": "/console/runs?text=nonesuch",
        "runs, definition d7, failed": "/console/runs?definition=d7&status=failed",
        "a run of 10,000 entries": f"/console/runs/{_LONG_RUN}",
        "the same, its journal": f"/console/runs/{_LONG_RUN}?view=journal",
        "the same, entries from 5,000": f"/console/runs/{_LONG_RUN}?before=5001",
        "agents": "/console/agents",
        "an agent": "/console/agents/bench:1",
        "usage": "/console/usage",
        "approvals": "/console/approvals",
        "fleet": "/console/fleet",
        "GET /v1/runs": "/v1/runs",
        "/healthz": "/healthz",
        "part: rows of runs": f"/console/runs?upto={first_run}&fragment=rows",
        "part: head of a run of 10,000 entries": f"/console/runs/{_LONG_RUN}?fragment=head",
    }


def _opened(system: RunningSystem, amounts: _Amounts, background: float, say: Say) -> Iterator[dict[str, Any]]:
    """Yield what each page takes."""
    with httpx.Client(base_url=system.url, timeout=120, trust_env=False, headers={"Accept": "text/html"}) as http:
        first = http.get("/v1/runs?limit=1").json()["runs"][0]["run_id"]
        for name, path in _pages(first).items():
            http.get(path).raise_for_status()
            meter, taken, sent = Meter(system.tree), list[float](), 0
            for _ in range(amounts.rounds):
                began = time.monotonic()
                sent = int(http.get(path).raise_for_status().headers["content-length"])
                taken.append(1_000 * (time.monotonic() - began))
            spent = meter.read()
            cpu = 1_000 * (sum(spent.cpu_seconds.values()) - background * spent.wall_seconds) / amounts.rounds
            p50, p95 = percentile(taken, 50), percentile(taken, 95)
            say(f"{name}: p50 {p50:.0f}, p95 {p95:.0f} ms, {cpu:.1f} CPU-ms, {sent:,} bytes")
            found = {"p50_ms": p50, "p95_ms": p95, "cpu_ms": cpu, "bytes": sent, "others_cores": spent.others_cores}
            yield {"page": name, "path": path, **found}


def _kinds_of_pages(first_run: str) -> Mapping[str, Sequence[Poll]]:
    """Return what open pages ask for, as their templates have it; a run's page follows a stream instead."""
    rows, chart = f"/console/runs?upto={first_run}&fragment=rows", "/console/runs?fragment=chart"
    return {
        "runs": [Poll(rows, 6), Poll(chart, 60)],
        "runs that failed": [Poll("/console/runs?status=failed&fragment=rows", 6)],
        "agents": [Poll("/console/agents?fragment=rows", 6)],
        "agents by cost": [Poll("/console/agents?sort=cost&fragment=rows", 30)],
        "an agent": [Poll("/console/agents/bench:1?fragment=live", 6)],
        "approvals": [Poll("/console/approvals?fragment=live", 4)],
        "schedules": [Poll("/console/schedules?fragment=rows", 10)],
        "fleet": [Poll("/console/fleet?fragment=live", 10)],
    }


def _kept_open(
    system: RunningSystem, client: SyncClient, amounts: _Amounts, say: Say
) -> tuple[Sequence[Figure], Sequence[dict[str, object]]]:
    """Return what so many open pages cost, of each kind and of several, beside what the system uses while nobody looks."""
    kinds = _kinds_of_pages(str(client.runs(limit=1)["runs"][0]["run_id"]))
    waiting = [each["run_id"] for each in client.runs(status="queued", limit=amounts.pages)["runs"]]
    streams = [f"/console/runs/{run_id}/stream?after=1" for run_id in waiting]
    mix = [[*kinds.values()][at % len(kinds)] for at in range(amounts.pages // 2)]
    figures, shares = [], []
    meter = Meter(system.tree)
    time.sleep(amounts.seconds)
    idle = meter.read()
    background = sum(idle.cpu_seconds.values()) / idle.wall_seconds
    say(f"nobody looks, and a run begins every second: {100 * background:.1f} % of a core")

    def note(name: str, polls: int, meter: Meter, failed: int = 0) -> None:
        spent = meter.read()
        share = 100 * (sum(spent.cpu_seconds.values()) / spent.wall_seconds - background)
        each = 10 * share * spent.wall_seconds / polls if polls else None
        by_process = dict([*spent.cpu_seconds.items()][:5])
        shares.append({"pages": name, "share": share, "cpu_ms_a_poll": each, "failed": failed, "cpu": by_process})
        figures.append(
            Figure(
                f"{amounts.pages} pages open: {name}",
                share,
                "% of a core",
                baseline=100 * background,
                baseline_is="the same system while nobody looks",
                goal="at most 10" if amounts.pages == 200 else "",
                met=share <= 10 if amounts.pages == 200 else None,
                note=disturbance(spent.others_cores),
            )
        )
        say(
            f"{amounts.pages} open pages, {name}: {share:.1f} % of a core"
            + (f", {each:.1f} CPU-ms a poll" if each else "")
        )

    meter = Meter(system.tree)
    asyncio.run(with_streams_open(system.url, streams, amounts.seconds))
    note("of runs", 0, meter)
    for name, polls in kinds.items():
        meter = Meter(system.tree)
        polled = asyncio.run(keep_open(system.url, [polls] * amounts.pages, amounts.seconds))
        note(name, polled.answered, meter, polled.failed)
    meter = Meter(system.tree)
    answered = asyncio.run(_all_kinds(system.url, mix, streams[: amounts.pages - len(mix)], amounts.seconds))
    note("half of runs, the other half of all other kinds", answered, meter)
    return figures, shares


async def _all_kinds(url: str, pages: Sequence[Sequence[Poll]], streams: Sequence[str], seconds: float) -> int:
    async with asyncio.TaskGroup() as both:
        polled = both.create_task(keep_open(url, pages, seconds))
        both.create_task(with_streams_open(url, streams, seconds))
    return polled.result().answered


@contextmanager
def _something_happens(url: str) -> Iterator[None]:
    """Have a run begin every second, each of another agent, so that what pages show changes."""
    over = threading.Event()

    def go_on() -> None:
        with SyncClient(url, timeout=120) as client:
            for at in itertools.count():
                if over.wait(1.0):
                    return
                client.submit(f"bench:{at % AGENTS}")

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _seen(url: str, client: SyncClient, watched: int, say: Say) -> dict[str, list[float]]:
    """Return the milliseconds from each entry's `at` to where it was seen."""
    seen: dict[str, list[float]] = {"at the client": []}
    for _ in range(watched):
        run_id = _busy_run(client)
        seen["at the client"] += _delays(client, run_id, *asyncio.run(_followed(url, run_id)))
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is not None and find_spec("playwright") is not None:
        seen["in the page"] = []
        with chromium(path) as browser:
            for _ in range(watched):
                run_id = _busy_run(client)
                seen["in the page"] += _delays(client, run_id, *_looked_at(browser, url, run_id, client))
    for where, delays in seen.items():
        say(f"{len(delays)} entries {where}: p50 {percentile(delays, 50):.0f}, p95 {percentile(delays, 95):.0f} ms")
    return seen


def _busy_run(client: SyncClient) -> str:
    return str(client.submit("busy:1")["run_id"])


async def _followed(url: str, run_id: str) -> tuple[float, dict[int, float]]:
    stream = RunPageStream(url, f"/console/runs/{run_id}/stream")
    begun = time.time()  # noqa: TID251 - as the clock of the system that is measured
    await stream.follow()
    return begun, stream.heard


@contextmanager
def chromium(path: str) -> Iterator[Browser]:
    """Have a browser until the block ends."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def _looked_at(browser: Browser, url: str, run_id: str, client: SyncClient) -> tuple[float, dict[int, float]]:
    page = browser.new_page()
    page.goto(f"{url}/console/runs/{run_id}")
    begun: float = page.evaluate(_WATCH)
    while client.run(run_id)["status"] not in {"completed", "failed"}:
        page.wait_for_timeout(500)
    page.wait_for_timeout(500)
    seen: dict[str, float] = page.evaluate("window.seen")
    page.close()
    return begun, {int(seq): at for seq, at in seen.items()}


def _delays(client: SyncClient, run_id: str, begun: float, seen: Mapping[int, float]) -> list[float]:
    """Return the milliseconds to the entries that came after it began to be looked at."""
    written = {each["seq"]: datetime.fromisoformat(each["at"]).timestamp() for each in client.events(run_id)}
    return [1_000 * (at - written[seq]) for seq, at in seen.items() if seq in written and written[seq] > begun]


def _figures_of_pages(opened: Sequence[Mapping[str, Any]]) -> Iterator[Figure]:
    probe = next(each["p50_ms"] for each in opened if each["page"] == "/healthz")
    for each in opened:
        goal = _GOALS.get(each["page"])
        yield Figure(
            f"{each['page']}, p50",
            each["p50_ms"],
            "ms",
            baseline=probe,
            baseline_is="/healthz of the same server",
            goal=f"at most {goal:g}" if goal else "",
            met=each["p50_ms"] <= goal if goal else None,
            note=f"p95 {each['p95_ms']:.0f} ms, {each['cpu_ms']:.1f} CPU-ms, {each['bytes']:,} bytes",
        )


def _figures_of_events(seen: Mapping[str, Sequence[float]]) -> Iterator[Figure]:
    for where, delays in seen.items():
        p50, p95 = percentile(delays, 50), percentile(delays, 95)
        note = f"p50 {p50:.0f} ms, {len(delays)} entries"
        yield Figure(f"event {where}, p95", p95, "ms", goal="at most 150", met=p95 <= 150, note=note)
