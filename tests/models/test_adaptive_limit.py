import heapq
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlclaw_ray.domain.concurrency_limit import ConcurrencyLimit
from owlclaw_ray.models.adaptive_limit import AdaptiveLimit


def one(limit, model, seconds, in_use):
    group = limit.began(model, in_use)
    limit.answered(model, group, seconds, in_use)
    limit.ended(model, group)


def answer(limit, number, seconds=1.0, in_use=None):
    for _ in range(number):
        one(limit, "m", seconds, limit.now if in_use is None else in_use)


def test_the_limit_doubles_in_a_round_of_answers_until_the_provider_has_too_much_to_do():
    limit = AdaptiveLimit(ceiling=1_000, start=ConcurrencyLimit(10))

    answer(limit, 10)
    doubled = limit.now
    limit.refused(1.0, 2.0)

    assert (doubled, limit.now) == (20, 14)


def test_after_that_it_grows_by_one_a_round():
    limit = AdaptiveLimit(ceiling=1_000, start=ConcurrencyLimit(100))
    limit.refused(1.0, 2.0)
    before = limit.now

    answer(limit, 2 * (before + 2))

    assert limit.now == before + 2


def test_calls_of_one_round_lower_it_once():
    limit = AdaptiveLimit(ceiling=1_000, start=ConcurrencyLimit(100))

    for _ in range(50):
        limit.refused(1.0, 2.0)
    once = limit.now
    limit.refused(2.5, 3.0)

    assert (once, limit.now) == (70, 49)


def test_a_limit_that_is_not_used_does_not_grow():
    limit = AdaptiveLimit(ceiling=1_000, start=ConcurrencyLimit(100))

    answer(limit, 500, in_use=10)

    assert limit.now == 100


def test_answers_that_take_much_longer_than_usual_lower_it():
    limit = AdaptiveLimit(ceiling=100, start=ConcurrencyLimit(100))
    answer(limit, 100, seconds=1.0)

    answer(limit, 99, seconds=5.0)
    before = limit.now
    answer(limit, 1, seconds=5.0)

    assert (before, limit.now) == (100, 90)


def test_answers_that_take_longer_for_a_moment_do_not():
    limit = AdaptiveLimit(ceiling=100, start=ConcurrencyLimit(100))

    for _ in range(5):
        answer(limit, 300, seconds=1.0)
        answer(limit, 50, seconds=5.0)

    assert limit.now == 100


def test_a_group_of_calls_is_judged_before_the_slowest_of_it_have_ended():
    limit = AdaptiveLimit(ceiling=100, start=ConcurrencyLimit(100))
    answer(limit, 100, seconds=1.0)
    first = [limit.began("m", 100) for _ in range(50)]
    second = [limit.began("m", 100) for _ in range(51)]

    limits = []
    for group in first[:38] + second[:39]:
        limit.answered("m", group, 9.0, 100)
        limit.ended("m", group)
        limits.append(limit.now)

    assert limits == [100] * 76 + [90]


def test_a_limit_no_more_than_doubles_before_it_is_known_how_long_answers_take_then():
    limit = AdaptiveLimit(ceiling=1_000, start=ConcurrencyLimit(100))
    long = [limit.began("m", 100) for _ in range(100)]

    for _ in range(500):
        group = limit.began("m", 200)
        limit.answered("m", group, 1.0, 200)

    assert limit.now == 201
    for group in long:
        limit.ended("m", group)


def test_impatience_that_begins_before_any_group_was_judged_slows_down_nobody():
    limit = AdaptiveLimit(ceiling=100, start=ConcurrencyLimit(100))
    groups = [limit.began("m", 100) for _ in range(100)]
    for group in groups[:60]:
        limit.answered("m", group, 5.0, 100)
        limit.ended("m", group)

    limit.began("m", 41)
    limit.timed_out("m", began=100.0, now=100.5)

    assert limit.now == 100


@pytest.mark.parametrize("late", [False, True])
def test_calls_that_end_without_an_answer_prove_nothing_and_are_not_late(late):
    limit = AdaptiveLimit(ceiling=4_000, start=ConcurrencyLimit(100))
    answer(limit, 100, seconds=1.0, in_use=10)
    answer(limit, 100 if late else 0, seconds=9.0, in_use=10)
    before = limit.now

    for _ in range(20):
        for group in [limit.began("m", 600) for _ in range(600)]:
            limit.ended("m", group)
    after = limit.now
    for _ in range(500):
        group = limit.began("m", 200)
        limit.answered("m", group, 1.0, 200)

    assert after == before == (90 if late else 100)
    assert limit.now <= 201


def test_a_late_group_does_not_show_that_so_many_at_once_are_borne():
    limit = AdaptiveLimit(ceiling=4_000, start=ConcurrencyLimit(100))
    answer(limit, 100, seconds=1.0, in_use=10)

    answer(limit, 50, seconds=9.0, in_use=600)
    for _ in range(500):
        group = limit.began("m", 200)
        limit.answered("m", group, 1.0, 200)

    assert limit.now < 210  # twice what was judged, and one a round


def test_a_group_that_was_begun_with_far_more_calls_is_given_up():
    limit = AdaptiveLimit(ceiling=4_000, start=ConcurrencyLimit(1_000))
    answer(limit, 50, seconds=1.0)
    many = [limit.began("m", 1_000) for _ in range(1_000)]
    for group in many:
        limit.ended("m", group)
    before = limit.now

    answer(limit, 150, seconds=9.0, in_use=4)

    assert limit.now < before


def test_models_of_one_provider_let_it_grow_together():
    random = Random(1)
    limit, calls, order, now = AdaptiveLimit(ceiling=4_000), [], count(), 0.0
    while now < 240:
        while len(calls) < min(limit.now, 500):
            model = f"m{random.randrange(3)}"
            group = limit.began(model, len(calls) + 1)
            heapq.heappush(calls, (now + random.uniform(0.0, 40.0), next(order), now, model, group))
        in_use = len(calls)
        now, _, began, model, group = heapq.heappop(calls)
        limit.answered(model, group, now - began, in_use)
        limit.ended(model, group)

    assert limit.now >= 500


def test_a_few_slow_answers_among_many_do_not():
    limit = AdaptiveLimit(ceiling=100, start=ConcurrencyLimit(100))
    answer(limit, 60, seconds=1.0)

    for _ in range(20):
        answer(limit, 1, seconds=50.0)
        answer(limit, 4, seconds=1.0)

    assert limit.now == 100


def test_each_model_is_compared_with_itself():
    limit = AdaptiveLimit(ceiling=100, start=ConcurrencyLimit(100))

    for _ in range(100):
        one(limit, "small", 0.5, 100)
        one(limit, "large", 30.0, 100)
        one(limit, "large", 30.0, 100)

    assert limit.now == 100


def test_a_model_that_has_become_slower_for_good_is_usual_after_a_while():
    limit = AdaptiveLimit(ceiling=100, start=ConcurrencyLimit(100))
    answer(limit, 2_000, seconds=1.0)
    answer(limit, 1_000, seconds=5.0)
    lowest = limit.now

    answer(limit, 10_000, seconds=5.0)

    assert 40 < lowest < 65
    assert limit.now == 100


def test_who_waits_less_than_answers_usually_take_learns_nothing_of_the_provider():
    limit = AdaptiveLimit(ceiling=100, start=ConcurrencyLimit(100))
    answer(limit, 20, seconds=5.0)

    limit.timed_out("m", began=100.0, now=100.5)
    impatient = limit.now
    limit.timed_out("m", began=100.0, now=160.0)

    assert (impatient, limit.now) == (100, 70)


def test_a_provider_that_was_away_is_soon_trusted_as_before():
    limit = AdaptiveLimit(ceiling=1_000, start=ConcurrencyLimit(100))
    answer(limit, 20)
    for minute in range(1, 60):
        limit.timed_out("m", began=60.0 * minute + 1, now=60.0 * minute + 60)
    lowest = limit.now

    answer(limit, 80)

    assert (lowest, limit.now) == (4, 84)


EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.just("answered"), st.sampled_from("ab"), st.floats(0, 1e5), st.integers(1, 5_000), st.integers(1, 60)
        ),
        st.tuples(
            st.sampled_from(["refused", "timed_out"]), st.sampled_from("ab"), st.floats(0, 100), st.just(0), st.just(1)
        ),
    ),
    max_size=60,
)


@given(
    ceiling=st.integers(1, 5_000),
    start=st.integers(1, 5_000),
    threshold=st.none() | st.integers(1, 5_000),
    floor=st.integers(1, 10),
    events=EVENTS,
)
def test_whatever_calls_come_to_the_limit_keeps_within_its_bounds(ceiling, start, threshold, floor, events):
    limit, now = AdaptiveLimit(ceiling=ceiling, start=ConcurrencyLimit(start, threshold), floor=floor), 0.0
    assert min(floor, ceiling) <= limit.now <= ceiling
    for kind, model, seconds, in_use, times in events:
        for _ in range(times):
            now += 1.0
            match kind:
                case "answered":
                    one(limit, model, seconds, in_use)
                case "refused":
                    limit.refused(now - seconds, now)
                case _:
                    limit.timed_out(model, now - seconds, now)
            assert min(floor, ceiling) <= limit.now <= ceiling


def rounds(limit, capacity, number, now=0.0):
    """Make as many calls as the limit allows, over and over, of a provider that refuses what is too much; return the limits."""
    seen = []
    for _ in range(number):
        began, now, calls = now + 0.001, now + 1.0, limit.now
        for each in range(calls):
            if each < capacity:
                one(limit, "m", 1.0, calls)
            else:
                limit.refused(began, now)
        seen.append(limit.now)
    return seen, now


@settings(max_examples=max(10, settings.default.max_examples // 3))
@given(first=st.integers(8, 150), second=st.integers(8, 150))
def test_the_limit_finds_what_a_provider_bears_and_follows_it_when_that_changes(first, second):
    limit = AdaptiveLimit(ceiling=4_000)

    found, now = rounds(limit, first, 150)
    followed, _ = rounds(limit, second, 250, now)

    for capacity, limits in ((first, found[-50:]), (second, followed[-50:])):
        assert min(limits) >= min(0.6 * capacity, capacity - 4)
        assert max(limits) <= capacity + 2


def played(limit, draw, *, demand, seconds, capacity=5_000):
    """Return the limit after so long, as many calls being made at once as it allows, 64 of them together at first.

    Of more calls than the provider's capacity each takes the longer: they stand in its queue.
    """
    calls, order, now = [], count(), 0.0
    while now < seconds:
        while len(calls) < min(limit.now, demand):
            at_once = len(calls) + 1
            ends_at = now + draw() * max(1.0, at_once / capacity)
            heapq.heappush(calls, (ends_at, next(order), now, limit.began("m", at_once)))
        in_use = len(calls)
        now, _, began, group = heapq.heappop(calls)
        limit.answered("m", group, now - began, in_use)
        limit.ended("m", group)
    return limit.now


DRAWS = {
    "alike": lambda random: 10.0,
    "any time up to 40 s": lambda random: random.uniform(0.0, 40.0),
    "mostly short": lambda random: random.choice((0.01, 0.4, 2.0, 10.0, 30.0)),
    "log-normal": lambda random: 5 * random.lognormvariate(0.0, 1.0),
    "one in ten long": lambda random: 60.0 if random.random() < 0.1 else 2.0,
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
@pytest.mark.parametrize("seed", range(3))
def test_answers_of_different_length_are_no_sign_of_too_much_to_do(draw, seed):
    random = Random(seed)

    assert played(AdaptiveLimit(ceiling=4_000), lambda: draw(random), demand=500, seconds=240) >= 500


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_a_server_that_lets_calls_wait_gets_no_more_of_them_for_ever(draw):
    random = Random(1)
    limit = AdaptiveLimit(ceiling=4_000)

    highest = [played(limit, lambda: draw(random), demand=4_000, seconds=400, capacity=16) for _ in range(3)]

    assert max(highest) < 300


@pytest.mark.parametrize("refusals", [0, 1, 3])
def test_who_begins_with_what_another_one_learned_goes_on_as_that_one_would(refusals):
    limit = AdaptiveLimit(ceiling=1_000)
    answer(limit, 200)
    for each in range(refusals):
        limit.refused(2.0 * each + 1, 2.0 * each + 1.5)

    other = AdaptiveLimit(ceiling=1_000, start=limit.learned)
    grown = []
    for each in (limit, other):
        answer(each, 3 * each.now)
        grown.append(each.now)

    assert (other.learned.threshold is None) == (refusals == 0)
    assert grown[0] == pytest.approx(grown[1], rel=0.1)


@pytest.mark.parametrize("ceiling", [1, 2, 3])
def test_a_ceiling_below_the_floor_holds(ceiling):
    limit = AdaptiveLimit(ceiling=ceiling)
    first = limit.now

    limit.refused(1.0, 2.0)
    answer(limit, 100)

    assert (first, limit.now) == (ceiling, ceiling)
