"""What is measured beside OwlClaw, each in a process of its own: one of these modules, which says where it answers."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.processes import ProcessTree, clean_environment, stop
from benchmarks.system import READY_SECONDS, STOP_SECONDS


@dataclass(frozen=True)
class Child:
    """It answers at `url`."""

    url: str
    tree: ProcessTree
    seconds_to_ready: float
    folder: Path
    """Where it may keep files."""


@contextmanager
def running(
    module: str, *arguments: str, interpreter: str = sys.executable, environment: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """Run `python -m <module> <folder> <arguments>`, which prints `ready <url>` and ends with SIGTERM, until the block ends.

    `environment` goes over that of this process, from which everything of Ray's and OwlClaw's is removed.
    """
    with tempfile.TemporaryDirectory(prefix="owl-bench-") as name:
        folder = Path(name)
        log = folder / "log"
        started = time.monotonic()
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [interpreter, "-m", module, name, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env={**clean_environment(), **(environment or {})},
                start_new_session=True,
            )
        try:
            url = _url(process, log)
            tree = ProcessTree(psutil.Process(process.pid))
            yield Child(url, tree, time.monotonic() - started, folder)
        finally:
            stop(process, STOP_SECONDS)
            assert process.stdout is not None
            process.stdout.close()


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    limit = threading.Timer(READY_SECONDS, process.kill)
    limit.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            said, _, url = line.decode().strip().partition(" ")
            if said == "ready":
                return url
    finally:
        limit.cancel()
    raise RuntimeError(f"{process.args!r} ended, or was not ready within {READY_SECONDS:.0f} s:\n{log.read_text()}")
