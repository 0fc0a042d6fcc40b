"""`owlclaw up --reload`: the runtime in a process of its own, which is started again when the application's code or settings change."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from typing_extensions import override
from watchfiles import Change, DefaultFilter, watch

from serve.shutdown import SignalEvent

_CHECK_INTERVAL_MS = 500
"""How often it is seen that the runtime has ended by itself."""
_READ_AGAIN = ("agents", ".owlclaw")
"""Folders of which nothing needs a start: definitions are read again while the runtime runs, data are its own."""

Announce = Callable[[str], None]


class Reloader:
    """Runs a command until a signal ends both. A second signal is passed on, too, and ends the command at once."""

    def __init__(self, command: Sequence[str], folder: Path, announce: Announce) -> None:
        self._command, self._folder, self._announce = tuple(command), folder.resolve(), announce
        self._stopping = SignalEvent()
        self._process: subprocess.Popen[bytes] | None = None
        self._passed_on = False
        """Whether this process was sent a signal."""

    def run(self) -> int:
        """Return the command's exit code, once it ended with 0 or a signal ended it. After a failure it waits for a change."""
        handlers = {each: signal.signal(each, self._pass_on) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            return self._run_again()
        finally:
            for each, handler in handlers.items():
                signal.signal(each, handler)

    def _run_again(self) -> int:
        process, failed = self._start(), False
        for changes in watch(
            self._folder,
            watch_filter=_Sources(self._folder),
            stop_event=self._stopping,
            rust_timeout=_CHECK_INTERVAL_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        ):
            if self._stopping.is_set():
                break
            if changes:
                names = sorted({os.path.relpath(path, self._folder) for _, path in changes})
                self._announce(f"{', '.join(names)} changed: restarting …")
                process.terminate()
                process.wait()
                process, failed = self._start(), False
            elif not failed and (code := process.poll()) is not None:
                if code == 0:
                    return 0
                failed = True
                self._announce(f"exited with code {code}; it is restarted when a file in {self._folder} changes")
        return process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the command in a session of its own, so that Ctrl-C comes to it once: from here.

        A signal that comes before there is a process to pass it on to is passed on as soon as there is one.
        """
        self._process, self._passed_on = None, False
        process = self._process = subprocess.Popen(self._command, start_new_session=True)  # noqa: S603 - our own command line
        if self._stopping.is_set() and not self._passed_on:
            process.terminate()
        return process

    def _pass_on(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping.set()
        if self._process is not None:
            self._passed_on = True
            self._process.terminate()


class _Sources(DefaultFilter):
    """Python files, and the settings."""

    def __init__(self, folder: Path) -> None:
        super().__init__(ignore_paths=[folder / name for name in _READ_AGAIN])

    @override
    def __call__(self, change: Change, path: str) -> bool:
        return path.endswith((".py", "owlclaw.yaml")) and super().__call__(change, path)
