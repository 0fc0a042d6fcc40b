from dataclasses import replace
from datetime import UTC, datetime

import pytest

from benchmarks.asking import Answered, Asking
from benchmarks.machine import Machine
from benchmarks.question import Answer, Figure, Size
from benchmarks.report import Report, as_markdown, number

MACHINE = Machine(2, 23.4, "a slow one", "Linux", "3.11.2", False, "3.40.1", {"ray": "2.60.0"}, "abc+changes")


def report(*figures):
    outcome = Answered(Asking("runs", Size.FULL), "Runs.", 12.5, Answer("runs", figures))
    return Report(
        "python -m benchmarks runs",
        datetime(2026, 11, 22, 1, 2, tzinfo=UTC),
        MACHINE,
        (0.1, 0, 0),
        (2, 1, 1),
        [outcome],
    )


def rows(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def test_a_report_says_when_where_and_on_what():
    text = as_markdown(report())

    assert text.startswith(
        "# python -m benchmarks runs\n\n2026-11-22 01:02 UTC, commit abc+changes. 2 cores (a slow one)"
    )
    assert "Python 3.11.2, Ray 2.60.0. Load average 0.1 / 0 / 0 before, 2 / 1 / 1 after." in text


def test_a_report_says_that_each_process_compiled_what_it_imported():
    text = as_markdown(replace(report(), machine=replace(MACHINE, compiles=True)))

    assert "Python 3.11.2, which compiled in each process, Ray 2.60.0." in text


def test_a_goal_that_was_missed_is_said_as_clearly_as_one_that_was_met():
    text = as_markdown(
        report(
            Figure("rate", 30.0, "runs/s", goal="at least 40", met=False),
            Figure("cpu", 5.0, "ms", goal="≤ 6", met=True),
        )
    )

    assert rows(text)[2:] == [
        "| runs | rate | 30.0 runs/s |  |  | at least 40 | **no** |",
        "| runs | cpu | 5.00 ms |  |  | ≤ 6 | yes |",
    ]


def test_the_baseline_and_the_note_of_a_figure_are_explained_below_the_table():
    text = as_markdown(report(Figure("rate", 3, "", baseline=4, baseline_is="bare Ray", note="one|two")))

    assert "- rate: baseline: bare Ray; one|two" in text
    assert rows(text)[2] == "| runs | rate | 3.00 | 4.00 | 0.75 |  |  |"


def test_cells_cannot_break_the_table():
    assert rows(as_markdown(report(Figure("a|b", 1, ""))))[2].count("|") == 8


@pytest.mark.parametrize(
    ("value", "shown"),
    [(12345.6, "12,346"), (99.96, "100.0"), (12.34, "12.3"), (1.234, "1.23"), (0.01234, "0.012"), (0, "0.000")],
)
def test_numbers_have_the_digits_that_matter(value, shown):
    assert number(value) == shown
