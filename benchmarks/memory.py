"""What 10,000 memories of one agent cost, without Ray: as a tool worker keeps them, in a process of its own.

They are remembered one by one. Each answer is compared with one append to a file and its fsync, made between them on the same
disk; recall with the same two searches on a LanceDB table of the same rows that was written at once, in turns with it. The
vectors of what is remembered are made up, so that the figures are those of the index, and the questions' vectors come from the
local embedder if it is installed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson

from benchmarks.distribution import percentile
from benchmarks.processes import clean_environment
from benchmarks.question import Answer, Figure, Say, Size

TITLE = "10,000 memories of one agent: what remembering, keeping and recalling them takes."

MEMORIES = {Size.SMOKE: 1_000, Size.FULL: 10_000}
QUESTIONS = {Size.SMOKE: 40, Size.FULL: 300}
GOAL_ACKNOWLEDGE = 5.0
GOAL_RECALL = 3.0
GOAL_BYTES, GOAL_FILES, GOAL_MB = 1_000, 0.1, 400
_TIMEOUT_SECONDS = 1_800.0
_GOAL_MS = {"words": 25.0, "words and meaning": 100.0}
_RAW = "the same searches on a LanceDB table of the same rows, written at once, in turns"


def answer(size: Size, say: Say) -> Answer:
    """Measure in a fresh process, once without an embedder and once with one."""
    details: dict[str, Any] = {}
    figures: list[Figure] = []
    for kind in _GOAL_MS:
        say(f"{MEMORIES[size]} memories, {kind}")
        found = _measured(kind, size)
        details[kind] = found
        figures += _figures(kind, found)
    return Answer("memory", tuple(figures), details=details)


def _measured(kind: str, size: Size) -> dict[str, Any]:
    arguments = ("words" if kind == "words" else "vectors", str(MEMORIES[size]), str(QUESTIONS[size]))
    with tempfile.TemporaryDirectory(prefix="owl-bench-") as folder:
        subprocess.run(
            [sys.executable, "-m", "benchmarks.memory_worker", folder, *arguments],
            env={**clean_environment(), "MALLOC_ARENA_MAX": "2"},
            check=True,
            timeout=_TIMEOUT_SECONDS,
        )
        found: dict[str, Any] = orjson.loads(Path(folder, "found.json").read_bytes())
    return found


def _figures(kind: str, found: dict[str, Any]) -> list[Figure]:
    remembered, appended = found["remember_seconds"], found["append_seconds"]
    recalled, raw = found["recall_seconds"], found["raw_seconds"]
    count = found["memories"]
    figures = [
        Figure(
            f"remember, {percent}, {kind}",
            1_000 * take(remembered),
            "ms",
            baseline=1_000 * take(appended),
            baseline_is="one append to a file and its fsync, between the calls",
            goal=f"at most {GOAL_ACKNOWLEDGE:g} of the baseline",
            met=take(remembered) <= GOAL_ACKNOWLEDGE * take(appended),
        )
        for percent, take in (("p50", statistics.median), ("p95", lambda values: percentile(values, 95)))
    ]
    ours, theirs = 1_000 * percentile(recalled, 95), 1_000 * percentile(raw, 95)
    goal = _GOAL_MS[kind]
    figures.append(
        Figure(
            f"recall p95, {kind}",
            ours,
            "ms",
            baseline=theirs,
            baseline_is=_RAW,
            goal=f"at most {goal:g} ms, or {GOAL_RECALL:g} of the baseline",
            met=ours <= goal or ours <= GOAL_RECALL * theirs,
            note=f"median {1_000 * statistics.median(recalled):.1f} ms, baseline {1_000 * statistics.median(raw):.1f} ms;"
            f" questions embedded by {found['embedder'] or 'nothing'}",
        )
    )
    figures += [
        Figure(
            f"bytes on disk a memory, {kind}",
            found["index_bytes"] / count,
            "B",
            goal=f"at most {GOAL_BYTES}",
            met=found["index_bytes"] <= GOAL_BYTES * count,
            note=f"of the index; with MEMORY.md {found['all_bytes'] / count:.0f}",
        ),
        Figure(
            f"files a memory, {kind}",
            found["files"] / count,
            "",
            goal=f"at most {GOAL_FILES:g}",
            met=found["files"] <= GOAL_FILES * count,
        ),
        Figure(
            f"worker's memory, {kind}",
            found["resident_bytes"] / 1e6,
            "MB",
            goal=f"at most {GOAL_MB}",
            met=found["resident_bytes"] <= GOAL_MB * 1_000_000,
            note="resident, with LanceDB and what embeds questions, after all was indexed and some of it recalled",
        ),
        Figure(f"seconds until all was indexed, {kind}", found["settle_seconds"], "s", note="after the last answer"),
    ]
    return figures
