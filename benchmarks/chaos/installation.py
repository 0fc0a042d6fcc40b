"""The system that suffers: `owlclaw up` as its users start it, in a folder of its own, and its processes by role."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.chaos import application, script
from benchmarks.chaos.strikes import Role
from benchmarks.chaos.workload import CROWD, SOLO
from benchmarks.processes import ProcessTree, clean_environment, stop
from serve.loopback import free_ports
from serve.processes import title_of

READY_SECONDS = 600.0
_STOP_SECONDS = 90.0
_POLL_SECONDS = 0.2
_TITLES: Mapping[Role, tuple[str, ...]] = {
    Role.AGENT: ("ray::AgentActor",),
    Role.HUNG_AGENT: ("ray::AgentActor",),
    Role.KEEPER: ("ray::KeeperActor",),
    Role.DIRECTORY: ("ray::DirectoryActor",),
    Role.GATEWAY: ("ray::ModelGatewayActor",),
    Role.SCHEDULER: ("ray::SchedulerActor",),
    Role.ROOT: ("ray::RootActor",),
    Role.REPLICA: ("ray::ServeReplica",),
    Role.CONTROLLER: ("ray::ServeController",),
    Role.PROXY: ("haproxy",),
    Role.HUNG_ROOT: ("ray::RootActor",),
    Role.HUNG_REPLICA: ("ray::ServeReplica",),
    Role.HUNG_PROXY: ("haproxy",),
    Role.RAYLET: ("raylet",),
    Role.GCS: ("gcs_server",),
    Role.DASHBOARD_AGENT: ("ray::DashboardAgent",),
    Role.HUNG_PART: ("ray::KeeperActor", "ray::DirectoryActor", "ray::ModelGatewayActor", "ray::SchedulerActor"),
}
_BUSY_WORKERS, _IDLE_WORKERS = ("ray::run_tools", "ray::warm_worker"), "ray::IDLE"
_APP_MODULE = "chaos_application"


class Installation:
    """A folder with an application, the runtime that serves it, and what both write down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def holder(self) -> Installation:
        """The cluster that runs the agents: there is but this one."""
        return self

    @property
    def urls(self) -> tuple[str, ...]:
        """Where it listens."""
        return (self.url,)

    @property
    def started(self) -> bool:
        """Whether it was started, and not killed since."""
        return self._process is not None

    @property
    def data_dir(self) -> Path:
        """Where the runtime keeps its state."""
        return self.folder / ".owlclaw"

    @property
    def sqlite_url(self) -> str:
        """The embedded store."""
        return f"sqlite:///{self.data_dir}/owlclaw.db"

    @property
    def effects(self) -> Path:
        """The handlers' own log."""
        return self.folder / application.EFFECTS.name

    @property
    def ray_dir(self) -> Path:
        """Ray's folder: the logs of all its processes are kept there, also those of killed runtimes."""
        return self.folder / "ray"

    def write(self, **settings: Any) -> None:
        """Write the application, its agents and owlclaw.yaml."""
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        shutil.copy(Path(application.__file__), self.folder / f"{_APP_MODULE}.py")
        self._write_agent(CROWD, isolation="shared", preload_memories=0)
        self._write_agent(SOLO, isolation="dedicated")
        written = {
            "app": f"{_APP_MODULE}:app",
            "http": {"port": port},
            "memory": {"embedder": "none"},
            "actors": {"agents_per_actor": 20},
            "ray": {"temp_dir": str(self.ray_dir)},
            **settings,
        }
        (self.folder / "owlclaw.yaml").write_text(json.dumps(written, indent=2))

    def start(self) -> None:
        """Start the runtime; it is not ready yet."""
        with (self.folder / "up.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "serve.cli", "up"],
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=clean_environment(),
                start_new_session=True,
            )

    async def ready(self, seconds: float = READY_SECONDS) -> bool:
        """Return whether every part answers within so many seconds; raises RuntimeError if `owlclaw up` ended instead."""
        return await self._answers_within(seconds)

    async def _answers_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        async with httpx.AsyncClient(base_url=self.url, timeout=5, trust_env=False) as client:
            while time.monotonic() < end:
                self._check_life()
                if await _answers(client):
                    return True
                await asyncio.sleep(_POLL_SECONDS)
        return False

    def _check_life(self) -> None:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"owlclaw up ended by itself; see {self.folder / 'up.log'}")

    def hand_on(self) -> None:
        """Note that it has ended: nobody else runs its agents."""

    async def stop(self) -> str:
        """End the runtime as `owlclaw down` does. Return what was wrong with its end, empty if nothing was."""
        process = self._process
        if process is None or process.poll() is not None:
            return "owlclaw up ended by itself"
        started = time.monotonic()
        await asyncio.to_thread(stop, process, _STOP_SECONDS)
        if time.monotonic() - started >= _STOP_SECONDS:
            return f"owlclaw up did not end within {_STOP_SECONDS:g} s of SIGTERM"
        return f"owlclaw up ended with code {process.returncode}" if process.returncode else ""

    async def ended(self, seconds: float) -> int | None:
        """Return the code with which `owlclaw up` ended by itself, None if it is still there after so many seconds."""
        assert self._process is not None
        try:
            return await asyncio.to_thread(self._process.wait, seconds)
        except subprocess.TimeoutExpired:
            return None

    def family(self) -> list[psutil.Process]:
        """Return every process of the runtime."""
        if self._process is None or self._process.poll() is not None:
            return []
        return ProcessTree(psutil.Process(self._process.pid)).processes()

    async def kill(self) -> None:
        """Kill -9 every process of the runtime at once; return when all are gone."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            await asyncio.to_thread(ProcessTree(psutil.Process(process.pid)).kill)
            await asyncio.to_thread(process.wait)

    def processes(self, role: Role) -> list[psutil.Process]:
        """Return the processes of a role, in the order of their numbers."""
        if role is Role.TOOL_WORKER:
            return self._titled(*_BUSY_WORKERS) or self._titled(_IDLE_WORKERS)
        return self._titled(*_TITLES[role])

    def _titled(self, *titles: str) -> list[psutil.Process]:
        return sorted((each for each in self.family() if title_of(each).startswith(titles)), key=lambda each: each.pid)

    def _write_agent(self, name: str, **options: object) -> None:
        folder = self.folder / "agents" / name
        folder.mkdir(parents=True)
        (folder / "SOUL.md").write_text("You are calm and precise.\n")
        (folder / "IDENTITY.md").write_text("# Chaos\n\n## My Capabilities\n- do what the trigger says\n")
        shutil.copy(Path(script.__file__), folder / "script.py")
        (folder / "agent.yaml").write_text(json.dumps({"model": "scripted:script.py", **options}))


async def _answers(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).is_success
    except httpx.TransportError:
        return False
