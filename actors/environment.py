"""What must be in the environment before Ray is imported. This module must not import it."""

from __future__ import annotations


def ray_environment(tool_workers: int, *, alone: bool) -> dict[str, str]:
    """Return what must be in the environment before Ray starts: measured settings for many short tasks, and silence.

    `tool_workers`: how many tool tasks can run at once, those of quick tools included.
    `alone`: this node is the whole cluster, and Ray's processes keep to the loopback interface.
    """
    environment = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # a busy machine starts slowly; after it the start fails
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0.1",
        "RAY_idle_worker_killing_time_threshold_ms": "3600000",
        "RAY_num_workers_soft_limit": str(tool_workers + 4),
        "RAY_worker_lease_timeout_milliseconds": "20",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MALLOC_ARENA_MAX": "2",
    }
    if alone:
        environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray's name for it
    return environment
