"""Ids that a test can write down."""

from __future__ import annotations

from collections import Counter


class SequentialIds:
    """Counts from one for each prefix: `run_000001`, `run_000002`, `mem_000001`."""

    def __init__(self) -> None:
        self._made: Counter[str] = Counter()

    def make(self, prefix: str) -> str:
        """Return the prefix's next id. Ids of one prefix sort in the order of their making, up to a million."""
        self._made[prefix] += 1
        return f"{prefix}_{self._made[prefix]:06d}"
