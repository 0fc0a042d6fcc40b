"""Samples with py-spy what running Python processes execute; they need nothing for it.

A sample counts the thread that holds the interpreter's lock: neither those that wait, which cannot be told from those that
run everywhere, nor what goes on without the lock, such as a commit in SQLite.
"""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.stacks import Stacks, read_stacks

_PER_SECOND = 100
_GRACE_SECONDS = 60.0
_PROJECT = Path(__file__).parent.parent


class RecorderError(Exception):
    """A process could not be sampled; the message says why."""


class Recording:
    """One recorder a process; all of them sample for so many seconds from now on."""

    def __init__(self, processes: Sequence[int], seconds: int, folder: Path) -> None:
        self._folder, self._seconds = folder, seconds
        self._recorders = {pid: self._start(pid) for pid in processes}

    def stacks(self) -> dict[int, Stacks]:
        """Return what each process was doing, as soon as the time is up. Raises RecorderError."""
        return {pid: self._read(pid, recorder) for pid, recorder in self._recorders.items()}

    def stop(self) -> None:
        """End all recorders that still sample."""
        for recorder in self._recorders.values():
            if recorder.poll() is None:
                recorder.kill()
            recorder.communicate()

    def _start(self, pid: int) -> subprocess.Popen[bytes]:
        options = {
            "--pid": pid,
            "--duration": self._seconds,
            "--rate": _PER_SECOND,
            "--format": "raw",
            "--output": self._folder / str(pid),
        }
        words = [str(word) for option in options.items() for word in option]
        return subprocess.Popen(
            [py_spy(), "record", "--gil", "--function", "--full-filenames", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def _read(self, pid: int, recorder: subprocess.Popen[bytes]) -> Stacks:
        try:
            _, errors = recorder.communicate(timeout=self._seconds + _GRACE_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise RecorderError(f"py-spy sampled process {pid} for {self._seconds} s and did not end") from error
        if recorder.returncode:
            lines = errors.decode(errors="replace").strip().splitlines()
            raise RecorderError(
                f"py-spy could not sample process {pid}: {lines[0] if lines else 'it gave no reason'}. Sampling needs the"
                " permission to trace processes: root, or the capability SYS_PTRACE in a container"
            )
        return read_stacks((self._folder / str(pid)).read_text(), str(_PROJECT))


def py_spy() -> str:
    """Return the program. Raises ModuleNotFoundError if it is not installed."""
    distribution("py-spy")
    return str(Path(sysconfig.get_path("scripts"), "py-spy"))


@contextmanager
def recording(processes: Sequence[int], seconds: int) -> Iterator[Recording]:
    """Sample these processes for so many seconds, beside what the block does; its end ends the recorders."""
    with TemporaryDirectory(prefix="owl-bench-") as folder:
        recorded = Recording(processes, seconds, Path(folder))
        try:
            yield recorded
        finally:
            recorded.stop()
