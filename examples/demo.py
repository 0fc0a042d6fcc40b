"""`make demo`: starts the runtime of examples/host_watch, triggers its agent over HTTP, prints what happens, and stops it again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

import psutil
from rich.text import Text

from owlclaw_ray import wire
from owlclaw_ray.client import SyncClient
from owlclaw_ray.errors import OwlClawError
from serve import pid_file
from serve.cli.output import complain, console, plain
from serve.cli.timeline import Timeline, heading
from serve.loopback import free_ports

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "host_watch"
DATA = ROOT / ".owlclaw" / "demo"
KEPT_LOGS = DATA / "failed-demo-logs"
AGENT = "host_watch"
PORT = 8700
LIMIT_SECONDS = 480
STOP_SECONDS = 90
LONGEST_WAIT = 120
LOOK_FOCUS = "health of this machine; look again in a few seconds"
QUESTION = "How were load, memory and disk of this machine?"
EXPECTED = {"query_state", "host_watch.write_report", "remember", "schedule_once", "log_decision"}
INTERRUPTED = 130


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


class RuntimeProcess:
    """`owlclaw up` in a process and session of its own, so that Ctrl-C reaches only this program."""

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        command = [str(Path(sys.executable).with_name("owlclaw")), "up", "--folder", str(FOLDER)]
        self.url = url
        self._ready = threading.Event()
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> None:
        """Return once triggers are accepted; raises DemoError if the process ends before."""
        while not self._ready.wait(0.1):
            self.check()

    def check(self) -> None:
        """Raise DemoError if the process ended by itself."""
        code = self._process.poll()
        if code is not None:
            self._reader.join(5)
            raise DemoError(f"the runtime ended with exit code {code}; its last lines are above")

    def stop(self) -> None:
        """Have the runtime drain and end; kill what is left of it when it does not."""
        descendants = _descendants(self._process.pid)
        self._process.send_signal(signal.SIGTERM if self._ready.is_set() else signal.SIGINT)
        try:
            self._process.wait(STOP_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            complain("the runtime did not stop in time and is killed")
            self._process.kill()
        for each in psutil.wait_procs(descendants, timeout=10)[1]:
            each.kill()
        self._reader.join(5)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            console().print(Text(f"   {plain(line.rstrip())}", style="dim"), soft_wrap=True)
            if line.startswith("ready in "):
                self._ready.set()


class Demo:
    """The story: a look at the machine, the follow-up that the agent plans itself, a question about the past."""

    def __init__(self, client: SyncClient, alive: Callable[[], None]) -> None:
        self._client, self._alive = client, alive
        self._scripted = client.agent(AGENT)["scripted"]

    def tell(self) -> str:
        """Run it; return the path of the report, empty if the model wrote none. Raises DemoError."""
        self._say_model()
        payload = {"again_in": 6}
        _title(f"2  A trigger over HTTP: POST /v1/agents/{AGENT}/triggers")
        _say(f'body: {{"payload": {{"again_in": 6}}, "focus": "{LOOK_FOCUS}"}}')
        look, contents = self._follow(self._submit(payload, LOOK_FOCUS))
        if self._scripted:
            self._require(set(look["tools_called"]) >= EXPECTED, f"expected calls of {sorted(EXPECTED)}")
        _title("3  The agent planned its own next look: it fires by itself")
        self._follow_up()
        _title("4  A second trigger asks about the past: the agent recalls its memory")
        _say(f'body: {{"payload": {{"question": "{QUESTION}"}}}}')
        _, recalled = self._follow(self._submit({"question": QUESTION}, ""))
        if self._scripted:
            self._require(any(each.get("count") for each in recalled.get("recall", ())), "the memory was not found")
        self._say_ledger()
        reports = contents.get("host_watch.write_report", ())
        return str(reports[-1]["path"]) if reports else ""

    def _say_model(self) -> None:
        if self._scripted:
            console().print(
                "\n   The model is scripted: no real LLM is asked, its replies come from agents/host_watch/demo.yaml.\n"
                "   Everything else is real: HTTP, Ray, the store, the tools, the figures of this machine.",
                style="yellow",
            )
        else:
            _say(f"\n   The model is {self._client.agent(AGENT)['model']}: what it does is its own decision.")

    def _submit(self, payload: Mapping[str, object], focus: str) -> str:
        accepted = self._client.submit(AGENT, payload, focus)
        _say(f"202 Accepted: committed, it cannot be lost · Location: /v1/runs/{accepted['run_id']}\n")
        return accepted["run_id"]

    def _follow(self, run_id: str) -> tuple[wire.RunResult, dict[str, list[dict[str, object]]]]:
        """Print the run as it happens; return its result and what its tools gave, by name."""
        target = console()
        target.print(heading(run_id, AGENT, scripted=self._scripted))
        timeline = Timeline(target)
        contents: dict[str, list[dict[str, object]]] = {}
        for event in self._client.events(run_id):
            timeline.show(event)
            data = event["data"]
            if event["kind"] == "tool_finished" and isinstance(data.get("content"), dict):
                contents.setdefault(data["tool"], []).append(data["content"])
        result = self._client.run(run_id)["result"]
        if result is None or result["status"] != "completed":
            raise DemoError(f"{run_id} did not complete; its timeline above says why")
        return result, contents

    def _follow_up(self) -> None:
        planned = [each for each in self._client.schedules(AGENT) if each["kind"] == "once"]
        if not planned and not self._scripted:
            _say("The model planned none this time.")
            return
        self._require(bool(planned), "the agent has no schedule")
        due = planned[-1]["next_fire_at"]
        _say(f"{planned[-1]['schedule_id']} · focus: {planned[-1]['focus']}")
        if due is not None:
            _say(f"due at {datetime.fromisoformat(due).astimezone():%H:%M:%S}; waiting …")
        run_id = self._fired(planned[-1]["schedule_id"])
        if run_id:
            _say("")
            self._follow(run_id)
        else:
            self._require(not self._scripted, f"it did not fire within {LONGEST_WAIT} s")
            _say(f"That is later than {LONGEST_WAIT} s from now; this demo does not wait for it.")

    def _fired(self, schedule_id: str) -> str:
        """Return the run that the schedule started, empty if there was none in time."""
        deadline = time.monotonic() + LONGEST_WAIT
        while time.monotonic() < deadline:
            self._alive()
            for run in self._client.runs(AGENT)["runs"]:
                if run["trigger"]["source"] == schedule_id:
                    return run["run_id"]
            time.sleep(0.2)
        return ""

    def _say_ledger(self) -> None:
        records = self._client.ledger(AGENT)
        kinds = [each["kind"] for each in records]
        counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        _title(f"The ledger has {len(records)} hash-chained records of this: {counted}")

    def _require(self, holds: bool, otherwise: str) -> None:  # noqa: FBT001 - an assertion
        if not holds:
            raise DemoError(otherwise)


def main() -> int:
    """Run the demo; 0 only if everything completed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    signal.signal(signal.SIGALRM, _too_late)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS)
    try:
        report = _demonstrate()
    except KeyboardInterrupt:
        complain("interrupted; the runtime is stopped")
        return INTERRUPTED
    except (DemoError, OwlClawError, OSError) as error:
        complain(f"\nThe demo failed: {error}")
        if KEPT_LOGS.exists():
            complain(f"The runtime's logs are in {_shown(KEPT_LOGS)}, what Ray said in {_shown(DATA / 'ray.log')}.")
        return 1
    _say_where_to_look(report)
    return 0


def _demonstrate() -> str:
    _refuse_a_second_one()
    shutil.rmtree(DATA, ignore_errors=True)
    (port,) = [PORT] if _free(PORT) else free_ports(1)
    url = f"http://127.0.0.1:{port}"
    _title("1  Starting the runtime: owlclaw up --folder examples/host_watch")
    with _running(url, port) as runtime:
        runtime.wait_until_ready()
        with SyncClient(url) as client:
            return Demo(client, runtime.check).tell()


@contextmanager
def _running(url: str, port: int) -> Iterator[RuntimeProcess]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OWLCLAW_")}  # noqa: TID251 - a program of its own
    runtime = RuntimeProcess(url, inherited | {"OWLCLAW_DATA_DIR": str(DATA), "OWLCLAW_HTTP__PORT": str(port)})
    try:
        yield runtime
    except BaseException:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if (DATA / "logs").exists():
            shutil.copytree(DATA / "logs", KEPT_LOGS, ignore_dangling_symlinks=True)
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _title("Stopping the runtime")
        runtime.stop()


def _refuse_a_second_one() -> None:
    running = pid_file.read(DATA)
    if running is not None and running.process() is not None:
        raise DemoError(f"an earlier demo still runs as process {running.pid}; stop it with: kill {running.pid}")


def _free(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _say_where_to_look(report: str) -> None:
    memory = DATA / "agents" / "default" / AGENT / "MEMORY.md"
    _title("Where to look next")
    again = f"OWLCLAW_DATA_DIR=$PWD/{_shown(DATA)} .venv/bin/owlclaw"
    for what, where in (
        ("the report", _shown(Path(report)) if report else ""),
        ("its memory", _shown(memory) if memory.exists() else ""),
        ("the agent", "examples/host_watch: app.py, agents/host_watch/*.md, agent.yaml"),
        ("run it on", f"{again} up -C examples/host_watch"),
        ("", "and in another terminal:"),
        ("", f"{again} ledger -C examples/host_watch"),
        ("", f"{again} trigger {AGENT} --follow -C examples/host_watch"),
        ("your own", ".venv/bin/owlclaw init my_app"),
        ("a real model", "write `model: openai/gpt-4o-mini` into agents/host_watch/agent.yaml, set OPENAI_API_KEY"),
        ("documentation", "README.md, docs/"),
    ):
        if where:
            console().print(f"   {what:<15}{where}", soft_wrap=True)


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _title(text: str) -> None:
    console().print(Text(f"\n{text}", style="bold"), soft_wrap=True)


def _say(text: str) -> None:
    console().print(f"   {text}" if text else "", soft_wrap=True)


def _too_late(_number: int, _frame: FrameType | None) -> NoReturn:
    raise DemoError(f"it did not complete within {LIMIT_SECONDS} s")


if __name__ == "__main__":
    sys.exit(main())
