"""Machines on this one: network namespaces of their own folders, on two networks, one for the cluster and one for the database.

What cuts a machine off takes the plug of its cable out: packets vanish, no connection is closed. The process that makes machines is
the hub of both networks, in a network namespace of its own (`enter_hub`); the database listens there.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.chaos.installation import Installation
from benchmarks.chaos.strikes import Role
from benchmarks.processes import ProcessTree, clean_environment
from serve.processes import title_of

_CLUSTER, _DATABASE = "10.98.0", "10.98.1"
HUB = f"{_DATABASE}.254"
"""Where the database listens."""
_HEAD_PORT = 6379
_PROGRAMS = ("ip", "unshare", "nsenter", "mount")
_START_AGAIN_SECONDS = 1.0
_STOP_SECONDS = 90.0
_POLL_SECONDS = 0.2
_OWN_FOLDER = ".owlclaw"
_DIRECTORY = "ray::DirectoryActor"
FORWARD = """
import asyncio, sys

async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()

async def main(listened, to):
    async def connected(reader, writer):
        try:
            there, back = await (asyncio.open_unix_connection(to) if "/" in to else asyncio.open_connection("127.0.0.1", to))
        except OSError:
            return writer.close()
        await asyncio.gather(pump(reader, back), pump(there, writer), return_exceptions=True)

    if "/" in listened:
        server = await asyncio.start_unix_server(connected, listened)
    else:
        server = await asyncio.start_server(connected, "127.0.0.1", listened)
    print("listening", flush=True)
    await server.serve_forever()

asyncio.run(main(*sys.argv[1:]))
"""
"""A program that passes connections on, from a port or a socket that is a file to another: files are seen from every network namespace.

It prints `listening` when it does.
"""


def why_not() -> str:
    """Return why this system cannot make machines; empty if it can."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid() or sys.platform != "linux":
        return f"needs Linux, root, and the programs {', '.join(_PROGRAMS)}"
    made = subprocess.run(["unshare", "--net", "--mount", "true"], check=False, capture_output=True, text=True)
    return f"this system makes no namespaces: {made.stderr.strip()}" if made.returncode else ""


def enter_hub(module: str, arguments: Sequence[str]) -> None:
    """Go on as that module, with these arguments, in a network namespace of its own."""
    own = ["unshare", "--net", "--", sys.executable, "-P", "-m", module, *arguments]
    os.execvp(own[0], own)  # noqa: S606 - there is no shell that could be needed


class Machine:
    """A namespace with a folder; it has the application's folder in common with the others, but not the data folder below it."""

    def __init__(self, folder: Path, shared: Path, number: int) -> None:
        self.folder, self.number, self._shared = folder, number, shared
        self.address = f"{_CLUSTER}.{number}"
        self._plugs = {"cluster": f"c{number}", "database": f"d{number}"}
        folder.mkdir()
        own = shared / _OWN_FOLDER
        own.mkdir(exist_ok=True)
        begin = f"mount -t tmpfs tmpfs {own} && echo there && exec sleep infinity"
        self._holder = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-c", begin], stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"there\n":
            raise RuntimeError(f"machine {number} was not made")
        for device, (network, plug) in zip(("eth0", "eth1"), self._plugs.items(), strict=True):
            prefix = _CLUSTER if network == "cluster" else _DATABASE
            _ip(f"link add {plug} type veth peer name {device} netns {self._holder.pid}")
            _ip(f"link set {plug} master {network} up")
            self._stand_apart(network)
            self._inside_ip(f"addr add {prefix}.{number}/24 dev {device}")
            self._inside_ip(f"link set {device} up")
        self._inside_ip("link set lo up")
        self._inside_ip("route add default dev eth0")
        self.process: subprocess.Popen[bytes] | None = None
        """What runs Ray."""

    def inside(self, *command: str) -> list[str]:
        """Return the command as one that runs on this machine."""
        return ["nsenter", f"--target={self._holder.pid}", "--net", "--mount", f"--wd={self._shared}", *command]

    def unplug(self, network: str) -> None:
        """Have packets of that network, `cluster` or `database`, vanish; with `head` those to and from the first machine."""
        if network == "head":
            _isolate(self._plugs["cluster"], on=True)
        else:
            _ip(f"link set {self._plugs[network]} nomaster")

    def plug_in(self, network: str) -> None:
        """Undo `unplug`."""
        if network == "head":
            _isolate(self._plugs["cluster"], on=False)
        else:
            _ip(f"link set {self._plugs[network]} master {network}")
            self._stand_apart(network)

    def _stand_apart(self, network: str) -> None:
        """Of two isolated plugs none reaches the other: that of the head always is one, and a machine that is cut from it becomes one."""
        if network == "cluster" and self.number == 1:
            _isolate(self._plugs["cluster"], on=True)

    def processes(self) -> list[psutil.Process]:
        """Return what Ray is here, and all that it started."""
        if self.process is None or self.process.poll() is not None:
            return []
        return ProcessTree(psutil.Process(self.process.pid)).processes()

    def runs(self, title: str) -> bool:
        """Return whether a process of that title is here."""
        return any(title_of(each).startswith(title) for each in self.processes())

    def send(self, number: signal.Signals) -> None:
        """Send all processes a signal."""
        for each in self.processes():
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    def remove(self) -> None:
        """End everything that was started here."""
        self.send(signal.SIGKILL)
        self._holder.kill()
        self._holder.communicate()

    def _inside_ip(self, arguments: str) -> None:
        subprocess.run(self.inside("ip", *arguments.split()), check=True)


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


def _isolate(plug: str, *, on: bool) -> None:
    _ip(f"link set {plug} type bridge_slave isolated {'on' if on else 'off'}")


def lay_networks() -> None:
    """Make both networks, in the namespace of this process."""
    _ip("link set lo up")
    for name in ("cluster", "database"):
        _ip(f"link add name {name} type bridge")
        _ip(f"link set {name} up")
    _ip(f"addr add {HUB}/24 dev database")


class Machines(Installation):
    """As one Installation, whose processes are on several machines: `owlclaw node` on each, `owlclaw up` on the first.

    All of them are started again when they end, as a service manager does.
    """

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(folder)
        self._number = number
        self.machines: list[Machine] = []
        self._up: subprocess.Popen[bytes] | None = None
        self._kept: set[asyncio.Task[None]] = set()
        self._forwarders: list[subprocess.Popen[bytes]] = []

    def write(self, **settings: Any) -> None:
        """Write the application, and make the machines."""
        ray = {"address": f"{_CLUSTER}.1:{_HEAD_PORT}"}
        super().write(**{"actors": {}, **settings, "ray": ray})
        self.machines = [
            Machine(self.folder / f"m{number}", self.folder, number) for number in range(1, self._number + 1)
        ]

    @property
    def started(self) -> bool:
        """See Installation.started."""
        return bool(self._kept)

    def start(self) -> None:
        """Start everything on all machines; it is not ready yet."""
        port, passage = self.url.rpartition(":")[2], str(self.folder / "api")
        head = self.machines[0]
        for command in ([port, passage], head.inside(passage, port)):
            program = [sys.executable, "-c", FORWARD]
            outside = command == [port, passage]
            line = [*program, *command] if outside else [*command[:-2], *program, *command[-2:]]
            self._forwarders.append(subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for machine in self.machines:
            self._keep(partial(self._run_node, machine))
        self._keep(self._run_runtime)

    async def stop(self) -> str:
        """Stop the runtime as `owlclaw down` does, then the machines. Return what was wrong with its end."""
        await self._keep_no_more()
        up = self._up
        if up is None or up.poll() is not None:
            return "owlclaw up had ended by itself"
        tree = ProcessTree(psutil.Process(up.pid)).processes()
        tree[-1].send_signal(signal.SIGTERM)
        try:
            code = await asyncio.to_thread(up.wait, _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return f"owlclaw up did not end within {_STOP_SECONDS:g} s of SIGTERM"
        return f"owlclaw up ended with code {code}" if code else ""

    def family(self) -> list[psutil.Process]:
        """Return every process of all machines."""
        return [each for machine in self.machines for each in machine.processes()]

    async def kill(self) -> None:
        """End everything, the machines included."""
        await self._keep_no_more()
        if self._up is not None and self._up.poll() is None:
            await asyncio.to_thread(ProcessTree(psutil.Process(self._up.pid)).kill)
            await asyncio.to_thread(self._up.wait)
        for machine in self.machines:
            await asyncio.to_thread(machine.remove)
        for each in self._forwarders:
            each.kill()
            each.wait()
        self.machines, self._forwarders = [], []

    def victim(self, role: Role, choice: float) -> Machine | None:
        """Return the machine that a strike of that role hits: one that is not the head, as a rule; None if there is none now."""
        head, *workers = self.machines
        if role is Role.HEAD:
            return head
        if role in {Role.DIRECTORY_FROM_DATABASE, Role.DIRECTORY_FROM_CLUSTER}:
            found = next((each for each in self.machines if each.runs(_DIRECTORY)), None)
            return None if found is head and role is Role.DIRECTORY_FROM_CLUSTER else found
        return workers[int(choice * len(workers))]

    def send(self, machine: Machine, number: signal.Signals) -> None:
        """Send all processes of a machine a signal, on the head also those of `owlclaw up`."""
        machine.send(number)
        if machine is self.machines[0] and self._up is not None and self._up.poll() is None:
            for each in ProcessTree(psutil.Process(self._up.pid)).processes():
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(number)

    def _check_life(self) -> None:
        """What ends is started again."""

    def _keep(self, run: Callable[[], Any]) -> None:
        task = asyncio.create_task(_again_and_again(run))
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

    async def _keep_no_more(self) -> None:
        for task in tuple(self._kept):
            task.cancel()
        await asyncio.gather(*self._kept, return_exceptions=True)

    async def _run_node(self, machine: Machine) -> None:
        head = machine.number == 1
        where = ["--head"] if head else ["--address", f"{_CLUSTER}.1:{_HEAD_PORT}"]
        command = ["node", *where, "--node-ip", machine.address, "--folder", str(self.folder)]
        machine.process = self._popen(machine, command, {"OWLCLAW_RAY__TEMP_DIR": str(machine.folder / "ray")})
        await _ended(machine.process)

    async def _run_runtime(self) -> None:
        self._up = self._popen(self.machines[0], ["up"], {})
        await _ended(self._up)

    def _popen(self, machine: Machine, command: Sequence[str], more: Mapping[str, str]) -> subprocess.Popen[bytes]:
        environment = {
            **clean_environment(),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": "t" * 40,
            "OWLCLAW_RAY__NUM_CPUS": "1",
            **more,
        }
        with (machine.folder / f"{command[0]}.log").open("ab") as log:
            return subprocess.Popen(
                machine.inside(sys.executable, "-P", "-m", "serve.cli", *command),
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


async def _again_and_again(run: Callable[[], Any]) -> None:
    while True:
        await run()
        await asyncio.sleep(_START_AGAIN_SECONDS)


async def _ended(process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:  # noqa: ASYNC110 - Popen has no event for it
        await asyncio.sleep(_POLL_SECONDS)
