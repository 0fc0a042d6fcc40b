"""What a system costs, over all of its processes, and ending them all."""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from serve.cli.connection import environment
from serve.front import CONFIGURATION
from serve.processes import lives

_CHANGES_WHAT_IS_MEASURED = ("RAY_", "OWLCLAW_", "RESTATE_", "DBOS_", "LANGSMITH_", "LANGCHAIN_")
_KILL_SECONDS = 10.0
_LOOK_SECONDS = 0.01
_SETTLE_SECONDS = 30.0
_QUIET_SECONDS = 2
_IDLE_CORES = 0.33
"""Ray and Serve use about half of that when nothing happens."""


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what would change the system to measure."""
    return {key: value for key, value in environment().items() if not key.startswith(_CHANGES_WHAT_IS_MEASURED)}


@dataclass(frozen=True, slots=True)
class CpuReading:
    """The CPU seconds of one process so far."""

    name: str
    parent: int
    """Its process number."""
    own: float
    waited_for: float
    """Of its children that ended and that it waited for."""

    @property
    def total(self) -> float:
        """Both together."""
        return self.own + self.waited_for


@dataclass(frozen=True)
class ProcessTree:
    """A process with everything that it started, directly or not."""

    root: psutil.Process

    def processes(self) -> list[psutil.Process]:
        """Return those that live."""
        try:
            return [self.root, *self.root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu_seconds(self) -> float:
        """Return the CPU time of all of them so far, that of processes which ended and were waited for included."""
        return sum(self.cpu_by_name().values())

    def cpu_by_name(self) -> dict[str, float]:
        """Return the same by the process's name, Ray's actors by their class; processes of one name together."""
        total: dict[str, float] = defaultdict(float)
        for each in self.cpu_of_each().values():
            total[each.name] += each.total
        return dict(total)

    def cpu_of_each(self) -> dict[psutil.Process, CpuReading]:
        """Return the same process by process."""
        readings = {}
        for each in self.processes():
            with contextlib.suppress(psutil.Error):
                times = each.cpu_times()
                waited_for = times.children_user + times.children_system
                readings[each] = CpuReading(_name(each), each.ppid(), times.user + times.system, waited_for)
        return readings

    def number_by_name(self) -> dict[str, int]:
        """Return how many there are of each name."""
        total: Counter[str] = Counter()
        for each in self.processes():
            with contextlib.suppress(psutil.Error):
                total[_name(each)] += 1
        return dict(total)

    def pss_bytes(self) -> int:
        """Return the memory of all of them now; what they share counts once."""
        return sum(self.pss_by_name().values())

    def pss_by_name(self) -> dict[str, int]:
        """Return the same by the process's name; processes of one name together."""
        total: Counter[str] = Counter()
        for name, size in self.pss_of_each().values():
            total[name] += size
        return dict(total)

    def pss_of_each(self) -> dict[psutil.Process, tuple[str, int]]:
        """Return the same process by process, each with its name."""
        found = {}
        for each in self.processes():
            with contextlib.suppress(psutil.Error):
                found[each] = _name(each), each.memory_full_info().pss
        return found

    @contextlib.contextmanager
    def peak_memory(self, interval: float = 0.5) -> Iterator[PeakMemory]:
        """Watch the memory of all of them until the block ends."""
        peak, over = PeakMemory(), threading.Event()

        def watch() -> None:
            while not over.wait(interval):
                peak.see(self.pss_bytes())

        peak.see(self.pss_bytes())
        watcher = threading.Thread(target=watch, name="peak-memory", daemon=True)
        watcher.start()
        try:
            yield peak
        finally:
            over.set()
            watcher.join()
            peak.see(self.pss_bytes())

    def settle(self) -> None:
        """Return when they have done what they do after their start, and use less than a third of a core for two seconds.

        After half a minute it returns anyway.
        """
        end, quiet = time.monotonic() + _SETTLE_SECONDS, 0
        used = self.cpu_seconds()
        while quiet < _QUIET_SECONDS and time.monotonic() < end:
            time.sleep(1.0)
            before, used = used, self.cpu_seconds()
            quiet = quiet + 1 if used - before < _IDLE_CORES else 0

    def kill(self) -> None:
        """Kill -9 all of them, and remove the scratch folder that nobody else is left to remove."""
        processes = self.processes()
        _kill(processes, scratch_of(processes))


def stop(process: subprocess.Popen[bytes], grace: float) -> None:
    """Ask the process to end, with SIGTERM; after `grace` seconds kill it. What it left behind is killed too."""
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = ProcessTree(psutil.Process(process.pid)).processes()
    scratch = scratch_of(family)
    try:
        process.terminate()
        process.wait(grace)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
        process.wait()
        _kill(family, scratch)


@dataclass
class PeakMemory:
    """The most memory that was seen."""

    bytes: int = 0

    def see(self, seen: int) -> None:
        """Take a look into account."""
        self.bytes = max(self.bytes, seen)


def cpu_spent(
    before: Mapping[psutil.Process, CpuReading], after: Mapping[psutil.Process, CpuReading]
) -> dict[str, float]:
    """Return the CPU seconds between two readings by the names that processes have in the second, the most first.

    A process that has another name by then counts with what it used meanwhile; one that ended and was waited for does not
    bring what it had used before onto its parent's account.
    """
    spent = {process: reading.total - _total(before.get(process)) for process, reading in after.items()}
    inherited = {each: after[each].waited_for - before[each].waited_for for each in before.keys() & after.keys()}
    by_number = {process.pid: process for process in before}
    for ended in before.keys() - after.keys():
        heir = by_number.get(before[ended].parent)
        while heir is not None and heir not in inherited:
            heir = by_number.get(before[heir].parent)
        if heir is not None:
            earlier = min(before[ended].total, inherited[heir])
            inherited[heir] -= earlier
            spent[heir] -= earlier
    by_name: dict[str, float] = defaultdict(float)
    for process, seconds in spent.items():
        by_name[after[process].name] += seconds
    return difference({}, by_name)


def _total(reading: CpuReading | None) -> float:
    return reading.total if reading is not None else 0.0


def difference(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return what each name gained, the most first; names that gained nothing are left out."""
    gained = {name: round(value - before.get(name, 0.0), 3) for name, value in after.items()}
    return dict(sorted(((name, value) for name, value in gained.items() if value > 0), key=lambda item: -item[1]))


def _kill(processes: list[psutil.Process], scratch: Path | None) -> None:
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    end = time.monotonic() + _KILL_SECONDS
    while any(map(lives, processes)) and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)


def _name(process: psutil.Process) -> str:
    words = process.cmdline()
    title = words[0] if words else process.name()
    if title.startswith("ray::"):
        return re.split(r"[.(:]", title.removeprefix("ray::"))[0].strip()
    if Path(title).name.startswith("python"):
        return _program(words) or process.name()
    return Path(title).name if title.startswith("/") else process.name()


def _program(words: list[str]) -> str:
    """Return what a Python process runs: the module's name, or the script's; empty for neither."""
    for option, word in itertools.pairwise(words):
        if option == "-m":
            return word
        if word.endswith(".py"):
            return Path(word).name
    return ""


def scratch_of(processes: list[psutil.Process]) -> Path | None:
    """Return the folder in which the system keeps its sockets and Ray's session; its HAProxy's configuration is there."""
    for each in processes:
        with contextlib.suppress(psutil.Error, OSError):
            words = each.cmdline()
            if words and words[-1].endswith(f"/{CONFIGURATION}"):
                return Path(words[-1]).parent
    return None
