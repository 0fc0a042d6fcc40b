"""Finds the least loaded of many whose loads change all the time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")

Load = tuple[float, ...]


class LeastLoaded(Generic[T]):
    """Things by number, each with its load. A change costs O(log n), and the least one is found in O(1) on average.

    Each change leaves the former load in the heap, where it is passed over later.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Load, int]] = []
        self._loads: dict[int, tuple[Load, T]] = {}

    def __len__(self) -> int:
        return len(self._loads)

    def put(self, number: int, thing: T, load: Load) -> None:
        """Note the thing's load. Of equal loads that of the lowest number is the least."""
        known = self._loads.get(number)
        if known is not None and known[0] == load:
            return
        self._loads[number] = (load, thing)
        if len(self._heap) > 2 * len(self._loads) + 16:
            self._heap = [(load, number) for number, (load, _) in self._loads.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (load, number))

    def drop(self, number: int) -> None:
        """Forget the thing; harmless if it is not known."""
        self._loads.pop(number, None)

    def least(self) -> T | None:
        """Return the thing with the least load; None if there is nothing."""
        while self._heap:
            load, number = self._heap[0]
            known = self._loads.get(number)
            if known is not None and known[0] == load:
                return known[1]
            heappop(self._heap)
        return None
