"""Runs that ended, in the order of their ends, as the export of traces follows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from owlclaw_ray.domain.journal import JournalEntry
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.domain.run import Run
from owlclaw_ray.ids import RunId, TenantId


class Chain(Struct, frozen=True, order=True):
    """A ledger chain: what one Keeper wrote of one tenant, in the order of its commits and without gaps."""

    tenant: TenantId
    writer: str


class EndedRuns(Struct, frozen=True):
    """Runs that ended in a stretch of a chain."""

    runs: tuple[tuple[int, RunId], ...]
    """Each with the position of its end, in order."""
    until: int
    """The last position of the stretch: behind it nothing was looked at."""


class RunFacts(Struct, frozen=True):
    """Everything that is known of a run that ended."""

    run: Run
    journal: tuple[JournalEntry, ...]
    """Without how it was queued, started and finished: the run says that."""
    failures: tuple[LedgerRecord, ...] = ()
    """Its ledger records of model calls that failed, in part or as a whole; not of calls for vectors."""
    indexing: tuple[LedgerRecord, ...] = ()
    """Ledger records of calls for vectors of what it remembered, as far as those were made by now; its journal has the others."""
    blobs: Mapping[str, str] = field(default_factory=dict)
    """Its system prompt, by the hash that its journal names."""


class RunEnds(Protocol):
    """The store, as the export follows it. Every run that ends has its end in the ledger, in the same commit."""

    async def chains(self) -> Mapping[Chain, int]:
        """Return all chains with the position of their last record."""
        ...

    async def ended(self, chain: Chain, after: int, most: int) -> EndedRuns:
        """Return the first runs that ended after that position, up to so many."""
        ...

    async def backlog(self, chain: Chain, after: int) -> int:
        """Return how many runs ended after that position."""
        ...

    async def facts(self, runs: Sequence[RunId]) -> Sequence[RunFacts]:
        """Return what is known of these runs, in their order."""
        ...
