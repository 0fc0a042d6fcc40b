"""The simulated fleet of machines."""

import asyncio
from dataclasses import replace

import pytest

from benchmarks.placement import Found, figures, measure


@pytest.fixture(scope="module")
def found():
    return asyncio.run(measure(4, 2_000, 50, lambda line: None))


def test_every_agent_is_placed_and_those_of_a_lost_machine_are_placed_again(found):
    assert found.hosts == 40
    assert 0 < found.lost < 2_000
    assert found.messages["hand_over"] <= found.messages["adopt"]


def test_the_spread_is_even_after_each_change(found):
    assert max(found.spread, found.spread_after_loss) <= 1.15
    assert found.spread_after_join <= 1.21


def test_costs_are_judged_by_how_they_grow(found):
    slow: Found = replace(found, placing=found.placing * 3)

    assert [each.met for each in figures(slow, found)[:4]] == [False, True, True, True]
    assert [each.met for each in figures(found, found)[:4]] == [True] * 4
