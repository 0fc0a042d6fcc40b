"""`owlclaw up` as its users start it: a process of its own, in a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from owlclaw_ray.client import SyncClient
from serve.front import CONFIGURATION
from serve.loopback import free_ports
from serve.processes import command_line, descendants, title_of

READY = "ready in"
APP = """
import time
from pathlib import Path

from owlclaw_ray import Change, OwlClaw, ToolContext

app = OwlClaw("trial")


@app.handler("act")
def act(what: str, context: ToolContext) -> str:
    with (Path(__file__).parent / "effects").open("a") as log:
        log.write(f"{context.run_id} {what}\\n")
    return f"did {what}"


@app.handler("risk", tags=["dangerous"])
def risk(what: str, context: ToolContext) -> str:
    return act(what, context)


@app.before_tool("trial.risk")
def shout(use):
    return Change(arguments={"what": use.arguments["what"].upper()})
"""


def _environment() -> dict[str, str]:
    """Return what a user's shell would have: nothing that these tests set for Ray."""
    return {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}  # noqa: TID251


class Installation:
    """A folder with an application, and the runtime that serves it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        [self.port] = free_ports(1)
        (folder / "trial_app.py").write_text(APP)
        settings = {
            "app": "trial_app:app",
            "http": {"port": self.port},
            "actors": {"warm": 1},
            "shutdown": {"grace_seconds": 10},
        }
        (folder / "owlclaw.yaml").write_text(yaml.safe_dump(settings))
        self.variables: dict[str, str] = {}
        """Of its environment, beside those of everybody."""
        self.process: subprocess.Popen[str] | None = None
        self.said: list[str] = []

    def define(self, name: str, *rules: dict[str, object]) -> None:
        folder = self.folder / "agents" / name
        folder.mkdir(parents=True)
        (folder / "SOUL.md").write_text("You are calm.")
        (folder / "IDENTITY.md").write_text("# Trial\n\n## My Capabilities\n- look\n")
        (folder / "script.yaml").write_text(yaml.safe_dump({"rules": list(rules)}))
        (folder / "agent.yaml").write_text("model: scripted:script.yaml\n")

    def up(self) -> None:
        """Start the runtime and return when it says that it is ready."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "serve.cli", "up"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=_environment() | self.variables,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if READY in line:
                return
        self.process.communicate()
        raise AssertionError("owlclaw up ended:\n" + "".join(self.said))

    def family(self) -> list[psutil.Process]:
        """Return the living processes that the runtime consists of, its first one aside."""
        assert self.process is not None
        return descendants(self.process.pid)

    def scratch(self) -> Path:
        """Return the temporary folder of the runtime that runs."""
        [haproxy] = [
            words for each in self.family() if (words := command_line(each))[-1:] and words[-1].endswith(CONFIGURATION)
        ]
        return Path(haproxy[-1]).parent

    def interrupt(self) -> int:
        """Press Ctrl-C: the whole foreground process group gets SIGINT. Return the exit code."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGINT)
        said, _ = self.process.communicate(timeout=90)
        self.said.append(said)
        return self.process.returncode

    def kill_everything(self) -> None:
        """Kill -9 the process; return when all that it started is gone too.

        Two helpers of Ray's (its dashboard and runtime-environment agents) look for their raylet once in a while only. A worker
        that is amid a call to Ray's control store gives up on it after a minute.
        """
        assert self.process is not None
        family = [each for each in self.family() if not title_of(each).endswith("Agent")]
        self.process.kill()
        self.process.communicate()
        _, alive = psutil.wait_procs(family, timeout=90)
        assert not alive, [command_line(each) for each in alive]

    def owlclaw(self, *arguments: str) -> str:
        """Run another command in the folder and return what it printed; raises CalledProcessError."""
        command = [sys.executable, "-m", "serve.cli", *arguments]
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, env=_environment() | self.variables, check=True
        ).stdout

    def client(self) -> SyncClient:
        return SyncClient(f"http://127.0.0.1:{self.port}", timeout=60)


def environment_of(process: psutil.Process) -> bytes:
    """Return what others see of the environment that the process was started with; nothing if it is gone."""
    try:
        return Path(f"/proc/{process.pid}/environ").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    made = Installation(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.interrupt()
