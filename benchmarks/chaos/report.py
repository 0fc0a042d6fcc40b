"""A session's result: as JSON for machines, as text for people."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.chaos.checker import Violation, check
from benchmarks.chaos.evidence import Evidence
from benchmarks.chaos.resumption import (
    Resumption,
    by_place,
    by_role,
    not_over,
    percentile,
    resumptions,
    sorted_seconds,
    standstills,
    waits_for_slots,
)
from benchmarks.chaos.runtime_logs import complaints
from benchmarks.chaos.session import FACTS
from benchmarks.chaos.strikes import NODE, Role
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.ids import RunId

RESUME_GOAL_SECONDS = 5.0
ALL, LIVING = "all", "all but new starts"
_SHOWN = 20
"""So many violations are printed in full; the JSON has all."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a session showed."""

    violations: list[Violation]
    content: dict[str, Any]
    """JSON."""

    @property
    def kept(self) -> bool:
        """Whether no promise was broken and the session came to its end in order."""
        return not self.violations and not self.content["stop_problem"] and self.content["quiet"]


def judge(folder: Path, evidence: Evidence) -> Report:
    """Check the evidence of a session in a folder and count what happened."""
    violations = check(evidence)
    found = list(resumptions(evidence))
    waited = list(standstills(evidence))
    open_runs = list(not_over(evidence))
    facts = json.loads((folder / FACTS).read_text())
    content = {
        **facts,
        "runs": dict(Counter(run.status.value for run in evidence.runs.values()).most_common()),
        "accepted": len({each.key for each in evidence.answers if each.what == "accepted"}),
        "answered_twice": sum(bool(each.told["duplicate"]) for each in evidence.answers if each.what == "accepted"),
        "strikes": _strikes(evidence),
        "executions": dict(Counter(each.tool for each in evidence.executions).most_common()),
        "executions_cut_short": sum(each.ended is None for each in evidence.executions),
        "uncertain_results": _uncertain(evidence),
        "ledger_records": len(evidence.ledger),
        "not_over": _quantiles(sorted(map(float, (left for left, _ in open_runs)))),
        "under_way": _quantiles(sorted(map(float, (started for _, started in open_runs)))),
        "resumed": len(found),
        "still_seconds": _quantiles(sorted(each.still for each in found)),
        "slot_seconds": _quantiles(sorted(waits_for_slots(evidence))),
        "resume_seconds": {name: _quantiles(seconds) for name, seconds in _times(found).items()},
        "standstill_seconds": {
            name: _quantiles(seconds) for name, seconds in {ALL: sorted_seconds(waited), **by_role(waited)}.items()
        },
        "behind_seconds": _quantiles(sorted(each.behind for each in waited if each.role is not None)),
        "load_average": _quantiles(sorted(blow.load for blow in evidence.blows)),
        "cores": os.cpu_count(),
        "interrupted_behind": by_place(found),
        "tracebacks": dict(complaints(folder).most_common()),
        "violations": [_told(each, evidence) for each in violations],
    }
    return Report(violations, content)


def summary(report: Report) -> str:
    """Return the result as lines to read."""
    content = report.content
    plan = content["plan"]
    runs, seconds = content["runs"], content["resume_seconds"]
    load = content["load_average"]
    lines = [
        f"seed {plan['seed']}: {content['accepted']} triggers accepted; runs in the store: {runs}",
        f"strikes: {content['strikes']}",
        f"executions: {content['executions']}, {content['executions_cut_short']} of them cut short",
        f"once-calls reported as uncertain: {content['uncertain_results']}; ledger records: {content['ledger_records']}",
        f"the client tried again after {content['client_retries']}",
        f"answers that named an earlier run: {content['answered_twice']}",
        f"runs resumed: {content['resumed']}, interrupted behind {content['interrupted_behind']}",
        f"seconds from the blow to run_resumed (goal: p95 of all ≤ {RESUME_GOAL_SECONDS:g}): {_shown(seconds)}",
        f"seconds from the entry before to run_resumed: {_shown({ALL: content['still_seconds']})}",
        f"seconds that calls of resumed runs waited for slots of their models: {_shown({ALL: content['slot_seconds']})}",
        f"runs at a strike: {_shown({'not over': content['not_over'], 'of these under way': content['under_way']})}",
        f"seconds that queued runs stood still behind no other run: {_shown(content['standstill_seconds'])}",
        f"of these behind a strike, from it on: {_shown({ALL: content['behind_seconds']})}",
        f"submitting took {content['seconds_submitting']} s, the rest of the runs {content['seconds_until_quiet']} s",
        f"load average at the strikes: p50 {load.get('p50')} max {load.get('max')}, on {content['cores']} cores",
        f"tracebacks in the logs: {content['tracebacks'] or 'none'}",
    ]
    if content["stop_problem"]:
        lines.append(f"THE END: {content['stop_problem']}")
    if not content["quiet"]:
        lines.append("NOT QUIET: runs or schedules were left when the session's patience ended")
    lines.append(_verdict(report))
    return "\n".join(lines)


def _verdict(report: Report) -> str:
    if not report.violations:
        return "violations: none"
    counts = Counter(each.promise.value for each in report.violations)
    lines = [f"VIOLATIONS: {len(report.violations)} {dict(counts.most_common())}"]
    for told in report.content["violations"][:_SHOWN]:
        lines.append(f"  {told['promise']}: {told['what']}")
        lines += [f"    {entry}" for journal in told["journals"].values() for entry in journal]
    return "\n".join(lines)


def _times(found: Sequence[Resumption]) -> dict[str, list[float]]:
    """Return the times to resume: all, all but those behind a new start of the runtime, and by role."""
    living = [each for each in found if each.role not in {Role.TREE, Role.RESTART} | NODE]
    return {ALL: sorted_seconds(found), LIVING: sorted_seconds(living), **by_role(found)}


def _shown(seconds: dict[str, dict[str, float]]) -> str:
    return "; ".join(
        f"{role} min {each['min']} p50 {each['p50']} p95 {each['p95']} max {each['max']} (n {each['count']:g})"
        for role, each in seconds.items()
        if each["count"]
    )


def _strikes(evidence: Evidence) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for blow in evidence.blows:
        role = counts.setdefault(blow.role.value, {})
        role[blow.what] = role.get(blow.what, 0) + 1
    return counts


def _uncertain(evidence: Evidence) -> int:
    return sum(
        entry.kind is EntryKind.TOOL_FINISHED and (entry.data.get("error") or {}).get("type") == "uncertain"
        for journal in evidence.journals.values()
        for entry in journal
    )


def _quantiles(ordered: list[float]) -> dict[str, float]:
    if not ordered:
        return {"count": 0}
    shares = {"min": 0.0, "p50": 0.5, "p95": 0.95, "max": 1.0}
    return {"count": len(ordered)} | {name: round(percentile(ordered, share), 2) for name, share in shares.items()}


def _told(violation: Violation, evidence: Evidence) -> dict[str, Any]:
    """Return a violation with the journals of its runs."""
    journals = {
        run_id: [
            f"{entry.seq} {entry.at.isoformat()} {entry.kind.value} {entry.data}"
            for entry in evidence.journals.get(RunId(run_id), ())
        ]
        for run_id in violation.run_ids
    }
    return {
        "promise": violation.promise.value,
        "what": violation.what,
        "run_ids": list(violation.run_ids),
        "journals": journals,
    }
