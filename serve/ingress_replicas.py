"""How many replicas the ingress of a cluster has: one for each node, also for those that join later."""

from __future__ import annotations

from typing import Any

from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from actors.remote import KEEPER, named

_MOST_REPLICAS = 1_000
_LEAVE_SECONDS = 30.0
"""How long a node has to be without a Keeper before Serve stops a replica for it: one that is restarted is back sooner."""


class OneForEachNode:
    """Says that there is to be one replica for each node that has a Keeper, through which its replica reads and writes.

    Serve's controller asks it in each round of its control loop. It gets the class by value, which a Struct does not survive.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __call__(self, _context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        """Return the number, and nothing that Serve should keep for the next call."""
        [names] = named(self._namespace)
        return max(1, sum(name.startswith(f"{KEEPER}@") for name in names)), {}


def one_for_each_node(namespace: str) -> dict[str, Any]:
    """Return the options of a deployment that give each node one replica, for Keepers of that namespace."""
    make_policy: Any = AutoscalingPolicy  # it has no types
    policy = make_policy(policy_function=OneForEachNode, policy_kwargs={"namespace": namespace})
    scaling = AutoscalingConfig(
        min_replicas=1,
        max_replicas=_MOST_REPLICAS,
        upscale_delay_s=0,
        downscale_delay_s=_LEAVE_SECONDS,
        policy=policy,
    )
    return {"max_replicas_per_node": 1, "autoscaling_config": scaling}
