"""A wave of triggers, one to each of many agents, and what the store says became of them."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.question import Say

ACCEPTED = 202
_LOOK_AGAIN = 0.25
_SAY_AGAIN = 5.0


class WaveError(Exception):
    """A trigger was not accepted, or its run did not end in time."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """When runs were queued, claimed and finished: seconds since 1970, by the store's entries."""

    created: tuple[float, ...]
    started: tuple[float, ...]
    finished: tuple[float, ...]

    @property
    def wall(self) -> float:
        """Seconds from the first trigger to the last outcome; 0 without runs."""
        return max(self.finished) - min(self.created) if self.finished else 0.0

    @property
    def accepting(self) -> float:
        """Seconds from the first trigger to the last."""
        return max(self.created) - min(self.created) if self.created else 0.0

    @property
    def most_at_once(self) -> int:
        """The largest number of runs that were started and not yet finished."""
        steps = sorted([(at, 1) for at in self.started] + [(at, -1) for at in self.finished])
        level = most = 0
        for _, step in steps:
            level += step
            most = max(most, level)
        return most


class StoreReader:
    """Reads the embedded store of a running system beside its Keeper."""

    def __init__(self, data_dir: Path) -> None:
        self._uri = f"file:{data_dir / 'owlclaw.db'}?mode=ro"

    def unfinished(self) -> int:
        """Return how many runs are queued or running."""
        [(count,)] = self._rows("SELECT count(*) FROM runs WHERE status IN ('queued', 'running')")
        return int(count)

    def by_status(self, definition: str) -> dict[str, int]:
        """Return the number of runs of a definition's agents in each state."""
        question = "SELECT status, count(*) FROM runs JOIN agents USING (agent) WHERE definition = ? GROUP BY status"
        return {str(status): int(count) for status, count in self._rows(question, definition)}

    def agents_done(self, definition: str) -> int:
        """Return how many agents of a definition have completed a run."""
        question = (
            "SELECT count(DISTINCT runs.agent) FROM runs JOIN agents USING (agent) "
            "WHERE definition = ? AND status = 'completed'"
        )
        [(count,)] = self._rows(question, definition)
        return int(count)

    def last_seq(self) -> int:
        """Return the seq of the last run, 0 without runs."""
        [(last,)] = self._rows("SELECT coalesce(max(seq), 0) FROM runs")
        return int(last)

    def times(self, after: int = 0) -> RunTimes:
        """Return the times of all finished runs with a seq over `after`."""
        question = "SELECT created_at, started_at, finished_at FROM runs WHERE seq > ? AND finished_at IS NOT NULL"
        rows = [tuple(micros / 1e6 for micros in row) for row in self._rows(question, after)]
        created, started, finished = zip(*rows, strict=True) if rows else ((), (), ())
        return RunTimes(created, started, finished)

    def _rows(self, question: str, *arguments: object) -> list[tuple[int | str, ...]]:
        with closing(sqlite3.connect(self._uri, uri=True, timeout=30)) as connection:
            return connection.execute(question, arguments).fetchall()


def trigger_each(url: str, agents: Sequence[str], *, body: bytes = b"{}", connections: int = 64) -> list[float]:
    """POST one trigger to each of the agents; return how long each answer took (seconds). Raises WaveError if one is refused."""
    return asyncio.run(_trigger_each(url, agents, body, connections))


async def _trigger_each(url: str, agents: Sequence[str], body: bytes, connections: int) -> list[float]:
    remaining, latencies = iter(agents), list[float]()
    await asyncio.gather(*(_connection(url, remaining, body, latencies) for _ in range(connections)))
    return latencies


async def _connection(url: str, remaining: Iterator[str], body: bytes, latencies: list[float]) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        for agent in remaining:
            started = time.monotonic()
            head = f"POST /v1/agents/{agent}/triggers HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(body)}"
            writer.write(head.encode() + b"\r\n\r\n" + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = answer.split("\r\n")
            length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length"))
            content = await reader.readexactly(length)
            latencies.append(time.monotonic() - started)
            if int(lines[0].split()[1]) != ACCEPTED:
                raise WaveError(f"{agent}: {lines[0]}: {content.decode()[:300]}")
    finally:
        writer.close()


def wait_until_done(store: StoreReader, say: Say, *, seconds: float) -> None:
    """Return when no run is queued or running. Raises WaveError after so many seconds."""
    started = said = time.monotonic()
    while unfinished := store.unfinished():
        now = time.monotonic()
        if now - started > seconds:
            raise WaveError(f"{unfinished} runs are still not finished after {seconds:.0f} s")
        if now - said > _SAY_AGAIN:
            said = now
            say(f"{unfinished} runs are not finished yet")
        time.sleep(_LOOK_AGAIN)
