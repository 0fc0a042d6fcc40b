"""What must be in the environment before Ray is imported. This module must not import it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

IDLE_WORKER_SECONDS = 300
"""How long a tool worker beyond those that are always kept stays without work: making one costs as much as keeping it for some minutes."""

_UNSEEN = {
    "RAY_task_events_report_interval_ms": "0",  # the GCS keeps the last 100,000 tasks, hundreds of MB, for its dashboard
    "RAY_enable_timeline": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
    "REPORTER_UPDATE_INTERVAL_MS": "60000",
    "LOG_NAME_UPDATE_INTERVAL_S": "3600",
}
"""What Ray collects for its dashboard, which does not run, and for drivers that print their workers' output, which ours does not."""

_ALONE = {
    "RAY_raylet_report_resources_period_milliseconds": "1000",
    "RAY_raylet_check_gc_period_milliseconds": "1000",
    "RAY_gcs_pull_resource_loads_period_milliseconds": "10000",
    "RAY_report_worker_backlog_interval_ms": "5000",
    "RAY_object_manager_timer_freq_ms": "1000",
    "RAY_local_fs_monitor_interval_ms": "5000",
    "RAY_io_context_monitor_probe_interval_ms": "10000",
}
"""What a raylet and its GCS tell each other many times a second for the sake of other nodes."""


_JSON_LOGS = {"RAY_BACKEND_LOG_JSON": "1", "JSON_LOGS": "true"}
"""Has Ray's own processes and litellm, which makes its loggers after ours, log JSON."""


_OF_A_CLUSTER = {
    "RAY_AUTH_MODE": "token",  # a Ray that is alone has it by itself
    "RAY_task_events_report_interval_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING": "0",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve.absent.of_proxy",
}
"""Who may join, how soon a dead machine is noticed, that a proxy sends requests to the replicas of all machines, not to that of its
own alone, which takes any number, and what it answers while there is none.
"""


def ray_environment(warm_workers: int, *, alone: bool, json_logs: bool = False) -> dict[str, str]:
    """Return what must be in the environment before Ray starts: measured settings for many short tasks, few wake-ups, and silence.

    `warm_workers`: how many idle tool workers are kept.
    `alone`: this node is the whole cluster, and Ray's processes keep to the loopback interface.
    `json_logs`: whatever is logged is JSON.
    """
    environment = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # a busy machine starts slowly; after it the start fails
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0.1",
        "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
        "RAY_idle_worker_killing_time_threshold_ms": str(1_000 * IDLE_WORKER_SECONDS),
        "RAY_num_workers_soft_limit": str(warm_workers),
        "RAY_worker_lease_timeout_milliseconds": "20",
        "RAY_timeout_ms_task_wait_for_death_info": "50",  # to tell died from unavailable: who asked a dead part asks again sooner
        "RAY_worker_niceness": "5",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MALLOC_ARENA_MAX": "2",
    }
    if json_logs:
        environment |= _JSON_LOGS
    if alone:
        environment |= _UNSEEN | _ALONE
        environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray's name for it
    return environment


HA_PROXY = {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_HAPROXY_MAXCONN": "14096"}
"""Has Serve put HAProxy in front of its replicas instead of its own proxy, which passes a tenth of the requests. HAProxy reaches the
replicas by ports of the machines' own addresses: it is for clusters whose API listens on all interfaces. So many connections are the
default of http.streams, and 4,096.
"""


def node_environment(warm_workers: int, *, json_logs: bool) -> dict[str, str]:
    """Return what must be in the environment of `ray start` on each machine of a cluster, with the parameters of `ray_environment`."""
    return ray_environment(warm_workers, alone=False, json_logs=json_logs) | _OF_A_CLUSTER


def token_file(environ: Mapping[str, str]) -> Path:
    """Return where Ray looks for the token of a cluster, if no variable holds it."""
    written = environ.get("RAY_AUTH_TOKEN_PATH")
    return Path(written) if written else Path.home() / ".ray" / "auth_token"


def attached_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what must be in the environment of a driver of a cluster that is there: whoever has its token shows it.

    So does `ray start`. What somebody has set stays as it is.
    """
    if "RAY_AUTH_MODE" in environ:
        return {}
    return {"RAY_AUTH_MODE": "token"} if environ.get("RAY_AUTH_TOKEN") or token_file(environ).is_file() else {}
