"""What the export of traces reads, and the receivers of traces and scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from owlclaw_ray.domain.score import Score
from owlclaw_ray.errors import RetryableError
from owlclaw_ray.store.run_ends import RunFacts


class ReceiverError(RetryableError):
    """The receiver of traces did not take a batch: it is down, slow, or says that it is busy."""


class RefusedTracesError(Exception):
    """The receiver of traces will never take this batch."""


class ScoreReceiver(Protocol):
    """Keeps scores of runs."""

    async def keep(self, score: Score) -> None:
        """Have the score kept, in the place of an earlier one with its id. Raises ReceiverError, ScoreRefusedError."""
        ...


class TraceReceiver(Protocol):
    """Takes traces."""

    async def send(self, runs: Sequence[RunFacts]) -> None:
        """Deliver the traces of these runs. Raises ReceiverError, or RefusedTracesError if it would be no use to try again."""
        ...

    async def close(self) -> None:
        """Release the connections."""
        ...
