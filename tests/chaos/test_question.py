from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.chaos import question
from benchmarks.chaos.checker import Promise, Violation
from benchmarks.chaos.report import Report
from benchmarks.chaos.strikes import HARMLESS, schedule
from benchmarks.question import Size

CONTENT = {
    "accepted": 150,
    "resumed": 0,
    "strikes": {"keeper": {"killed": 3, "missed": 1}, "hung_agent": {"stopped": 2, "continued": 2}},
    "resume_seconds": {},
    "quiet": True,
    "stop_problem": "",
}


@pytest.fixture
def answered(monkeypatch):
    """The figures, by name, of a session that showed this."""

    def answer(*violations, **content):
        report = Report([*violations], {**CONTENT, **content})
        monkeypatch.setattr(question, "trial", lambda *_: report)
        monkeypatch.setattr(question, "summary", lambda _: "")
        return {each.name: each for each in question.answer(Size.SMOKE, lambda _: None).figures}

    return answer


def test_kills_are_told_from_what_was_stopped_or_missed(answered):
    figures = answered()

    assert (figures["kills"].value, figures["processes stopped for a while"].value) == (3, 2)
    assert all(each.met for each in figures.values() if each.goal)


def test_a_violation_is_a_goal_that_is_missed(answered):
    figures = answered(Violation(Promise.ONCE_REPEATED, "twice"), Violation(Promise.LEDGER_UNBROKEN, "broken"))

    assert [name for name, each in figures.items() if each.met is False] == [
        "repeated once-effects",
        "other violations",
    ]


@pytest.mark.parametrize(
    ("fact", "told"),
    [
        ({"stop_problem": "owlclaw up ended with code 1"}, "owlclaw up ended with code 1"),
        ({"quiet": False}, "runs or schedules were left at the end"),
    ],
)
def test_a_session_that_did_not_end_in_order_misses_a_goal(answered, fact, told):
    problems = answered(**fact)["problems of the session"]

    assert (problems.value, problems.met, problems.note) == (1, False, told)


def test_the_full_size_kills_two_hundred_times():
    plan = question._PLANS[Size.FULL]

    roles = Counter(strike.role for strike in schedule(plan.seed, plan.runs, plan.kills, plan.roles))

    assert plan.runs == 5_000
    assert sum(count for role, count in roles.items() if role not in HARMLESS) >= 200
