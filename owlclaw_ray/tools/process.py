"""Programs that tools start: bounded in time and memory, and gone when the call is over, whatever ends it.

A program leads a session of its own, and its whole process group is killed at the end: at its deadline, when the call is
cancelled, and also after it ended by itself, for what it left running. A worker that is itself killed cannot do that. So a
guard, a shell that waits for the end of a pipe from the worker, stands ready before each program is started, is given its
group at once, and kills the group when the worker is gone. (A parent-death signal was rejected: it reaches the program only,
not its children.) A process that makes a session of its own escapes; keeping it would take a container.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from msgspec import Struct

from owlclaw_ray.tools.bounded_text import BoundedText

_CHUNK = 64 * 1024
_LOOK_SECONDS = 0.05
"""How often a program that has closed its output, or shares it with others, is looked at."""
_DRAIN_SECONDS = 0.5
"""How long the output of a killed group is waited for."""
_GUARD = """
exec 3<&0
(
  read -r output <&3
  if read -r group <&3; then
    read -r _ <&3 || kill -s KILL -- "-$group"
    exit
  fi
  for file in /proc/[0-9]*/fd/1; do
    [ "$(readlink "$file")" = "$output" ] || continue
    pid=${file#/proc/}; pid=${pid%%/*}
    read -r facts <"/proc/$pid/stat" || continue
    set -- ${facts##*) }
    [ "$3" = "$0" ] && kill -s KILL "$pid" || kill -s KILL -- "-$3"
  done
) &
"""
"""It reads what the program's output is, then its group, then waits. If the worker ends between the two, the program may have been
started: it is looked for by its output. `$0` is the worker's own group, in which a child is for a moment after its fork. The shell
is no child of the worker: Ray kills a worker's children before the worker, and would leave theirs."""


class ProgramLimits(Struct, frozen=True):
    """What a program may take."""

    seconds: float
    stdout_bytes: int
    stderr_bytes: int


class Program(Struct, frozen=True):
    """What is started."""

    argv: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    stdin: bytes = b""


class ProgramEnd(Struct, frozen=True):
    """What became of a program."""

    exit_code: int | None
    """Negative: the signal that ended it. None: it was killed at its deadline."""
    stdout: BoundedText
    stderr: BoundedText


def run_program(program: Program, limits: ProgramLimits) -> ProgramEnd:
    """Run it to its end or its deadline. Raises OSError or ValueError if it cannot be started."""
    output_end, output_start = os.pipe()
    with os.fdopen(output_start, "wb") as start, Guard(output_start) as guard:
        try:
            process = subprocess.Popen(  # noqa: S603 (an argument list, never a shell's text)
                list(program.argv),
                cwd=program.folder,
                env=dict(program.environment),
                stdin=subprocess.PIPE if program.stdin else subprocess.DEVNULL,
                stdout=start,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except BaseException:
            os.close(output_end)
            raise
        process.stdout = os.fdopen(output_end, "rb", buffering=0)
        guard.watch(process.pid)
        start.close()
        try:
            output = {
                process.stdout: BoundedText(limits.stdout_bytes),
                process.stderr: BoundedText(limits.stderr_bytes),
            }
            ended = _talk(process, program.stdin, output, limits.seconds)
            kill_group(process.pid)
            _drain(output)
        finally:
            kill_group(process.pid)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            process.wait()
    exit_code = process.returncode if ended else None
    return ProgramEnd(exit_code, output[process.stdout], output[process.stderr])


class Guard:
    """Kills a process group when this process ends inside the block, however that comes.

    `output` is the descriptor of the pipe to which the program will write: until `watch` says which group it is, that tells it.
    """

    def __init__(self, output: int) -> None:
        self._shell = subprocess.Popen(  # noqa: S603 (a fixed text and a number)
            ["/bin/sh", "-c", _GUARD, str(os.getpgrp())],
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        self._shell.wait()
        self._write(f"pipe:[{os.fstat(output).st_ino}]")

    def watch(self, group: int) -> None:
        """Say which group it is."""
        self._write(str(group))

    def _write(self, line: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{line}\n".encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.communicate(b"done\n")


def _talk(
    process: subprocess.Popen[bytes], stdin: bytes, output: Mapping[IO[bytes] | None, BoundedText], seconds: float
) -> bool:
    """Pass input and output until the process ends; return whether it did so within that many seconds."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for pipe in output:
            _register(selector, pipe, selectors.EVENT_READ)
        _register(selector, process.stdin, selectors.EVENT_WRITE)
        rest = memoryview(stdin)
        while not has_ended(process.pid):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            for key, _ in selector.select(min(remaining, _LOOK_SECONDS)):
                if key.fileobj is process.stdin:
                    rest = _write(selector, process.stdin, rest)
                elif not _read(key.fd, output[key.fileobj]):  # type: ignore[index]
                    selector.unregister(key.fileobj)
            if len(selector.get_map()) == 0:
                time.sleep(min(_LOOK_SECONDS / 10, remaining))
        return True


def _register(selector: selectors.BaseSelector, pipe: IO[bytes] | None, event: int) -> None:
    if pipe is not None:
        os.set_blocking(pipe.fileno(), False)
        selector.register(pipe, event)


def _write(selector: selectors.BaseSelector, pipe: IO[bytes], rest: memoryview) -> memoryview:
    """Write what the pipe takes and return what is left; close it after the last, or when nobody reads."""
    try:
        rest = rest[os.write(pipe.fileno(), rest[:_CHUNK]) :]
    except BlockingIOError:
        return rest
    except BrokenPipeError:
        rest = rest[:0]
    if not rest:
        selector.unregister(pipe)
        pipe.close()
    return rest


def _read(descriptor: int, text: BoundedText) -> bool:
    """Read what there is; return whether there may be more."""
    try:
        data = os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return True
    text.add(data)
    return bool(data)


def _drain(output: Mapping[IO[bytes] | None, BoundedText]) -> None:
    """Read what a group that was killed has left in its pipes."""
    deadline = time.monotonic() + _DRAIN_SECONDS
    with selectors.DefaultSelector() as selector:
        for pipe in output:
            _register(selector, pipe, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(_LOOK_SECONDS):
                if not _read(key.fd, output[key.fileobj]):  # type: ignore[index]
                    selector.unregister(key.fileobj)


def has_ended(pid: int) -> bool:
    """Return whether the process has ended, without giving its id away: until it is reaped its group can be killed safely."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill_group(pid: int) -> None:
    """Kill every process of the group; harmless if there is none."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
