"""The processes of one runtime: the descendants of the one that started it, also those whose own parents have died."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time

import psutil

_END_SECONDS = 10.0
_POLL_SECONDS = 0.02
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Have this process become the parent of every descendant whose own parent dies; elsewhere than on Linux they are lost sight of."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int | None = None) -> list[psutil.Process]:
    """Return the living processes that a process (this one, unless named) started, directly or not."""
    return [each for each in psutil.Process(pid).children(recursive=True) if lives(each)]


def lives(process: psutil.Process) -> bool:
    """Return whether it can still do something; who is dead but not yet waited for by its parent cannot."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def command_line(process: psutil.Process) -> list[str]:
    """Return the words of its command line; none once it has ended, also while this looks."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def title_of(process: psutil.Process) -> str:
    """Return what the process calls itself, or the name of its program; empty once it has ended."""
    return next(iter(command_line(process)), "").rpartition("/")[2]


def child_ended(pid: int) -> bool:
    """Return whether a child of this process has ended, waited for or not. It is one system call, and leaves the child to its waiter."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def end_descendants(pid: int | None = None) -> int:
    """Kill -9 what `descendants` returns, and what they start meanwhile; return how many there were when none is left."""
    killed: set[int] = set()
    end = time.monotonic() + _END_SECONDS
    while (left := descendants(pid)) and time.monotonic() < end:
        for each in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
                killed.add(each.pid)
        time.sleep(_POLL_SECONDS)
    return len(killed)


class OrphanReaper:
    """Waits for adopted orphans that have died, which would stay in the process table otherwise."""

    def __init__(self) -> None:
        self._dead: set[int] = set()

    def look(self) -> None:
        """Take note of children that are dead, and wait for those that were at the last look, which nobody else has done."""
        dead = {each.pid for each in psutil.Process().children() if not lives(each)}
        for pid in dead & self._dead:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._dead = dead
