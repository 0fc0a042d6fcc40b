"""`make demo`: starts the runtime of examples/host_watch, triggers its agent over HTTP, prints what happens, and stops it again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
import psutil
from rich.text import Text

from owlclaw_ray import wire
from owlclaw_ray.client import Client
from owlclaw_ray.domain.json import JsonObject
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
LIMIT_SECONDS = 480.0
STOP_SECONDS = 90.0
LONGEST_WAIT = 120.0
LOOK: JsonObject = {"payload": {"again_in": 6}, "focus": "health of this machine; look again in a few seconds"}
QUESTION: JsonObject = {"payload": {"question": "How were load, memory and disk of this machine?"}}
EXPECTED = {"query_state", "host_watch.write_report", "remember", "schedule_once", "log_decision"}
INTERRUPTED = 130


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


class RuntimeProcess:
    """`owlclaw up` in a session of its own, so that Ctrl-C reaches only this program. Leaving the context stops it."""

    def __init__(self, port: int) -> None:
        command = Path(sys.executable).with_name("owlclaw")
        if not command.exists():
            raise DemoError(f"OwlClaw is not installed for {sys.executable}; run: make demo")
        self.url = f"http://127.0.0.1:{port}"
        self._ready = threading.Event()
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [str(command), "up", "--folder", str(FOLDER)],
            env=_environment() | {"OWLCLAW_DATA_DIR": str(DATA), "OWLCLAW_HTTP__PORT": str(port)},
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if kind not in {None, KeyboardInterrupt} and (DATA / "logs").exists():
            shutil.copytree(DATA / "logs", KEPT_LOGS, ignore_dangling_symlinks=True)
        self._stop()

    async def wait_until_ready(self) -> None:
        """Return once triggers are accepted; raises DemoError if the process ends before."""
        while not self._ready.is_set():
            self.check()
            await asyncio.sleep(0.1)

    def check(self) -> None:
        """Raise DemoError if the process ended by itself."""
        code = self._process.poll()
        if code is not None:
            self._reader.join(5)
            raise DemoError(f"the runtime ended with exit code {code}; its last lines are above")

    def _stop(self) -> None:
        """Have the runtime drain and end, and kill what is left of it if it does not."""
        if self._process.poll() is None:
            _title("Stopping the runtime")
        everything = _family(self._process.pid)
        self._process.send_signal(signal.SIGTERM if self._ready.is_set() else signal.SIGINT)
        try:
            self._process.wait(STOP_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            complain("the runtime is killed: it did not stop in time, or you did not want to wait")
            self._process.kill()
        for each in psutil.wait_procs(everything, timeout=10)[1]:
            each.kill()
        self._reader.join(5)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            console().print(Text(f"   {plain(line.rstrip())}", style="dim"), soft_wrap=True)
            if line.startswith("ready in "):
                self._ready.set()


class Story:
    """A look at the machine, the follow-up that the agent plans itself, and a question about the past."""

    def __init__(self, client: Client, runtime: RuntimeProcess) -> None:
        self._client, self._runtime = client, runtime
        self._scripted = True

    async def tell(self) -> str:
        """Run it all; return the path of the report, empty if a real model wrote none. Raises DemoError."""
        await self._introduce_model()
        _title(f"2  A trigger over HTTP: POST /v1/agents/{AGENT}/triggers")
        result, contents = await self._follow(await self._submit(LOOK))
        self._expect(set(result["tools_called"]) >= EXPECTED, f"the run lacks calls of {sorted(EXPECTED)}")
        _title("3  The agent planned its own next look, which fires by itself")
        await self._follow_up()
        _title("4  A second trigger asks about the past, and the agent recalls it")
        _, recalled = await self._follow(await self._submit(QUESTION))
        self._expect(any(each.get("count") for each in recalled.get("recall", ())), "the memory was not found")
        records = await self._client.ledger(AGENT)
        kinds = [each["kind"] for each in records]
        counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        _title(f"The ledger has {len(records)} hash-chained records of this: {counted}")
        reports = contents.get("host_watch.write_report", ())
        return str(reports[-1]["path"]) if reports else ""

    async def _introduce_model(self) -> None:
        agent = await self._client.agent(AGENT)
        self._scripted = agent["scripted"]
        if self._scripted:
            note = (
                "\n   The model is scripted: no real LLM is asked, its replies come from agents/host_watch/demo.yaml.\n"
                "   Everything else is real: HTTP, Ray, the store, the tools, the figures of this machine."
            )
            console().print(note, style="yellow")
        else:
            console().print(f"\n   The model is {agent['model']}: what the agent does is the model's own decision.")

    async def _submit(self, body: JsonObject) -> str:
        _say(f"body: {orjson.dumps(body).decode()}")
        accepted = await self._client.submit(AGENT, **body)
        _say("202 Accepted: it is committed and cannot be lost\n")
        return accepted["run_id"]

    async def _follow(self, run_id: str) -> tuple[wire.RunResult, dict[str, list[JsonObject]]]:
        """Print the run as it happens; return its result, and what its tools gave by their names."""
        target = console()
        target.print(heading(run_id, AGENT, scripted=self._scripted))
        timeline = Timeline(target)
        contents: dict[str, list[JsonObject]] = {}
        async for event in self._client.events(run_id):
            timeline.show(event)
            data = event["data"]
            if event["kind"] == "tool_finished" and isinstance(data.get("content"), dict):
                contents.setdefault(data["tool"], []).append(data["content"])
        result = (await self._client.run(run_id))["result"]
        if result is None or result["status"] != "completed":
            raise DemoError(f"{run_id} did not complete; its timeline above says why")
        return result, contents

    async def _follow_up(self) -> None:
        planned = [each for each in await self._client.schedules(AGENT) if each["kind"] == "once"]
        self._expect(bool(planned), "the agent has no schedule")
        if not planned:
            _say("The model planned none this time.")
            return
        schedule = planned[-1]
        due = "now" if schedule["next_fire_at"] is None else f"at {_clock_time(schedule['next_fire_at'])}"
        _say(f"{schedule['schedule_id']}, due {due} · focus: {plain(schedule['focus'])}\n")
        run_id = await self._fired(schedule["schedule_id"])
        self._expect(bool(run_id), f"it did not fire within {LONGEST_WAIT:.0f} s")
        if run_id:
            await self._follow(run_id)
        else:
            _say("That is too far away for this demo to wait for.")

    async def _fired(self, schedule_id: str) -> str:
        """Return the run that the schedule started, empty if it started none in time."""
        deadline = time.monotonic() + LONGEST_WAIT
        while time.monotonic() < deadline:
            self._runtime.check()
            for run in (await self._client.runs(AGENT))["runs"]:
                if run["trigger"]["source"] == schedule_id:
                    return run["run_id"]
            await asyncio.sleep(0.2)
        return ""

    def _expect(self, holds: Any, otherwise: str) -> None:
        """Raise DemoError if what the script always does did not happen; a real model may do as it likes."""
        if self._scripted and not holds:
            raise DemoError(otherwise)


def main() -> int:
    """Run the demo; 0 only if everything completed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        report = _demonstrate()
    except KeyboardInterrupt:
        complain("\nThe demo was interrupted; the runtime is stopped.")
        return INTERRUPTED
    except (DemoError, OwlClawError, OSError) as error:
        complain(f"\nThe demo failed: {error}")
        if KEPT_LOGS.exists():
            complain(f"Logs: {_shown(KEPT_LOGS)}, and {_shown(DATA / 'ray.log')} for what Ray said.")
        return 1
    _say_where_to_look(report)
    return 0


def _demonstrate() -> str:
    earlier = pid_file.read(DATA)
    if earlier is not None and earlier.process() is not None:
        raise DemoError(f"an earlier demo still runs as process {earlier.pid}; stop it with: kill {earlier.pid}")
    shutil.rmtree(DATA, ignore_errors=True)
    (port,) = [PORT] if _is_free(PORT) else free_ports(1)
    _title("1  Starting the runtime: owlclaw up --folder examples/host_watch")
    with RuntimeProcess(port) as runtime:
        try:
            return asyncio.run(asyncio.wait_for(_tell(runtime), LIMIT_SECONDS))
        except TimeoutError:
            raise DemoError(f"it did not complete within {LIMIT_SECONDS:.0f} s") from None


async def _tell(runtime: RuntimeProcess) -> str:
    await runtime.wait_until_ready()
    async with Client(runtime.url) as client:
        return await Story(client, runtime).tell()


def _say_where_to_look(report: str) -> None:
    memory = DATA / "agents" / "default" / AGENT / "MEMORY.md"
    command = f"OWLCLAW_DATA_DIR=$PWD/{_shown(DATA)} .venv/bin/owlclaw"
    _title("Where to look next")
    for what, where in (
        ("report", _shown(Path(report)) if report else "none was written"),
        ("memory", _shown(memory) if memory.exists() else "nothing was remembered"),
        ("agent", f"{_shown(FOLDER)}: app.py, agents/{AGENT}/*.md, agents/{AGENT}/agent.yaml"),
        ("ledger", f"{command} ledger query -C {_shown(FOLDER)}    (in another terminal)"),
        ("your own", ".venv/bin/owlclaw init my_app"),
        ("real model", "write `model: openai/gpt-4o-mini` into the agent's agent.yaml, set OPENAI_API_KEY, make demo"),
        ("more", "README.md, docs/"),
        ("run it on", f"{command} up -C {_shown(FOLDER)}"),
        ("console", "http://127.0.0.1:8700/console    (runs, agents and approvals, while it runs on)"),
    ):
        console().print(f"   {what:<12}{where}", soft_wrap=True)


def _environment() -> dict[str, str]:
    """Return this process's environment without settings of OwlClaw: the demo brings its own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OWLCLAW_")}  # noqa: TID251 - a main program


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _clock_time(moment: str) -> str:
    return f"{datetime.fromisoformat(moment).astimezone():%H:%M:%S}"


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _title(text: str) -> None:
    console().print(Text(f"\n{text}", style="bold"), soft_wrap=True)


def _say(text: str) -> None:
    console().print(f"   {text}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
