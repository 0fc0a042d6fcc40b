"""`python -m benchmarks.starts`: starts and stops a runtime amid its work, again and again, and looks for what is left.

Each time some triggers are submitted and Ctrl-C is pressed while their runs are under way; every fourth time during the start
already. Processes that do nothing but compute stand for a busy machine. Exit code 1 if a stop left a process or a folder, took too long, or
ended with another code than it should.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from benchmarks.chaos.installation import Installation
from benchmarks.chaos.workload import orders
from benchmarks.processes import ProcessTree, clean_environment, scratch_of
from serve.processes import lives, title_of

_RUNS = 20
_STOP_SECONDS = 150.0
_GONE_SECONDS = 10.0
_EVERY = 4
_INTERRUPTED = (1, 130)


def main() -> None:
    """Run as often as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--busy", type=int, default=2 * (os.cpu_count() or 1), help="processes that only compute")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="owl-starts-", dir="/tmp") as folder, _busy(options.busy):
        installation = Installation(Path(folder))
        installation.write(ray={})
        failed = sum(not _once(installation, number) for number in range(options.times))
    print(f"{options.times} starts and stops, {failed} with something to mend")
    sys.exit(1 if failed else 0)


@contextmanager
def _busy(count: int) -> Iterator[None]:
    command = [sys.executable, "-IS", "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _once(installation: Installation, number: int) -> bool:
    """Return whether a start and its stop left nothing, after a line about them."""
    early = number % _EVERY == _EVERY - 1
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "serve.cli", "up"],
        cwd=installation.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=clean_environment(),
        start_new_session=True,
    )
    said = _read_until("starting Ray" if early else "ready in", process)
    if not early:
        asyncio.run(_submit(installation.url, number))
    family = ProcessTree(psutil.Process(process.pid)).processes()
    scratch = scratch_of(family)
    ready = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    try:
        said += process.communicate(timeout=_STOP_SECONDS)[0]
    except subprocess.TimeoutExpired:
        problems = [f"it did not end within {_STOP_SECONDS:g} s"]
        ProcessTree(psutil.Process(process.pid)).kill()
        process.communicate()
    else:
        expected = _INTERRUPTED if early else (0,)
        problems = [] if process.returncode in expected else [f"exit code {process.returncode}: {said}"]
    ended = time.monotonic()
    psutil.wait_procs([each for each in family if each.pid != process.pid], timeout=_GONE_SECONDS)
    problems += [f"left {title_of(each)}" for each in family if each.pid != process.pid and lives(each)]
    problems += [f"left {scratch}"] if scratch is None or scratch.exists() else []
    problems += ["it was cut short"] if "cut short" in said else []
    what = "; ".join(problems) or "nothing left"
    print(
        f"{number}: load {os.getloadavg()[0]:.0f}, {'interrupted' if early else 'ready'} after {ready - started:.1f} s, "
        f"stopped in {ended - ready:.1f} s, {what}",
        flush=True,
    )
    return not problems


def _read_until(word: str, process: subprocess.Popen[str]) -> str:
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if word in line:
            break
    return said


async def _submit(url: str, seed: int) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        for order in orders(seed, _RUNS):
            await client.post(f"/v1/agents/{order.agent}/triggers", json={"payload": order.payload})


if __name__ == "__main__":
    main()
