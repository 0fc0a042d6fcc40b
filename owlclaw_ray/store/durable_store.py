"""Writing that does not give up: a store outage delays runs, it does not end them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import TypeVar

from msgspec.structs import replace

from owlclaw_ray.errors import StoreUnavailableError, TerminalError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import CommandStore
from owlclaw_ray.store.commands import ActivateAgent, ClaimRun, Command, CommandFailed, Outcome

_FIRST_DELAY, _MAX_DELAY = 0.05, 2.0
_KNOWN_BLOBS = 4_096
_KNOWN_FOR = timedelta(hours=1)
"""For how long a text that was stored is not sent again. A store keeps it for longer than that after it was stored last, whether or
not anything names it: see `runs.expiry`."""

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


class CommandRefusedError(TerminalError):
    """The store could commit other commands but not this one."""


async def until_available(clock: Clock, ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return what the store answers, asking again for as long as it is not available."""
    delay = _FIRST_DELAY
    while True:
        try:
            return await ask()
        except StoreUnavailableError as error:
            logger.warning("store unavailable, trying again in %.2f s: %s", delay, error)
            await clock.sleep(delay)
            delay = min(delay * 2, _MAX_DELAY)


class DurableStore:
    """Applies commands until the store has committed them. Commands are idempotent, so a lost answer costs nothing."""

    def __init__(self, store: CommandStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._known: dict[tuple[TenantId, str], datetime] = {}

    async def apply(self, command: Command) -> Outcome:
        """Return the command's outcome; raises CommandRefusedError if the store will never take it."""
        return (await self.apply_all([command]))[0]

    async def apply_all(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Return one outcome a command, in order; raises CommandRefusedError if the store will never take one of them."""
        outcomes = await self.outcomes(commands)
        for outcome in outcomes:
            if isinstance(outcome, CommandFailed):
                raise CommandRefusedError(outcome.message)
        return outcomes

    async def outcomes(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Return one outcome a command, in order, refusals included: the others of the batch are committed all the same."""
        tries = count()

        def apply() -> Awaitable[Sequence[Outcome]]:
            return self._store.apply([self._dated(command) for command in commands] if next(tries) else commands)

        return await until_available(self._clock, apply)

    def _dated(self, command: Command) -> Command:
        """Return a claim with the time of its next try: a run begins when it is given, not when it was first asked for."""
        return replace(command, at=self._clock.now()) if isinstance(command, ActivateAgent | ClaimRun) else command

    def unstored_blobs(self, tenant: TenantId, blobs: Mapping[str, str]) -> dict[str, str]:
        """Return those of a tenant's texts that were not stored within the last hour."""
        now = self._clock.now()
        return {digest: text for digest, text in blobs.items() if not self._is_stored(tenant, digest, now)}

    def _is_stored(self, tenant: TenantId, digest: str, now: datetime) -> bool:
        stored_at = self._known.get((tenant, digest))
        return stored_at is not None and timedelta(0) <= now - stored_at < _KNOWN_FOR

    def note_stored_blobs(self, tenant: TenantId, blobs: Mapping[str, str]) -> None:
        """Note texts of a tenant that a commit has stored just now."""
        now = self._clock.now()
        for digest in blobs:
            self._known.pop((tenant, digest), None)
            if len(self._known) >= _KNOWN_BLOBS:
                del self._known[next(iter(self._known))]
            self._known[tenant, digest] = now
