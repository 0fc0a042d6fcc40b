"""How long runs stood still: those that a blow interrupted, and those that were queued meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from benchmarks.chaos.evidence import Blow, Evidence
from benchmarks.chaos.strikes import LEASE, MACHINES, NODE, Role
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind

_SWEEPING = frozenset({Role.ROOT, Role.RESTART, Role.TREE}) | NODE | LEASE
"""Whose end ends every host: a run that was interrupted before waits from then on anew."""
_INTERRUPTING = frozenset({Role.AGENT, Role.HUNG_AGENT}) | MACHINES
_HITS = frozenset({"killed", "stopped", "ended"})
_BEGUN = frozenset({"killed", "stopped", "ending"})
"""How a strike begins; what is stopped in order has `ended` later."""
_DYING = timedelta(seconds=2)
"""So long after a blow a host may still write: its owner died, not it, or it was the last of many to be killed."""
_AFTERMATH = timedelta(seconds=30)
"""So long after a blow what is queued may wait for its sake, and that long machines are away."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """One run taken up again."""

    run_id: str
    role: Role | None
    """What was hit; None when no strike was seen to end the host (it died of something else, or lost its agent)."""
    seconds: float
    """From the blow to run_resumed; without a blow, from the last entry."""
    still: float
    """Seconds since the last entry: with the call that was under way then."""
    after: EntryKind
    """The last fact that was committed before."""


def resumptions(evidence: Evidence) -> Iterator[Resumption]:
    """Yield every run_resumed, with the blow that it is counted from.

    The run was alive at the entry before. Of the blows since then the last that ended every host counts, or, without such a
    one, the first that ended a host, perhaps another one: a time is rather told too long than too short.
    """
    blows = sorted((each for each in evidence.blows if each.what in _HITS), key=lambda each: each.at)
    for run_id, journal in evidence.journals.items():
        for index, entry in enumerate(journal):
            if entry.kind is EntryKind.RUN_RESUMED:
                alive = journal[index - 1]
                blow = _cause(blows, alive.at, entry.at)
                since = alive.at if blow is None else blow.at
                role = None if blow is None else blow.role
                still = (entry.at - alive.at).total_seconds()
                yield Resumption(run_id, role, (entry.at - since).total_seconds(), still, alive.kind)


def waits_for_slots(evidence: Evidence) -> Iterator[float]:
    """Yield for how many seconds the first call of each run that was resumed waited for a slot of its provider."""
    for journal in evidence.journals.values():
        waited: int | None = None
        for entry in journal:
            if entry.kind is EntryKind.RUN_RESUMED:
                waited = 0
            elif waited is not None:
                waited += entry.data.get("waited_ms", 0)
                if entry.kind is EntryKind.MODEL_REPLIED:
                    yield waited / 1_000
                    waited = None


@dataclass(frozen=True, slots=True)
class Standstill:
    """A queued run that waited for nothing of its agent's: no earlier run was going on."""

    run_id: str
    role: Role | None
    """The last that was hit while it waited, or half a minute before; None if nothing was."""
    seconds: float
    """From its acceptance, or the end of the run before, to its start."""
    behind: float
    """Of these, those since the last hit, if there was one meanwhile: before it the run waited for a machine that was busy."""


def standstills(evidence: Evidence) -> Iterator[Standstill]:
    """Yield one for every run that was started."""
    blows = sorted((each for each in evidence.blows if each.what in _HITS), key=lambda each: each.at)
    free: dict[AgentRef, datetime] = {}
    started = [(run.started_at, run) for run in evidence.runs.values() if run.started_at is not None]
    for at, run in sorted(started, key=lambda each: each[0]):
        since = max(run.created_at, free.get(run.agent, run.created_at))
        meanwhile = [each for each in blows if since - _AFTERMATH <= each.at <= at]
        role, hit = (meanwhile[-1].role, meanwhile[-1].at) if meanwhile else (None, since)
        yield Standstill(run.run_id, role, (at - since).total_seconds(), (at - max(since, hit)).total_seconds())
        if run.finished_at is not None:
            free[run.agent] = run.finished_at


def not_over(evidence: Evidence) -> Iterator[tuple[int, int]]:
    """Yield how many runs were accepted and not over as each strike began, and how many of these had started."""
    for blow in evidence.blows:
        if blow.what in _BEGUN:
            left = [
                run
                for run in evidence.runs.values()
                if run.created_at <= blow.at and (run.finished_at is None or run.finished_at > blow.at)
            ]
            yield len(left), sum(run.started_at is not None and run.started_at <= blow.at for run in left)


def sorted_seconds(found: Iterable[Resumption | Standstill]) -> list[float]:
    """Return the seconds of these."""
    return sorted(each.seconds for each in found)


def by_role(found: Sequence[Resumption | Standstill]) -> Mapping[str, list[float]]:
    """Return the seconds of each role, sorted."""
    roles: dict[str, list[Resumption | Standstill]] = defaultdict(list)
    for each in found:
        roles[each.role.value if each.role else "no strike"].append(each)
    return {role: sorted_seconds(roles[role]) for role in sorted(roles)}


def by_place(found: Sequence[Resumption]) -> Mapping[str, int]:
    """Return how many runs were interrupted behind which fact."""
    return dict(Counter(each.after.value for each in found).most_common())


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value that this share of them does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _cause(blows: Sequence[Blow], alive: datetime, resumed: datetime) -> Blow | None:
    near = [each for each in blows if alive - _DYING <= each.at <= resumed]
    since = [each for each in near if each.at >= alive]
    sweeping = [each for each in since if each.role in _SWEEPING]
    single = [each for each in since if each.role in _INTERRUPTING]
    just_before = [each for each in near if each.role in _SWEEPING | _INTERRUPTING]
    return next((each for each in (*sweeping[-1:], *single[:1], *just_before[-1:])), None)
