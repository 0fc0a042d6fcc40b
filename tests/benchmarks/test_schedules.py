from dataclasses import replace

import pytest

from benchmarks.question import Size
from benchmarks.schedules import AMOUNTS, Amounts, Measured, broken_figures, figures, measure
from benchmarks.ticks import Findings

GOOD = Measured(2_000.0, 70.0, 1_500.0, 200.0, 20.0, 240.0, 1.0)


def test_the_question_is_asked_as_the_goal_has_it():
    assert (AMOUNTS[Size.FULL].stored, AMOUNTS[Size.FULL].trials) == (1_000_000, 100)


@pytest.mark.parametrize(
    ("full", "missed"),
    [
        (GOOD, []),
        (replace(GOOD, registrations_per_second=999.0), ["registrations_per_second, 5 stored"]),
        (replace(GOOD, firings_per_second=999.0), ["firings_per_second, 5 stored"]),
        (replace(GOOD, lateness_p99_ms=251.0), ["lateness_p99_ms, 5 stored"]),
    ],
)
def test_goals_are_met_or_missed_and_every_figure_stands_beside_the_empty_store(full, missed):
    found = figures(GOOD, full, 5)

    assert [figure.name for figure in found if figure.met is False] == missed
    assert all(figure.baseline is not None for figure in found)


def test_a_time_that_is_lost_misses_the_goal():
    lost, broken = broken_figures(Findings(3, due=9, accounted=8, broken=["x"]))

    assert (lost.value, lost.met) == (1, False)
    assert (broken.value, broken.met) == (1, False)
    assert all(figure.met for figure in broken_figures(Findings(3, due=9, accounted=9)))


async def test_a_store_is_measured_with_others_in_it(tmp_path):
    measured = await measure(tmp_path, 250, Amounts(250, 100, 60, 40, 0.2, 0))

    assert min(measured.registrations_per_second, measured.firings_per_second, measured.look_ms) > 0
    assert measured.lateness_p99_ms >= measured.lateness_p50_ms > 0
