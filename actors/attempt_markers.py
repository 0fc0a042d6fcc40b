"""Which of the calls that were lost had begun: what decides whether one may run again.

A Ray error is no proof either way: a task may have waited for a slot all the time, may have ended with its answer lost, or may yet
begin on a machine that Ray counts as dead. So an attempt has a file, which both sides try to make: the worker before it runs
the call, and the host once the attempt is lost. One of them is first.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import NewType

from owlclaw_ray.kernel.clock import Clock

AttemptId = NewType("AttemptId", str)

_FOLDER = "attempts"
_KEPT_SECONDS = 30 * 86_400.0
"""How long the file of an attempt stays whose host did not live to remove it: longer than any call takes."""

logger = logging.getLogger(__name__)


class AttemptRevokedError(Exception):
    """The host has given this attempt up: the call must not run."""


class AttemptMarkers:
    """The files of attempts, in the data folder that hosts and tool workers share."""

    def __init__(self, data_dir: Path, clock: Clock) -> None:
        self._folder, self._clock = data_dir / _FOLDER, clock

    def begin(self, attempt: AttemptId) -> None:
        """Note that the attempt begins; raises AttemptRevokedError if it may not any more, OSError if the disk refuses. For the worker."""
        if not self._make(attempt):
            raise AttemptRevokedError(attempt)

    def revoke(self, attempt: AttemptId) -> float | None:
        """Return how many seconds ago the attempt began; None if it never did, and from now on never will. For the host.

        Where the disk does not let it tell (it is full, for example), the attempt counts as begun just now.
        """
        try:
            if self._make(attempt):
                return None
            began = (self._folder / attempt).stat().st_mtime
        except OSError as error:
            logger.warning("whether a tool call began is not to be known: %s", error)
            return 0.0
        return max(0.0, self._clock.now().timestamp() - began)

    def forget(self, attempt: AttemptId) -> None:
        """Remove the file of an attempt that is over: it was answered, or `revoke` has said that it began."""
        with suppress(OSError):
            (self._folder / attempt).unlink()

    def clear(self) -> None:
        """Remove the files of attempts that nobody can ask for any more."""
        oldest = self._clock.now().timestamp() - _KEPT_SECONDS
        for path in self._folder.glob("*"):
            with suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def _make(self, attempt: AttemptId) -> bool:
        path = self._folder / attempt
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        try:
            os.close(os.open(path, flags, 0o600))
        except FileExistsError:
            return False
        except FileNotFoundError:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._make(attempt)
        return True
