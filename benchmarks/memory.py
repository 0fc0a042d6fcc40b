"""Memory of a tree of processes, as proportional set size: a page that n processes share counts as 1/n in each."""

from __future__ import annotations

import re
import threading
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)


def pss_of(rollup: bytes) -> int:
    """Return the bytes that the text of a `smaps_rollup` file names; 0 for a process without memory."""
    found = _PSS.search(rollup)
    return int(found.group(1)) * 1_024 if found else 0


def kind_of(command: list[str]) -> str:
    """Return what a process is, from its command line: an actor's class, or the program's name."""
    if not command or not command[0]:
        return "unknown"
    if command[0].startswith("ray::"):
        return command[0].removeprefix("ray::").partition(".")[0].partition("(")[0].split()[0]
    return Path(command[0].split()[0]).name


def memory_by_kind(root: psutil.Process) -> Counter[str]:
    """Return the bytes (PSS) of this process and everything below it, added up by kind of process."""
    total: Counter[str] = Counter()
    for each in (root, *root.children(recursive=True)):
        try:
            rollup = Path(f"/proc/{each.pid}/smaps_rollup").read_bytes()
            total[kind_of(each.cmdline())] += pss_of(rollup)
        except (psutil.Error, OSError):
            continue
    return total


class PeakMemory:
    """Looks at a tree of processes every `interval` seconds inside a `with` block, and keeps the largest sum."""

    def __init__(self, root: psutil.Process, interval: float = 1.0) -> None:
        self.peak = 0
        self.by_kind: Counter[str] = Counter()
        """Of the moment of the peak."""
        self._root, self._interval = root, interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_again_and_again, daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _look_again_and_again(self) -> None:
        while not self._over.wait(self._interval):
            self._look()

    def _look(self) -> None:
        by_kind = memory_by_kind(self._root)
        if by_kind.total() > self.peak:
            self.peak, self.by_kind = by_kind.total(), by_kind
