from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.chaos.strikes import SHARES, Role, schedule
from benchmarks.chaos.workload import Manner, Shape, orders


def test_a_seed_gives_the_same_strikes_and_the_same_triggers_and_another_seed_others():
    assert schedule(7, 500, 40) == schedule(7, 500, 40)
    assert schedule(7, 500, 40) != schedule(8, 500, 40)
    assert list(orders(7, 50)) == list(orders(7, 50))
    assert [order.payload for order in orders(7, 50)] != [order.payload for order in orders(8, 50)]


def test_triggers_do_not_depend_on_how_many_follow():
    assert list(orders(7, 50)) == list(orders(7, 80))[:50]


def test_strikes_come_in_the_order_of_the_runs_that_they_wait_for():
    strikes = schedule(7, 500, 40)

    waits = [strike.after_runs for strike in strikes]
    assert waits == sorted(waits)
    assert waits[0] >= 0
    assert waits[-1] <= 500
    assert [strike.number for strike in strikes] == list(range(40))


def test_strikes_come_behind_what_is_submitted_ahead_of_them():
    waits = [strike.after_runs for strike in schedule(7, 500, 40, ahead=300)]

    assert waits == sorted(waits)
    assert 300 <= waits[0] < 310
    assert 480 < waits[-1] <= 500


def test_model_calls_take_any_time_up_to_the_longest():
    made = orders(7, 200, Shape(longest=40.0))

    times = [turn["latency"] for order in made for turn in order.payload["turns"]]
    assert all(0 <= each <= 40 for each in times)
    assert all(any(low <= each < low + 10 for each in times) for low in (0, 10, 20, 30))
    assert len(set(times)) > len(times) / 2


def test_every_role_is_hit_as_often_as_its_share_says():
    counts = Counter(strike.role for strike in schedule(7, 5_000, 200))

    assert counts.total() == 200
    assert set(counts) == set(SHARES)
    assert counts == {role: 2 * share for role, share in SHARES.items()}


@pytest.mark.parametrize("kills", [1, 5, 13])
def test_few_strikes_are_shared_out_without_a_rest(kills):
    roles = (Role.AGENT, Role.KEEPER)

    strikes = schedule(7, 100, kills, roles)

    assert len(strikes) == kills
    assert {strike.role for strike in strikes} <= set(roles)


def test_keys_are_unique_and_clients_behave_in_every_manner():
    made = list(orders(7, 500))

    assert len({order.key for order in made}) == 500
    assert {order.manner for order in made} == set(Manner)
    assert {order.agent.partition(":")[0] for order in made} == {"crowd", "solo"}
