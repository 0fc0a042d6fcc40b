"""The variables that must be the same on all nodes of a cluster. This module must not import Ray."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from msgspec import Struct

from actors.environment import node_environment, token_file
from owlclaw_ray.domain.node import NodeVariable

_DIGITS = 12


class SharedVariable(Struct, frozen=True):
    """A variable, and what goes wrong where it differs."""

    name: str
    why: str
    secret: bool = False


SHARED_VARIABLES = (
    SharedVariable("RAY_AUTH_MODE", "nodes that ask for no token serve everybody, or are not let in"),
    SharedVariable("RAY_AUTH_TOKEN", "nodes with another token are not let in after their next start", secret=True),
    SharedVariable("RAY_health_check_period_ms", "a dead machine is noticed late once this node is the head"),
    SharedVariable("RAY_health_check_timeout_ms", "a dead machine is noticed late once this node is the head"),
    SharedVariable("RAY_health_check_failure_threshold", "a dead machine is noticed late once this node is the head"),
    SharedVariable("RAY_task_events_report_interval_ms", "the head keeps hundreds of MB of this node's tasks"),
    SharedVariable("RAY_worker_lease_timeout_milliseconds", "short tasks start later on this node"),
    SharedVariable("RAY_timeout_ms_task_wait_for_death_info", "who asks a part that died asks again a second later"),
    SharedVariable("RAY_worker_niceness", "on a busy machine this node's actors wait for everything else"),
    SharedVariable("RAY_idle_worker_killing_time_threshold_ms", "tool workers end too soon, or too late"),
    SharedVariable("RAY_SERVE_THROUGHPUT_OPTIMIZED", "requests through this node cost more"),
    SharedVariable("RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING", "a proxy here uses the replica of its own node alone"),
    SharedVariable(
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH",
        "a proxy here answers 404 instead of 503 while the API is not deployed, and its API reads large bodies at once",
    ),
    SharedVariable(
        "RAY_SERVE_ENABLE_HA_PROXY", "its API is not behind the HAProxy of the others, or it has the slow proxy"
    ),
    SharedVariable("RAY_SERVE_HAPROXY_MAXCONN", "the HAProxy here takes another number of connections"),
)
"""Those of `node_environment` that nodes are compared by, and those of HAProxy."""

NEEDED_VARIABLES = frozenset(each.name for each in SHARED_VARIABLES) & node_environment(0, json_logs=False).keys()
"""Those that each machine of a cluster must have, whatever the others have. Their values may be others than ours."""


def shared_variables(environ: Mapping[str, str], salt: bytes) -> tuple[NodeVariable, ...]:
    """Return the values in an environment; of secrets hashes, which only those with the same salt can be compared with."""
    values = {each.name: environ.get(each.name) for each in SHARED_VARIABLES}
    values["RAY_AUTH_TOKEN"] = values["RAY_AUTH_TOKEN"] or _token_in_file(environ)
    return tuple(NodeVariable(each.name, _shown(each, values[each.name], salt)) for each in SHARED_VARIABLES)


def _token_in_file(environ: Mapping[str, str]) -> str | None:
    """Return the token that Ray reads where no variable holds it; None if there is none, or Ray asks for none."""
    if environ.get("RAY_AUTH_MODE") != "token":
        return None
    try:
        return token_file(environ).read_text().strip() or None
    except OSError:
        return None


def _shown(variable: SharedVariable, value: str | None, salt: bytes) -> str | None:
    if value is None or not variable.secret:
        return value
    return f"hash {hmac.new(salt, value.encode(), hashlib.sha256).hexdigest()[:_DIGITS]}"
