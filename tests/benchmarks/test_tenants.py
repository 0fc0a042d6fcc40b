from itertools import pairwise

from benchmarks.tenants import _times


def test_times_are_random_and_the_same_again_and_as_many_as_the_rate_says():
    times = [*_times(100.0, 10.0, 1)]

    assert times == [*_times(100.0, 10.0, 1)] != [*_times(100.0, 10.0, 2)]
    assert all(0 < before < after < 10 for before, after in pairwise(times))
    assert 900 < len(times) < 1_100
