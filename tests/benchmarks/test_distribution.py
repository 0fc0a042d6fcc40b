import pytest

from benchmarks.distribution import percentile


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([7], 99, 7),
        ([4, 1, 3, 2], 50, 2),
        ([4, 1, 3, 2], 75, 3),
        (range(1, 101), 95, 95),
        (range(1, 101), 99, 99),
        (range(1, 11), 95, 10),
        ([1, 2], 0, 1),
        ([1, 2], 100, 2),
    ],
)
def test_a_percentile_is_the_value_that_so_many_do_not_exceed(values, percent, expected):
    assert percentile(values, percent) == expected


def test_nothing_has_no_percentile():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
