"""Which of the calls that were lost had begun: what decides whether one may run again.

A Ray error is no proof either way: a task may have waited for a slot all the time, may have ended with its answer lost, or may yet
begin on a machine that Ray counts as dead. So an attempt has a mark, which both sides try to make: the worker before it runs
the call, and the host once the attempt is lost. One of them is first.

Where one machine has all data, a mark is a file. On a cluster it is a row of the store, whose commit the call waits for.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NewType, Protocol

from owlclaw_ray.errors import RetryableError, StoreUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.file_threads import in_file_thread, leave_to_file_thread
from owlclaw_ray.store.api import CommandStore
from owlclaw_ray.store.commands import (
    AttemptBegun,
    AttemptRevoked,
    BeginAttempt,
    Command,
    ForgetAttempts,
    Outcome,
    RevokeAttempt,
)
from owlclaw_ray.store.durable_store import until_available

AttemptId = NewType("AttemptId", str)

_FOLDER = "attempts"
_KEPT_SECONDS = 30 * 86_400.0
"""How long the file of an attempt stays whose host did not live to remove it: longer than any call takes."""

_TRIES = 5
"""How often a worker asks to begin while the Keeper does not answer: for about as long as one takes to start again."""
_FORGET_SECONDS = 1.0
"""For how long attempts that are over are gathered, to be forgotten in one commit."""

logger = logging.getLogger(__name__)


class AttemptRevokedError(Exception):
    """The host has given this attempt up: the call must not run."""


class BeginsAttempts(Protocol):
    """How a tool worker notes that an attempt begins."""

    def begin(self, attempt: AttemptId) -> None:
        """Note it, durably; raises AttemptRevokedError if it must not begin any more, OSError or RetryableError if that is not known."""
        ...


class RevokesAttempts(Protocol):
    """How a host learns whether an attempt that it has lost had begun."""

    for_all: bool
    """Whether a mark costs so little that calls which may be repeated are marked too."""

    async def revoke(self, attempt: AttemptId) -> float | None:
        """Return how many seconds ago the attempt began; None if it never did, and from now on never will."""
        ...

    def forget(self, attempt: AttemptId) -> None:
        """Have the mark removed soon of an attempt that is over: it was answered, or `revoke` has said that it began."""
        ...


class AttemptMarkers:
    """The files of attempts, in a data folder that hosts and tool workers share. Implements BeginsAttempts."""

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


class FiledAttempts(RevokesAttempts):
    """A host's attempts with files as marks, which it leaves to threads."""

    for_all = True

    def __init__(self, markers: AttemptMarkers) -> None:
        self._markers = markers

    async def revoke(self, attempt: AttemptId) -> float | None:
        """See RevokesAttempts.revoke."""
        return await in_file_thread(self._markers.revoke, attempt)

    def forget(self, attempt: AttemptId) -> None:
        """See RevokesAttempts.forget."""
        leave_to_file_thread(self._markers.forget, attempt)


class StoredBeginnings(BeginsAttempts):
    """A worker's attempts with rows of the store as marks."""

    def __init__(
        self, commit: Callable[[Sequence[Command]], Sequence[Outcome]], pause: Callable[[float], None] = time.sleep
    ) -> None:
        """`commit` may raise RetryableError."""
        self._commit = commit
        from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

        self._retrying = Retrying(
            retry=retry_if_exception_type(RetryableError),
            stop=stop_after_attempt(_TRIES),
            wait=wait_random(0.5, 1.5),
            sleep=pause,
            reraise=True,
        )

    def begin(self, attempt: AttemptId) -> None:
        """See BeginsAttempts.begin."""
        if not isinstance(self._retrying(self._ask, BeginAttempt(attempt)), AttemptBegun):
            raise AttemptRevokedError(attempt)

    def _ask(self, command: BeginAttempt) -> AttemptBegun | AttemptRevoked:
        (outcome,) = self._commit([command])
        if not isinstance(outcome, AttemptBegun | AttemptRevoked):
            raise StoreUnavailableError(f"{command.attempt} was not noted: {outcome}")
        return outcome


class StoredAttempts(RevokesAttempts):
    """A host's attempts with rows of the store as marks. It waits for a store that is away: without it no run goes on anyway."""

    for_all = False

    def __init__(self, store: CommandStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._over: list[AttemptId] = []
        self._forgetting: asyncio.Task[None] | None = None

    async def revoke(self, attempt: AttemptId) -> float | None:
        """See RevokesAttempts.revoke."""
        (answer,) = await until_available(self._clock, lambda: self._store.apply([RevokeAttempt(attempt)]))
        match answer:
            case AttemptRevoked():
                return None
            case AttemptBegun(seconds):
                return seconds
            case _:
                logger.error("whether a tool call began is not to be known: %s", answer)
                return 0.0

    def forget(self, attempt: AttemptId) -> None:
        """See RevokesAttempts.forget. A store that is away then keeps the mark for 30 days."""
        self._over.append(attempt)
        if self._forgetting is None:
            self._forgetting = asyncio.create_task(self._forget())

    async def _forget(self) -> None:
        await self._clock.sleep(_FORGET_SECONDS)
        over, self._over, self._forgetting = tuple(self._over), [], None
        try:
            await self._store.apply([ForgetAttempts(over)])
        except StoreUnavailableError as error:
            logger.warning("%d attempts that are over stay in the store: %s", len(over), error)
