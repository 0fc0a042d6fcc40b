"""How many replicas the ingress has, as Serve is told it."""

from __future__ import annotations

import pytest
from ray.serve.config import AutoscalingConfig

from serve import ingress_replicas
from serve.ingress_replicas import OneForEachNode, one_for_each_node


@pytest.fixture
def actors(monkeypatch):
    """The names of the actors that there are, by namespace."""
    found = {"ours": set(), "others": {"keeper@z"}}
    monkeypatch.setattr(ingress_replicas, "named", lambda *spaces: tuple(frozenset(found[each]) for each in spaces))
    return found


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        ({"keeper@a", "keeper@b", "root@a", "root@b", "root@c", "directory"}, 2),
        ({"keeper@a"}, 1),
        ({"root@a"}, 1),
        (set(), 1),
    ],
)
def test_there_is_a_replica_for_each_node_with_a_keeper_and_at_least_one(actors, names, wanted):
    actors["ours"] = names

    number, _ = OneForEachNode("ours")(None)

    assert number == wanted


def test_serve_asks_for_the_number_of_nodes_at_once_and_lets_no_node_have_two(actors):
    actors["ours"] = {"keeper@a", "keeper@b", "keeper@c"}
    options = one_for_each_node("ours")
    scaling = options["autoscaling_config"]

    assert options["max_replicas_per_node"] == 1
    assert isinstance(scaling, AutoscalingConfig)
    assert (scaling.min_replicas, scaling.upscale_delay_s) == (1, 0)
    assert scaling.downscale_delay_s > 0
    as_the_controller_has_it = scaling.policy.get_policy()
    as_the_controller_has_it(**scaling.policy.policy_kwargs)
    assert OneForEachNode(**scaling.policy.policy_kwargs)(None)[0] == 3
