"""A running system to measure: started by the CLI, as users start it, in a folder of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import psutil

from benchmarks.processes import PeakMemory, ProcessTree, clean_environment, stop
from owlclaw_ray.settings import load_settings
from serve.loopback import free_ports

READY_SECONDS = 180.0
STOP_SECONDS = 60.0


@dataclass(frozen=True)
class RunningSystem:
    """`owlclaw up`, answering at `url`."""

    url: str
    process: psutil.Process
    seconds_to_ready: float
    folder: Path
    """The application's, with owlclaw.yaml and agents/."""
    data_dir: Path
    """Where its store and its agents' memories are: what owlclaw.yaml says, or `.owlclaw` in the folder."""

    @property
    def store(self) -> Path:
        """The SQLite file."""
        return self.data_dir / "owlclaw.db"

    @property
    def tree(self) -> ProcessTree:
        """All its processes: Ray's, Serve's, the store's, the CLI's own."""
        return ProcessTree(self.process)

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its processes so far."""
        return self.tree.cpu_seconds()

    def pss_bytes(self) -> int:
        """Return the memory of all its processes now; what they share counts once."""
        return self.tree.pss_bytes()

    def peak_memory(self) -> AbstractContextManager[PeakMemory]:
        """Watch the memory of all its processes until the block ends."""
        return self.tree.peak_memory()

    def settle(self) -> None:
        """Return when it has loaded what it loads after it is ready (tool workers import their libraries)."""
        self.tree.settle()

    def kill(self) -> None:
        """Kill -9 all its processes; the folder stays until the block of `running_system` ends."""
        self.tree.kill()


@contextmanager
def running_system(
    agents: Mapping[str, Mapping[str, object]],
    *,
    application: str = "",
    files: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    **settings: object,
) -> Iterator[RunningSystem]:
    """Run OwlClaw with these agents (agent.yaml by name) and settings until the block ends.

    `application` is the text of app.py, with an `app = OwlClaw(…)`; `files` are texts by their paths in the application's
    folder, such as `agents/bench/script.yaml`; `environment` goes over that of this process, from which everything of
    Ray's and OwlClaw's is removed.
    """
    with TemporaryDirectory(prefix="owl-bench-") as name:
        folder = Path(name)
        [port] = free_ports(1)
        _write_application(folder, agents, {"app.py": application, **(files or {})})
        named = {"app": "app:app"} if application else {}
        (folder / "owlclaw.yaml").write_text(json.dumps({"http": {"port": port}, **named, **settings}))
        with serving(folder, environment) as system:
            yield system


@contextmanager
def serving(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[RunningSystem]:
    """Run `owlclaw up` for the application in that folder until the block ends."""
    environ = {**clean_environment(), **(environment or {})}
    settings = load_settings(folder, environ)
    log = folder / "up.log"
    url = f"http://127.0.0.1:{settings.http.port}"
    started = time.monotonic()
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "serve.cli", "up"],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environ,
            start_new_session=True,  # Ctrl-C is for this process, which then stops that one
        )
    try:
        _wait_until_ready(url, process, log)
        yield RunningSystem(url, psutil.Process(process.pid), time.monotonic() - started, folder, settings.data_dir)
    finally:
        stop(process, STOP_SECONDS)


def _write_application(folder: Path, agents: Mapping[str, Mapping[str, object]], files: Mapping[str, str]) -> None:
    texts = dict(files)
    for agent, options in agents.items():
        texts[f"agents/{agent}/SOUL.md"] = "You are calm and precise.\n"
        texts[f"agents/{agent}/IDENTITY.md"] = "# Bench\n\n## My Capabilities\n- answer triggers\n"
        texts[f"agents/{agent}/agent.yaml"] = json.dumps(options)
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + READY_SECONDS
    with httpx.Client(timeout=2) as client:
        while time.monotonic() < end:
            if process.poll() is not None:
                raise RuntimeError(f"owlclaw up ended with {process.returncode}:\n{log.read_text()}")
            try:
                if client.get(f"{url}/readyz").is_success:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
    raise RuntimeError(f"owlclaw up was not ready after {READY_SECONDS:.0f} s:\n{log.read_text()}")
