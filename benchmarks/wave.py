"""A wave of triggers, one to each of many agents, and what the store says became of them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import load
from benchmarks.load import post_for
from benchmarks.measuring import BODY, CONNECTIONS
from benchmarks.question import Say
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.store.sql.codec import agent_key

_LOOK_SECONDS = 0.25
_SAY_SECONDS = 5.0


class WaveError(Exception):
    """A trigger was not accepted, or its run did not end in time, or ended badly."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """When runs were queued, claimed and finished: seconds since 1970, as the store has them, run by run."""

    created: tuple[float, ...] = ()
    started: tuple[float, ...] = ()
    finished: tuple[float, ...] = ()

    @property
    def wall(self) -> float:
        """Seconds from the first trigger to the last outcome; 0 without runs."""
        return max(self.finished) - min(self.created) if self.finished else 0.0

    @property
    def accepting(self) -> float:
        """Seconds from the first trigger to the last; 0 without runs."""
        return max(self.created) - min(self.created) if self.created else 0.0

    @property
    def starting(self) -> tuple[float, ...]:
        """Seconds from each trigger to the claim of its run."""
        return tuple(start - create for create, start in zip(self.created, self.started, strict=True))

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

    def __init__(self, store: Path) -> None:
        self._database = sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=30)

    def unfinished(self) -> int:
        """Return how many runs are queued or running."""
        return self._count("SELECT count(*) FROM runs WHERE status IN ('queued', 'running')")

    def resident(self, agents: Sequence[str] = ()) -> int:
        """Return how many agents an activation owns, of these or of all."""
        question = "SELECT count(*) FROM agents WHERE activation_id IS NOT NULL"
        if agents:
            question += f" AND agent IN ({','.join('?' * len(agents))})"
        return self._count(question, *(agent_key(AgentRef.parse(agent)) for agent in agents))

    def registered(self) -> int:
        """Return how many agents there are."""
        return self._count("SELECT count(*) FROM agents")

    def agents_done(self) -> int:
        """Return how many agents have completed a run."""
        return self._count("SELECT count(DISTINCT agent) FROM runs WHERE status = 'completed'")

    def by_status(self) -> dict[str, int]:
        """Return the number of runs in each state."""
        return dict(self._database.execute("SELECT status, count(*) FROM runs GROUP BY status"))

    def last_seq(self) -> int:
        """Return the seq of the last run, 0 without runs."""
        return self._count("SELECT coalesce(max(seq), 0) FROM runs")

    def times(self, after: int = 0) -> RunTimes:
        """Return the times of all finished runs with a seq over `after`, in the order of acceptance."""
        rows = self._database.execute(
            "SELECT created_at / 1e6, started_at / 1e6, finished_at / 1e6 FROM runs"
            " WHERE seq > ? AND started_at IS NOT NULL AND finished_at IS NOT NULL ORDER BY seq",
            (after,),
        ).fetchall()
        return RunTimes(*zip(*rows, strict=True)) if rows else RunTimes()

    def start_of(self, run_id: str) -> float:
        """Return the seconds from the entry run_queued of a run to its run_started."""
        rows = self._database.execute(
            "SELECT at / 1e6 FROM journal WHERE run_id = ? AND kind IN (?, ?) ORDER BY seq",
            (run_id, EntryKind.RUN_QUEUED.value, EntryKind.RUN_STARTED.value),
        ).fetchall()
        [(queued,), (started,)] = rows
        return float(started - queued)

    def _count(self, question: str, *arguments: str) -> int:
        (count,) = self._database.execute(question, arguments).fetchone()
        return int(count)


def trigger_each(url: str, agents: Sequence[str]) -> None:
    """POST one trigger to each of the agents, over 64 connections. Raises WaveError if one is not accepted."""
    paths = (f"/v1/agents/{agent}/triggers" for agent in agents)
    result = load.run(post_for(url, paths, body=BODY, connections=CONNECTIONS))
    if result.accepted != len(agents):
        raise WaveError(
            f"of {len(agents)} triggers {result.accepted} were accepted, {result.refused} refused, {result.broken} broken"
        )


def check_completed(store: StoreReader) -> None:
    """Raise WaveError if a run ended otherwise than completed: how long it took, and what it cost, says nothing then."""
    otherwise = {status: count for status, count in store.by_status().items() if status != RunStatus.COMPLETED.value}
    if otherwise:
        raise WaveError("runs that should complete are " + ", ".join(f"{key}: {n}" for key, n in otherwise.items()))


def wait_until_done(store: StoreReader, say: Say, *, seconds: float) -> int:
    """Return when no run is queued or running: the largest number of resident agents that was seen.

    Raises WaveError after so many seconds.
    """
    end, said, most = time.monotonic() + seconds, time.monotonic(), store.resident()
    while unfinished := store.unfinished():
        now = time.monotonic()
        if now > end:
            raise WaveError(f"{unfinished} runs are still not finished after {seconds:.0f} s")
        if now - said > _SAY_SECONDS:
            said, resident = now, store.resident()
            most = max(most, resident)
            say(f"{unfinished} runs are not finished yet, {resident} agents are resident")
        time.sleep(_LOOK_SECONDS)
    return max(most, store.resident())
