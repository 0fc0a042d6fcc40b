"""Following the store for runs that ended, and delivering their traces: at least once, and in the background.

The ledger is the feed: each Keeper's chain lists, without gaps and in the order of its commits, the end of every run. So the place
up to which a chain is done with is all that has to be remembered, nothing is written for the export's sake when a run
ends, and the buffer for a receiver that is away is the store itself. The places are in the store too: whichever node exports next goes
on from them. (Rejected: an outbox table, two more writes a run; a queue in the Keeper's memory, which a restart empties; a cursor over
finish times, which are not in the order of commits.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.domain.ledger import Chain
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import RunId
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.store.api import CommandStore, QueryStore
from owlclaw_ray.store.commands import ExportNoted, NoteExported
from owlclaw_ray.store.run_ends import ChainPositions, EndedRunCount, ExportPositions, FactsOfRuns, RunsEndedAfter
from owlclaw_ray.telemetry.tracing.api import ReceiverError, RefusedTracesError, TraceReceiver

BATCH = 128
"""Runs in a delivery."""
POLL_SECONDS = 1.0
"""How often the store is polled while nothing ends."""
_LOOKS = 16
"""How often the waiting runs are counted while the buffer is full and as many runs again end."""
_RETRY = RetryPolicy(base=1.0, cap=30.0)

logger = logging.getLogger(__name__)


class ExportCounts(Struct, frozen=True):
    """What became of traces since the process began."""

    exported: int = 0
    dropped: int = 0
    """Given up: the receiver was away for too many, or refused them."""
    failures: int = 0
    """Deliveries that did not get through."""
    waiting: int = 0
    """Runs whose traces wait, as last counted: when a delivery failed, or when there might be too many."""


class TraceExport:
    """Exports what ended since the last time, in this process or an earlier one; the very first time begins with the present.

    Not many more than `buffer_runs` runs wait, for a receiver that is away or for an export that is too slow for what ends: the
    oldest are given up, and counted.
    """

    def __init__(
        self,
        ends: QueryStore,
        notes: CommandStore,
        receiver: TraceReceiver,
        *,
        buffer_runs: int,
        jitter: Callable[[], float],
    ) -> None:
        self.counts = ExportCounts()
        self._ends, self._notes, self._receiver = ends, notes, receiver
        self._buffer_runs, self._jitter = buffer_runs, jitter
        self._positions: dict[Chain, int] = {}
        self._saved: Mapping[Chain, int] = {}
        self._looks_at = buffer_runs
        """Records behind at which the waiting runs are counted: each has several records."""
        self._failed = 0
        """Deliveries in a row."""
        self._records_per_run = 1.0
        """As the last batch had them."""
        self.fullness = 0.0
        """How full the buffer is, from 0 to 1, by the last look at the chains."""

    async def begin(self) -> None:
        """Take up the export where it was left, on whichever node. What ends from now on is exported."""
        saved = await self._ends.read(ExportPositions())
        if saved is None:
            self._positions = dict(await self._ends.read(ChainPositions()))
            await self._note()
        else:
            self._positions = dict(saved)
        self._saved = dict(self._positions)

    async def step(self) -> float:
        """Deliver a batch of each chain that has something; return after how many seconds to come again.

        Never raises for what the receiver does.
        """
        more = False
        try:
            heads = await self._ends.read(ChainPositions())
            if self._behind(heads) > self._looks_at:  # runs are counted only when there may be too many of them
                await self._make_room()
                room = self._buffer_runs - self.counts.waiting
                self._looks_at = self._behind(heads) + max(room, self._buffer_runs // _LOOKS)
            self.fullness = min(1.0, self._behind(heads) / self._records_per_run / self._buffer_runs)
            for chain, head in heads.items():
                if head > self._reached(chain):
                    more |= await self._advance(chain)
        except ReceiverError as error:
            self._failed += 1
            self._count(failures=1)
            await self._make_room()
            pause = _RETRY.delay(self._failed, self._jitter())
            log = logger.warning if self._failed == 1 else logger.info
            log("traces wait for their receiver, next try in %.1f s: %s", pause, error)
            return pause
        finally:
            await self._save()
        if self._failed:
            logger.info("the receiver of traces accepts them again")
        self._failed = 0
        if more:
            return 0.0
        self.counts, self._looks_at = replace(self.counts, waiting=0), self._buffer_runs
        return POLL_SECONDS

    async def _advance(self, chain: Chain) -> bool:
        """Deliver the next batch of a chain; return whether there may be more."""
        reached = self._reached(chain)
        ended = await self._ends.read(RunsEndedAfter(chain, reached, BATCH))
        if ended.runs:
            self._records_per_run = max(1.0, (ended.runs[-1][0] - reached) / len(ended.runs))
            await self._deliver(chain, ended.runs)
        self._positions[chain] = ended.until
        return len(ended.runs) == BATCH

    async def _deliver(self, chain: Chain, runs: Sequence[tuple[int, RunId]]) -> None:
        """Deliver these runs; a batch that is refused goes in halves, until only what is refused by itself is given up."""
        try:
            facts = await self._ends.read(FactsOfRuns([run_id for _, run_id in runs]))
            if facts:
                await self._receiver.send(facts)
        except RefusedTracesError as error:
            if len(runs) > 1:
                half = len(runs) // 2
                await self._deliver(chain, runs[:half])
                await self._save()
                return await self._deliver(chain, runs[half:])
            logger.warning("the trace of run %s is given up: %s", runs[0][1], error)
            self._count(dropped=1)
        else:
            self._count(exported=len(facts), dropped=len(runs) - len(facts))  # some may be removed by now
        self._positions[chain] = runs[-1][0]
        return None

    def _behind(self, heads: Mapping[Chain, int]) -> int:
        return sum(max(0, head - self._reached(chain)) for chain, head in heads.items())

    async def _make_room(self) -> None:
        """Give up the oldest traces of the longest chains while more wait than the buffer may hold."""
        chains = await self._ends.read(ChainPositions())
        behind = {chain: await self._ends.read(EndedRunCount(chain, self._reached(chain))) for chain in chains}
        waiting = sum(behind.values())
        for chain in sorted(behind, key=lambda each: behind[each], reverse=True):
            over = min(waiting - self._buffer_runs, behind[chain])
            if over <= 0:
                break
            skipped = await self._ends.read(RunsEndedAfter(chain, self._reached(chain), over))
            self._positions[chain] = skipped.until
            self._count(dropped=over)
            logger.warning("%d traces are given up: more than %d wait for their receiver", over, self._buffer_runs)
            waiting -= over
        self.counts = replace(self.counts, waiting=waiting)

    def _reached(self, chain: Chain) -> int:
        return self._positions.get(chain, 0)

    async def _save(self) -> None:
        if self._positions != self._saved:
            await self._note()
            self._saved = dict(self._positions)

    async def _note(self) -> None:
        (outcome,) = await self._notes.apply([NoteExported(dict(self._positions))])
        if not isinstance(outcome, ExportNoted):
            raise StoreUnavailableError(f"the place up to which traces are exported was not stored: {outcome}")

    def _count(self, *, exported: int = 0, dropped: int = 0, failures: int = 0) -> None:
        counts = self.counts
        self.counts = replace(
            counts,
            exported=counts.exported + exported,
            dropped=counts.dropped + dropped,
            failures=counts.failures + failures,
            waiting=max(0, counts.waiting - exported),
        )
