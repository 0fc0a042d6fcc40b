"""Noticing within a second that Ray is gone, without which nothing goes on and which nothing brings back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

import psutil

from serve.processes import OrphanReaper, child_ended, command_line

_CHECK_INTERVAL = 0.5
_CHECKS_PER_REAP = 20
_SILENCE_SECONDS = 20.0
"""How long a cluster may leave a question unanswered."""
_VITAL = {"raylet": "Ray's raylet", "gcs_server": "Ray's control store (gcs_server)"}

logger = logging.getLogger(__name__)


class RayWatch:
    """Looks on in a thread of its own until it is told to stop, or tells of a loss, once."""

    def __init__(self, lost: Callable[[str], None]) -> None:
        """`lost` is given what is gone and does not return."""
        self._lost = lost
        self._over = threading.Event()

    def own_processes(self) -> None:
        """Watch the processes of the Ray that this process has started."""
        found = {_script(each): each for each in psutil.Process().children()}
        self._watch({name: found[script].pid for script, name in _VITAL.items() if script in found})

    def cluster(self, is_there: Callable[[], bool]) -> None:
        """Watch a cluster that others have started: `is_there` asks it, and may block or raise if it is not."""
        heard = time.monotonic()

        def ask() -> None:
            nonlocal heard
            while not self._over.wait(_CHECK_INTERVAL):
                try:
                    if is_there():
                        heard = time.monotonic()
                except Exception as error:  # noqa: BLE001 - whatever it is, it is no sign of life
                    logger.warning("the Ray cluster cannot be asked: %s", error)

        def look_on() -> None:
            while not self._over.wait(_CHECK_INTERVAL):
                if time.monotonic() - heard >= _SILENCE_SECONDS:
                    self._lost("the Ray cluster")
                    return

        _in_background(ask)
        _in_background(look_on)

    def stop(self) -> None:
        """Look no more: Ray is about to be ended."""
        self._over.set()

    def _watch(self, vital: Mapping[str, int]) -> None:
        def look_on() -> None:
            reaper = OrphanReaper()
            for look in count(1):
                if self._over.wait(_CHECK_INTERVAL):
                    return
                if gone := [name for name, pid in vital.items() if child_ended(pid)]:
                    self._lost(gone[0])
                    return
                if look % _CHECKS_PER_REAP == 0:
                    reaper.look()

        _in_background(look_on)


def _in_background(act: Callable[[], None]) -> None:
    threading.Thread(target=act, name=f"ray-watch-{act.__name__}", daemon=True).start()


def _script(process: psutil.Process) -> str:
    """Return the name of the program, or of the Python file that it runs."""
    words = command_line(process)
    scripts = (Path(word).name for word in words if word.endswith(".py"))
    return next(scripts, Path(words[0]).name if words else "")
