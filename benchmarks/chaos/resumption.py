"""How long a run stood still after the blow that interrupted it, and where it was interrupted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from benchmarks.chaos.evidence import Blow, Evidence
from benchmarks.chaos.strikes import Role
from owlclaw_ray.domain.journal import EntryKind

_INTERRUPTING = frozenset({Role.AGENT, Role.HUNG_AGENT, Role.ROOT, Role.TREE})
"""Whose end makes runs change their host."""
_HITS = frozenset({"killed", "stopped"})


@dataclass(frozen=True, slots=True)
class Resumption:
    """One run taken up again."""

    run_id: str
    role: Role | None
    """What was hit; None when no strike was seen to end the host (it died of something else, or lost its agent)."""
    seconds: float
    """From the blow to run_resumed; without a blow, from the last entry."""
    after: EntryKind
    """The last fact that was committed before."""


def resumptions(evidence: Evidence) -> Iterator[Resumption]:
    """Yield every run_resumed. The run was alive at the entry before it; the first blow since then counts as what ended
    its host, so that a time is never told too short.
    """
    blows = sorted(
        (each for each in evidence.blows if each.role in _INTERRUPTING and each.what in _HITS), key=lambda each: each.at
    )
    for run_id, journal in evidence.journals.items():
        for index, entry in enumerate(journal):
            if entry.kind is EntryKind.RUN_RESUMED:
                alive = journal[index - 1]
                blow = _first_between(blows, alive.at, entry.at)
                since = alive.at if blow is None else blow.at
                role = None if blow is None else blow.role
                yield Resumption(run_id, role, (entry.at - since).total_seconds(), alive.kind)


def by_role(found: Sequence[Resumption]) -> Mapping[str, list[float]]:
    """Return the seconds of each role's resumptions, sorted."""
    times: dict[str, list[float]] = defaultdict(list)
    for each in found:
        times[each.role.value if each.role else "no strike"].append(each.seconds)
    return {role: sorted(times[role]) for role in sorted(times)}


def by_place(found: Sequence[Resumption]) -> Mapping[str, int]:
    """Return how many runs were interrupted behind which fact."""
    return dict(Counter(each.after.value for each in found).most_common())


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value that this share of them does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _first_between(blows: Sequence[Blow], start: datetime, end: datetime) -> Blow | None:
    return next((each for each in blows if start <= each.at <= end), None)
