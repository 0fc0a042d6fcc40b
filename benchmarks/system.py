"""A running system to measure: started by the CLI, as users start it, in a folder of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import psutil

from serve.loopback import free_ports

READY_SECONDS = 180.0


@dataclass(frozen=True)
class RunningSystem:
    """`owlclaw up`, answering at `url`."""

    url: str
    process: psutil.Process
    seconds_to_ready: float

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its processes so far: Ray's, Serve's, the store's, the CLI's own."""
        total = 0.0
        for each in (self.process, *self.process.children(recursive=True)):
            try:
                times = each.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system
        return total


@contextmanager
def running_system(agents: dict[str, dict[str, object]], **settings: object) -> Iterator[RunningSystem]:
    """Run OwlClaw with these agents (agent.yaml by name) and settings until the block ends."""
    with TemporaryDirectory(prefix="owl-bench-") as name:
        folder = Path(name)
        [port] = free_ports(1)
        for agent, options in agents.items():
            _write_agent(folder / "agents" / agent, options)
        (folder / "owlclaw.yaml").write_text(json.dumps({"http": {"port": port}, **settings}))
        log = (folder / "up.log").open("w")
        started = time.monotonic()
        command = [sys.executable, "-m", "serve.cli", "up"]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_until_ready(url, process, folder / "up.log")
            yield RunningSystem(url, psutil.Process(process.pid), time.monotonic() - started)
        finally:
            process.terminate()
            process.wait(60)
            log.close()


def _write_agent(folder: Path, options: dict[str, object]) -> None:
    folder.mkdir(parents=True)
    (folder / "SOUL.md").write_text("You are calm and precise.\n")
    (folder / "IDENTITY.md").write_text("# Bench\n\n## My Capabilities\n- answer triggers\n")
    (folder / "agent.yaml").write_text(json.dumps(options))


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"owlclaw up ended with {process.returncode}:\n{log.read_text()}")
        try:
            if httpx.get(f"{url}/readyz", timeout=2).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"owlclaw up was not ready after {READY_SECONDS:.0f} s:\n{log.read_text()}")
