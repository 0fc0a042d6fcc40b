from __future__ import annotations

import pytest

from owlclaw_ray.kernel.cpu_throttle import LEAST, MOST, CpuThrottle

WORK = 0.04


def share_of(rest, cores=2):
    return WORK / (WORK + rest) / cores


def after(share, times, *, waited):
    rests = [share.rest_after(WORK, waited) for _ in range(times)]
    return share_of(rests[-1])


def test_it_takes_the_least_until_it_is_known_that_the_cores_are_idle():
    assert after(CpuThrottle(2), 1, waited=WORK) == pytest.approx(LEAST)


def test_it_takes_more_and_more_of_cores_that_nobody_wants_up_to_a_bound():
    share = CpuThrottle(2)

    assert LEAST < after(share, 2, waited=0.0) < MOST
    assert after(share, 20, waited=0.0) == pytest.approx(MOST)


def test_it_gives_way_within_a_few_steps_when_others_want_the_cores():
    share = CpuThrottle(2)
    after(share, 20, waited=0.0)

    assert after(share, 4, waited=WORK / 2) == pytest.approx(LEAST)


def test_a_glance_at_the_store_says_nothing_about_the_machine():
    share = CpuThrottle(2)
    after(share, 20, waited=0.0)
    share.rest_after(0.0004, 0.01)

    assert after(share, 1, waited=0.0) == pytest.approx(MOST)


def test_the_fuller_the_room_for_what_waits_the_more_it_takes_of_cores_that_others_want():
    rests = [CpuThrottle(2).rest_after(WORK, WORK, fullness) for fullness in (0.0, 0.1, 0.3, 0.5, 1.0)]

    shares = [share_of(rest) for rest in rests]
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(LEAST)
    assert shares[-2:] == pytest.approx([MOST, MOST])


@pytest.mark.parametrize("runs_per_second", [100, 244, 600, 1_000])
def test_ten_minutes_at_full_load_fill_half_of_the_room_at_most(runs_per_second):
    """On two cores that everybody wants, with 0.47 ms of work for a trace, and room for 100,000."""
    share, room, waiting, longest, now = CpuThrottle(2), 100_000, 0.0, 0.0, 0.0
    while now < 600.0:
        taken = min(waiting, 128.0)
        worked = 0.00047 * taken
        lasted = max(worked + share.rest_after(worked, worked, waiting / room), 0.05)
        waiting += runs_per_second * lasted - taken
        longest, now = max(longest, waiting), now + lasted

    assert longest <= room / 2


@pytest.mark.parametrize("cores", [1, 64])
def test_its_share_is_of_all_cores(cores):
    rest = CpuThrottle(cores).rest_after(WORK, WORK)

    assert rest == 0.0 if cores == 64 else share_of(rest, cores) == pytest.approx(LEAST)
