"""The load test that users run themselves, against a server that it starts.

Fifty users trigger agents, wait for outcomes, read runs and follow their events, each a few times a second
(`benchmarks/locustfile.py`). Locust's own HTML report and CSV files are kept beside the results.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.processes import clean_environment, stop
from benchmarks.question import Answer, Figure, Plot, Say, Series, Size
from benchmarks.system import running_system

TITLE = "Fifty users of the HTTP API, with locust."

USERS = 50
SECONDS = {Size.SMOKE: 10, Size.FULL: 60}
MOST_FAILING_PERCENT = 0.1
GOAL_MS = 1_000.0
_LOCUSTFILE = Path(__file__).parent / "locustfile.py"
_A_SECOND = 10
"""Users that begin."""
_SAY_SECONDS = 5.0
_GRACE = 60.0
_TOTAL = "Aggregated"
_TRIGGERS = ("POST …/triggers", "POST …/triggers?wait")
_KEPT = ("report.html", "stats.csv", "stats_history.csv", "failures.csv")

Row = Mapping[str, str]


def answer(size: Size, say: Say) -> Answer:
    """Start a server, run locust against it, and return what it counted. Raises ModuleNotFoundError without locust."""
    if find_spec("locust") is None:
        raise ModuleNotFoundError("No module named 'locust'", name="locust")
    agents = {"clerk": {"model": "scripted:tool_once", "isolation": "shared"}}
    with TemporaryDirectory(prefix="owl-bench-") as name, running_system(agents) as system:
        system.settle()
        folder = Path(name)
        code = run_locust(system.url, SECONDS[size], folder, say)
        rows = statistics_of((folder / "load_stats.csv").read_text(encoding="utf-8").splitlines())
        history = list(csv.DictReader((folder / "load_stats_history.csv").open(encoding="utf-8")))
        files = {kept: found.read_bytes() for kept in _KEPT if (found := folder / f"load_{kept}").exists()}
        system.kill()
    return Answer("load", figures(rows), plots(history), {"users": USERS, "exit_code": code, "rows": rows}, files)


def run_locust(url: str, seconds: int, folder: Path, say: Say) -> int:
    """Run locust to its end, tell its progress, and return its exit code. Raises RuntimeError if it makes no statistics."""
    options = ["-u", str(USERS), "-r", str(_A_SECOND), "-t", f"{seconds}s", "--host", url]
    report = ["--csv", str(folder / "load"), "--html", str(folder / "load_report.html"), "--csv-full-history"]
    command = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(_LOCUSTFILE),
        "--headless",
        "--only-summary",
        *options,
        *report,
    ]
    log = folder / "locust.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, cwd=folder, env=clean_environment(), start_new_session=True
        )
    try:
        for line in progress(process, folder / "load_stats_history.csv"):
            say(line)
    finally:
        stop(process, _GRACE)
    if not (folder / "load_stats.csv").exists():
        raise RuntimeError(f"locust ended with {process.returncode}:\n{log.read_text()}")
    return process.returncode


def progress(process: subprocess.Popen[bytes], history: Path) -> Iterator[str]:
    """Yield a line now and then, until the process ends."""
    while True:
        try:
            process.wait(_SAY_SECONDS)
        except subprocess.TimeoutExpired:
            if history.exists():
                yield from told(history.read_text(encoding="utf-8").splitlines())
        else:
            return


def told(lines: list[str]) -> Iterator[str]:
    """Yield how it stands after the last of locust's history; nothing while there is none."""
    rows = [row for row in csv.DictReader(lines) if row["Name"] == _TOTAL and row["Total Request Count"]]
    if rows:
        last = rows[-1]
        yield (
            f"{last['User Count']} users, {last['Total Request Count']} requests,"
            f" {float(last['Requests/s']):.0f}/s, {last['Total Failure Count']} failed"
        )


def statistics_of(lines: list[str]) -> dict[str, dict[str, float]]:
    """Return locust's statistics by name of the request, the sum of all under `Aggregated`."""
    return {
        row["Name"]: {
            "requests": float(row["Request Count"]),
            "failures": float(row["Failure Count"]),
            "per_second": float(row["Requests/s"]),
            **{f"p{percent}": _number(row[f"{percent}%"]) for percent in (50, 95, 99)},
        }
        for row in csv.DictReader(lines)
    }


def figures(rows: Mapping[str, Mapping[str, float]]) -> tuple[Figure, ...]:
    """Return the rate and the failures of all requests, and the latency of each kind."""
    total = rows[_TOTAL]
    failing = 100 * total["failures"] / max(total["requests"], 1)
    latencies = [
        Figure(
            f"p{percent}_ms, {name}",
            row[f"p{percent}"],
            "ms",
            goal=f"at most {GOAL_MS:g} ms" if (judged := name in _TRIGGERS and percent == 95) else "",
            met=row[f"p{percent}"] <= GOAL_MS if judged else None,
            note=f"{row['requests']:.0f} requests",
        )
        for name, row in rows.items()
        if name != _TOTAL
        for percent in (50, 95, 99)
    ]
    return (
        Figure("requests_per_second", total["per_second"], "/s", note=f"{USERS} users who pause between requests"),
        Figure(
            "failed_requests",
            failing,
            "%",
            goal=f"at most {MOST_FAILING_PERCENT:g} %",
            met=total["requests"] > 0 and failing <= MOST_FAILING_PERCENT,
            note=f"{total['failures']:.0f} of {total['requests']:.0f}",
        ),
        *latencies,
    )


def plots(history: Sequence[Row]) -> tuple[Plot, ...]:
    """Return the rate and the latency over time."""
    rows = [row for row in history if row["Name"] == _TOTAL and row["Total Request Count"] not in {"", "0"}]
    if not rows:
        return ()
    start = int(rows[0]["Timestamp"])
    seconds = tuple(float(int(row["Timestamp"]) - start) for row in rows)
    rate = Series("requests/s", seconds, tuple(_number(row["Requests/s"]) for row in rows))
    latency = tuple(
        Series(f"p{percent}", seconds, tuple(_number(row[f"{percent}%"]) for row in rows)) for percent in (50, 95)
    )
    return (
        Plot("Requests a second under load", "s", "/s", (rate,), "lines"),
        Plot("Latency under load", "s", "ms", latency, "lines"),
    )


def _number(text: str) -> float:
    return 0.0 if text in {"", "N/A"} else float(text)
