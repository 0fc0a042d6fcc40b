"""When a run's first entry of its own appears after its trigger, by the journal and by a client's clock."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import orjson

from benchmarks.measuring import BODY
from benchmarks.wave import StoreReader, WaveError

_ACCEPTED = 202


@dataclass(frozen=True, slots=True)
class Started:
    """One run's start, in seconds from its trigger."""

    by_journal: float
    """From the time of its entry run_queued to that of run_started."""
    by_client: float
    """From before the request that triggers it to the event run_started; a second request, for the events, is between."""


class FirstEntries:
    """Triggers one run at a time and follows it to its end, over one connection."""

    def __init__(self, url: str, store: StoreReader) -> None:
        self._store = store
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def of(self, agents: Iterable[str]) -> list[Started]:
        """Return how each of these agents starts, one after another; each has ended its run when the next is triggered."""
        return [self.one(agent) for agent in agents]

    def one(self, agent: str) -> Started:
        """Trigger the agent, and return when its run has ended. Raises WaveError if it is not accepted or never starts."""
        began = time.perf_counter()
        self._connection.request("POST", f"/v1/agents/{agent}/triggers", BODY)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != _ACCEPTED:
            raise WaveError(f"{agent} was not triggered: {response.status} {answer.decode()[:300]}")
        run_id = orjson.loads(answer)["run_id"]
        self._connection.request("GET", f"/v1/runs/{run_id}/events")
        seen = started_at(self._lines(), time.perf_counter)
        if seen is None:
            raise WaveError(f"{agent}: the run {run_id} ended without a start")
        return Started(self._store.start_of(run_id), seen - began)

    def _lines(self) -> Iterator[bytes]:
        response = self._connection.getresponse()
        while line := response.readline():
            yield line


def started_at(lines: Iterable[bytes], clock: Callable[[], float]) -> float | None:
    """Read a stream of events to its end; return when its run_started came, None if none did."""
    seen = None
    for line in lines:
        if line.rstrip() == b"event: run_started":
            seen = clock()
    return seen
