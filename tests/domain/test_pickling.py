from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

import pytest

from owlclaw_ray.domain.pickling import fast_pickle


@fast_pickle
@dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: tuple[str, ...] = ()


@fast_pickle
@dataclass(frozen=True, slots=True)
class Single:
    value: object = None


@fast_pickle
@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@pytest.mark.parametrize("fact", [Nothing(), Pair(1, ("a", "b")), Pair(2), Single(), Single((1, 2)), Single(Pair(3))])
def test_a_fact_comes_back_equal(fact):
    assert pickle.loads(pickle.dumps(fact)) == fact


def test_a_fact_that_came_back_is_as_frozen_as_before():
    back = pickle.loads(pickle.dumps(Pair(1)))

    with pytest.raises(AttributeError):
        back.left = 2
    assert replace(back, left=2) == Pair(2)


def test_a_state_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="shorter"):
        Pair(1).__setstate__((1,))
