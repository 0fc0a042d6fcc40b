"""Chaos as one of the benchmarks' questions."""

from __future__ import annotations

from collections import Counter

from benchmarks.chaos.checker import Promise
from benchmarks.chaos.report import ALL, LIVING, RESUME_GOAL_SECONDS, Report, summary
from benchmarks.chaos.session import Plan
from benchmarks.chaos.trial import Keep, trial
from benchmarks.question import Answer, Figure, Plot, Say, Series, Size

TITLE = "What is lost, repeated or out of order while random processes are killed?"
_SEED = 7
_PLANS = {Size.SMOKE: Plan(_SEED, runs=150, kills=5), Size.FULL: Plan(_SEED, runs=5_000, kills=234)}
"""Of the strikes of the full size 201 are kills; the others stop something for a while, open streams, or end the runtime in order."""
_COUNTED = {
    "lost runs": (Promise.ACCEPTED_RUN_LOST,),
    "runs without a final state": (Promise.RUN_ENDS,),
    "repeated once-effects": (Promise.ONCE_REPEATED,),
    "repeated recorded calls": (Promise.RECORDED_CALL_REPEATED,),
    "runs out of order or beside another": (Promise.IN_ORDER, Promise.ONE_AT_A_TIME),
    "signs of two writers": (Promise.ONE_WRITER,),
}


def answer(size: Size, say: Say) -> Answer:
    """Run one session and return what its checker counted. The folder of a session that broke a promise is in the details."""
    report = trial(_PLANS[size], Keep.BROKEN, say)
    say(summary(report))
    return Answer("chaos", (*_counts(report), *_times(report)), (_plot(report),), report.content)


def _counts(report: Report) -> tuple[Figure, ...]:
    counts = Counter(each.promise for each in report.violations)
    figures = [
        Figure("runs accepted", report.content["accepted"], "runs"),
        Figure("kills", _strikes(report, "killed"), "strikes"),
        Figure("processes stopped for a while", _strikes(report, "stopped"), "strikes"),
        Figure("runs resumed", report.content["resumed"], "runs"),
    ]
    for name, promises in _COUNTED.items():
        broken = sum(counts.pop(promise, 0) for promise in promises)
        figures.append(Figure(name, broken, "", goal="0", met=not broken))
    others = sum(counts.values())
    unwell = [
        report.content["stop_problem"],
        "" if report.content["quiet"] else "runs or schedules were left at the end",
    ]
    problems = [problem for problem in unwell if problem]
    return (
        *figures,
        Figure("other violations", others, "", goal="0", met=not others),
        Figure("problems of the session", len(problems), "", goal="0", met=not problems, note="; ".join(problems)),
    )


def _strikes(report: Report, what: str) -> int:
    return sum(each.get(what, 0) for each in report.content["strikes"].values())


def _times(report: Report) -> tuple[Figure, ...]:
    figures = []
    for role, seconds in report.content["resume_seconds"].items():
        if seconds["count"]:
            name, value = f"resume p95, {role}", seconds["p95"]
            if role in {ALL, LIVING}:
                goal = f"at most {RESUME_GOAL_SECONDS:g} s"
                figures.append(Figure(name, value, "s", goal=goal, met=value <= RESUME_GOAL_SECONDS))
            else:
                figures.append(Figure(name, value, "s", note=f"{seconds['count']} runs, max {seconds['max']} s"))
    return tuple(figures)


def _plot(report: Report) -> Plot:
    seconds = {role: each for role, each in report.content["resume_seconds"].items() if each["count"]}
    roles = tuple(seconds)
    series = tuple(
        Series(share, roles, tuple(each[share] for each in seconds.values())) for share in ("p50", "p95", "max")
    )
    return Plot("From a kill to the run going on", "what was killed", "seconds", series)
