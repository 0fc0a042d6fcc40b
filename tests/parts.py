"""Runs the parts of the suite side by side, and shows what each of them said one after the other.

`python -m tests.parts` runs `PARTS`: each is a pytest of its own with a log of its own. The tests with Ray wait most of the time
and have limits; so the quick ones, which only compute, give way to them. A part that is not over by its limit is ended, and fails.
With `--in-turn`, as CI runs them, they run one after another. The exit status is 0 if that of every part is.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

import psutil

IN_TURN = "--in-turn"
GIVES_WAY = 19
"""Less than what Ray gives its workers, which is 15."""
GRACE = 60.0
NEWS = 30.0
Clock = Callable[[], float]
_PROGRESS = re.compile(r"^(?:\S+\.py )?([.FEsxX]+)(?: +\[ *\d+%\])?$", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """One pytest: its name, its arguments, how much it gives way to others (as `nice`), and the seconds that it may take."""

    name: str
    arguments: tuple[str, ...]
    nice: int = 0
    limit: float = 1_800.0


PARTS = (
    Part("one cluster", ("-m", "one_cluster and not long")),
    Part("runtimes", ("-m", "ray and not one_cluster and not long", "-n", "2", "--dist", "loadfile")),
    Part("browser", ("-m", "browser and not long")),
    Part("quick", ("-m", "not ray and not browser and not long", "-n", "auto", "--dist", "worksteal"), nice=GIVES_WAY),
)


class Running:
    """A part that was started, and what it said."""

    def __init__(self, part: Part, folder: Path, clock: Clock) -> None:
        self.part, self.ended_for = part, ""
        self._log = folder / f"{part.name}.log"
        self._clock, self._until = clock, clock() + part.limit
        command = [sys.executable, "-m", "pytest", *part.arguments]
        with self._log.open("wb") as log:
            self._process = psutil.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_heed_interrupts,
            )
        self._process.nice(part.nice)

    @property
    def process(self) -> psutil.Process:
        return self._process

    @property
    def status(self) -> int | None:
        """The exit status of its pytest; None while it runs."""
        return self._process.poll()

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def news(self) -> str:
        """How many of its tests are over, and how many of them failed."""
        told = "".join(_PROGRESS.findall(self.said))
        failed = told.count("F") + told.count("E")
        return f"{len(told)} done" + (f", {failed} failed" if failed else "")

    @property
    def closing_line(self) -> str:
        """The last line that it said, which is pytest's summary unless it was ended."""
        if self.ended_for:
            return f"ended: {self.ended_for}"
        lines = self.said.splitlines()
        return lines[-1] if lines else "said nothing"

    def end_if_late(self) -> None:
        """End it if it ran for longer than its limit."""
        if self.status is None and self._clock() > self._until:
            self.end(f"not over after {self.part.limit:.0f} s")

    def end(self, why: str) -> None:
        """End it and all that it started: it may clean up for a minute, and is killed then."""
        self.ended_for = why
        family = self._process.children(recursive=True)
        self._process.send_signal(signal.SIGINT)
        psutil.wait_procs([self._process], timeout=GRACE)
        family += self._process.children(recursive=True) if self.status is None else []
        for each in [self._process, *family]:
            with suppress(psutil.NoSuchProcess):  # it has ended by itself
                each.kill()
        psutil.wait_procs([self._process, *family], timeout=GRACE)


def run(parts: Sequence[Part], clock: Clock = time.monotonic) -> int:
    """Run the parts to their ends, and return 0 if all of them did well."""
    with tempfile.TemporaryDirectory(prefix="owlclaw-parts-") as folder:
        running = [Running(part, Path(folder), clock) for part in parts]
        try:
            _follow(running)
        except BaseException:
            for each in running:
                if each.status is None:
                    each.end("interrupted")
            raise
        finally:
            _say("")
            for each in running:
                _say(f"{each.part.name}: {each.closing_line}")
        return int(any(each.status or each.ended_for for each in running))


def run_in_turn(parts: Sequence[Part]) -> int:
    """Run the parts one after another, so that none starves another, and return 0 if all of them did well."""
    statuses = [run([part]) for part in parts]
    return int(any(statuses))


def _follow(running: Sequence[Running]) -> None:
    """Show what each part said once it is over, and how far the others are meanwhile."""
    waiting, told = list(running), time.monotonic()
    while waiting:
        psutil.wait_procs([each.process for each in waiting], timeout=1.0)
        for each in waiting:
            each.end_if_late()
        for each in [each for each in waiting if each.status is not None]:
            _say(f"\n{each.part.name}:\n{each.said}")
            waiting.remove(each)
        if waiting and time.monotonic() > told + NEWS:
            told = time.monotonic()
            _say("; ".join(f"{each.part.name}: {each.news}" for each in waiting))


def _heed_interrupts() -> None:
    """Have SIGINT end this process, as it does not where a shell started the suite in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(run_in_turn(PARTS) if sys.argv[1:] == [IN_TURN] else run(PARTS))
