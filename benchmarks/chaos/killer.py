"""Carries a schedule of strikes out, and writes down what it hit."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import psutil

from benchmarks.chaos.client import Client
from benchmarks.chaos.clusters import Clusters
from benchmarks.chaos.installation import Installation
from benchmarks.chaos.machines import Machine, Machines
from benchmarks.chaos.streams import follow_all
from benchmarks.chaos.strikes import HUNG, LEASE, MACHINES, NODE, Role, Strike
from benchmarks.question import Say
from serve.launch import LOST_RAY
from serve.processes import lives, title_of

_FIND_SECONDS = 40.0
_RECOVER_SECONDS = 90.0
_POLL_SECONDS = 0.05
_END_SECONDS = 60.0
"""So long `owlclaw up` may take to end when Ray's node cannot go on."""
_ORPHAN_SECONDS = 5.0
_BEHIND_REQUESTS = frozenset({Role.KEEPER, Role.ROOT, Role.REPLICA, Role.PROXY, *NODE})
"""Hit while a request is on its way, so that its answer may be lost."""
_WHOLE = frozenset({Role.TREE, Role.RESTART}) | LEASE
_NETWORKS: Mapping[Role, Sequence[str]] = {
    Role.MACHINE: ("cluster", "database"),
    Role.FROM_DATABASE: ("database",),
    Role.FROM_CLUSTER: ("cluster",),
    Role.FROM_HEAD: ("head",),
    Role.CUT_OFF: ("cluster", "database"),
    Role.DIRECTORY_FROM_DATABASE: ("database",),
    Role.DIRECTORY_FROM_CLUSTER: ("cluster",),
    Role.HEAD: ("cluster", "database"),
}
_POWERLESS = frozenset({Role.MACHINE, Role.HEAD})
_REQUEST_SECONDS = 3.0
_REQUEST_TAKES = 0.02


class Killer:
    """Strikes when the client has had enough triggers accepted. Lines of `blows` are what it did."""

    def __init__(self, installation: Installation | Clusters, client: Client, *, blows: Path, say: Say) -> None:
        self._installation, self._client, self._blows, self._say = installation, client, blows, say
        self._stopped: dict[int, asyncio.Task[None]] = {}
        self._lost: dict[int, asyncio.Task[None]] = {}
        """What brings lost machines back, by their number."""
        self.problems: list[str] = []
        """What was wrong with the runtime's own ends, and with what open streams were answered."""

    async def run(self, strikes: tuple[Strike, ...], runs: int) -> None:
        """Carry all strikes out; the client may submit up to the place of the next one but one."""
        gates = [*(strike.after_runs for strike in strikes[1:]), runs, runs]
        for strike, gate in zip(strikes, gates, strict=False):
            self._client.open_until(max(gate, strike.after_runs + 1))
            await self._client.has_accepted(strike.after_runs)
            await asyncio.sleep(strike.delay)
            await self._strike(strike)
            if not strike.overlaps and not await self._installation.ready(_RECOVER_SECONDS):
                self._say(
                    f"after strike {strike.number} ({strike.role.value}) it did not answer for {_RECOVER_SECONDS:g} s"
                )
        self._client.open_until(runs)
        await asyncio.gather(*self._stopped.values(), *self._lost.values())

    async def _strike(self, strike: Strike) -> None:
        if strike.role in _WHOLE:
            await self._end_and_start(strike)
            return
        if strike.role in MACHINES and isinstance(self._installation, Machines):
            self._lose(strike, self._installation)
            return
        if strike.role is Role.STREAMS:
            self._note(strike, "followed", None)
            self.problems += await follow_all(
                self._installation.urls[0], self._client, strike.number, strike.hold, self._say
            )
            return
        victim = await self._find(strike)
        if strike.role in _BEHIND_REQUESTS:
            await self._client.next_request(_REQUEST_SECONDS)
            await asyncio.sleep(strike.choice * _REQUEST_TAKES)
        if victim is None:
            self._note(strike, "missed", None)
        elif strike.role in HUNG:
            self._hang(strike, victim)
        elif strike.role in NODE:
            await self._end_node(strike, victim)
        else:
            self._hit(strike, victim, signal.SIGKILL, "killed")

    def _lose(self, strike: Strike, machines: Machines) -> None:
        """Have a machine lost for a while; one that is lost already is a miss."""
        machine = machines.victim(strike.role, strike.choice)
        if machine is None or machine.number in self._lost or not machine.processes():
            self._note(strike, "missed", None)
            return
        networks = _NETWORKS[strike.role]
        for network in networks:
            machine.unplug(network)
        if strike.role in _POWERLESS:
            machines.send(machine, signal.SIGSTOP)
        self._note(strike, "stopped", None, title=f"machine {machine.number}")
        self._lost[machine.number] = asyncio.create_task(self._bring_back(strike, machines, machine))

    async def _bring_back(self, strike: Strike, machines: Machines, machine: Machine) -> None:
        await asyncio.sleep(strike.hold)
        if strike.role in _POWERLESS:
            machines.send(machine, signal.SIGKILL)
        for network in _NETWORKS[strike.role]:
            machine.plug_in(network)
        self._note(strike, "continued", None, title=f"machine {machine.number}")
        del self._lost[machine.number]

    async def _end_and_start(self, strike: Strike) -> None:
        hit = self._installation.holder
        if strike.role in {Role.TREE, Role.CLUSTER}:
            self._note(strike, "killed", None)
            await hit.kill()
        else:
            self._note(strike, "ending", None)
            self.problems += filter(None, [await hit.stop()])
            self._note(strike, "ended", None)
        self._installation.hand_on()
        hit.start()
        await hit.ready()
        self._note(strike, "ready", None)

    async def _end_node(self, strike: Strike, victim: psutil.Process) -> None:
        """Kill what Ray's node cannot go on without; do then what a supervisor of `owlclaw up` does."""
        family = self._installation.family()
        if not self._hit(strike, victim, signal.SIGKILL, "killed"):
            return
        code = await self._installation.ended(_END_SECONDS)
        if code is None:
            self.problems.append(
                f"owlclaw up was still there {_END_SECONDS:g} s after the death of {strike.role.value}"
            )
        elif code != LOST_RAY:
            self.problems.append(f"owlclaw up ended with code {code} after the death of {strike.role.value}")
        else:
            self.problems += await _orphans(family)
        await self._installation.kill()
        self._note(strike, "ended", None)
        self._installation.start()
        await self._installation.ready()
        self._note(strike, "ready", None)

    async def _find(self, strike: Strike) -> psutil.Process | None:
        """Return the victim as soon as there is one that is not stopped already."""
        end = time.monotonic() + _FIND_SECONDS
        while time.monotonic() < end:
            found = [each for each in self._installation.processes(strike.role) if each.pid not in self._stopped]
            if found:
                return found[int(strike.choice * len(found))]
            await asyncio.sleep(_POLL_SECONDS)
        return None

    def _hang(self, strike: Strike, victim: psutil.Process) -> None:
        if not self._hit(strike, victim, signal.SIGSTOP, "stopped"):
            return
        self._stopped[victim.pid] = asyncio.create_task(self._let_go(strike, victim))

    def _hit(self, strike: Strike, victim: psutil.Process, number: signal.Signals, what: str) -> bool:
        """Send the signal; return whether the victim was still there. A strike at a process that is gone is a miss."""
        title, at = title_of(victim), time.time_ns()
        sent = bool(title) and _send(victim, number)
        self._note(strike, what if sent else "missed", victim, title=title, at=at)
        return sent

    async def _let_go(self, strike: Strike, victim: psutil.Process) -> None:
        await asyncio.sleep(strike.hold)
        self._note(strike, "continued" if _send(victim, signal.SIGCONT) else "was_killed", victim)
        del self._stopped[victim.pid]

    def _note(
        self, strike: Strike, what: str, victim: psutil.Process | None, *, title: str = "", at: int | None = None
    ) -> None:
        line: dict[str, Any] = {"number": strike.number, "role": strike.role.value, "what": what}
        line |= {
            "load": round(os.getloadavg()[0], 1),
            "pid": victim.pid if victim else None,
            "title": title or (title_of(victim) if victim else ""),
            "wall_ns": time.time_ns() if at is None else at,
        }
        with self._blows.open("ab") as log:
            log.write(orjson.dumps(line) + b"\n")
        self._say(f"strike {strike.number}: {strike.role.value} {what} at {self._client.accepted} runs")


async def _orphans(family: list[psutil.Process]) -> list[str]:
    """Return what is wrong if one of these still lives when `owlclaw up` has ended; a moment to die is theirs."""
    _, left = await asyncio.to_thread(psutil.wait_procs, family, _ORPHAN_SECONDS)
    return [f"owlclaw up ended and left {title_of(each)} ({each.pid}) behind" for each in left if lives(each)]


def _send(process: psutil.Process, number: signal.Signals) -> bool:
    """Return whether the process was there to get the signal."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True
