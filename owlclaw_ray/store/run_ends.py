"""Runs that ended, in the order of their ends, as the export of traces follows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from owlclaw_ray.domain.journal import JournalEntry
from owlclaw_ray.domain.ledger import Chain, LedgerRecord
from owlclaw_ray.domain.run import Run
from owlclaw_ray.ids import RunId
from owlclaw_ray.store.queries import Query


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


class ChainPositions(Query[Mapping[Chain, int]], frozen=True):
    """All chains with the position of their last record."""


class ExportPositions(Query["Mapping[Chain, int] | None"], frozen=True):
    """The position of the last record of each chain that the export of traces is done with; None if it never began."""


class RunsEndedAfter(Query[EndedRuns], frozen=True):
    """The first runs of the chain that ended after that position, up to so many. Every run that ends has its end in the ledger, in the
    same commit.
    """

    chain: Chain
    after: int
    most: int


class EndedRunCount(Query[int], frozen=True):
    """How many runs of the chain ended after that position."""

    chain: Chain
    after: int


class FactsOfRuns(Query[Sequence[RunFacts]], frozen=True):
    """What is known of these runs, in their order."""

    runs: Sequence[RunId]
