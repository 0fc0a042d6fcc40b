"""The ingress: the HTTP API as a Ray Serve deployment."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection

from fastapi import FastAPI
from ray import serve as ray_serve
from ray.serve import Application

from actors.garbage import collect_rarely
from actors.logs import LogPlan, configure
from actors.plan import RuntimePlan
from actors.remote import KEEPER, find
from actors.runtime import ray_runtime
from actors.secrets import take_over
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.settings import HttpSettings
from serve.api import build_api
from serve.connections import connections, open_many_files
from serve.ingress_replicas import one_for_each_node
from serve.loopback import keep_replica_on_loopback
from serve.server_facts import NO_FACTS, ServerFacts
from serve.surfaces import surfaces

_SHUTDOWN_SECONDS = 2.0
_CHECK_INTERVAL = 2.0
"""Seconds until Serve notices that the process has died; that it is stuck is noticed by its node's root."""
_KEEPER_SECONDS, _PAUSE = 60.0, 0.1
_UNBOUNDED = 1_000_000
"""Requests that a replica takes at once. What would be too much is refused by the API itself, which knows what a request asks for:
Serve would have all others wait, probes among them.
"""


def serve_logging(form: str) -> dict[str, object]:
    """Return Serve's logging configuration: its warnings, as text or `json`, and no line for each request.

    A replica has that of its deployment, not the one that Serve was started with.
    """
    encoding = "JSON" if form == "json" else "TEXT"
    return {"encoding": encoding, "log_level": "WARNING", "enable_access_log": False}


def log_here(plan: LogPlan) -> None:
    """Have this replica log to its own standard error: Serve has given it one that leads to Serve's logger, which takes warnings of its
    own only, and drops what we say.
    """
    assert sys.__stdout__ is not None
    assert sys.__stderr__ is not None
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    configure(plan)


def wait_for_keeper(namespace: str) -> None:
    """Return once this node has a Keeper; raise RuntimeUnavailableError if it gets none, so that Serve tries another node."""
    end = time.monotonic() + _KEEPER_SECONDS
    while find(KEEPER, namespace) is None:
        if time.monotonic() > end:
            raise RuntimeUnavailableError(f"this node has no Keeper after {_KEEPER_SECONDS:g} s")
        time.sleep(_PAUSE)


def ingress(
    plan: RuntimePlan,
    http: HttpSettings,
    hosts: Collection[str] = (),
    *,
    alone: bool,
    keys_required: bool,
    replicas: int | None = 1,
    nodes: int = 1,
    beside: Collection[Application] = (),
    facts: ServerFacts = NO_FACTS,
) -> Application:
    """Return the application to run with Serve. The replica builds the API itself, so only the plan travels.

    `hosts`: names by which requests may call the server beside those of the settings.
    `alone`: this node is the whole cluster, and its replica keeps to the loopback interface, behind our HAProxy.
    `keys_required`: others than this machine may reach it.
    `replicas`: how many there are; None: one for each node of the cluster, also of those that join, of which there are `nodes` now.
    `beside`: what else the application consists of.
    `facts`: what operators may see of this start.
    """
    streams = -(-connections(http.streams).streams // (replicas or nodes))

    def api() -> FastAPI:
        take_over()
        log_here(plan.worker.log)
        collect_rarely()
        if alone:
            keep_replica_on_loopback()
        else:
            wait_for_keeper(plan.namespace)
        open_many_files(streams)
        runtime = ray_runtime(plan, keys_required=keys_required)
        return build_api(
            runtime,
            clock=SystemClock(),
            body_limit_bytes=http.body_limit_bytes,
            body_timeout_seconds=http.body_timeout_seconds,
            bodies_limit_bytes=http.bodies_limit_bytes,
            hosts=(*http.allowed_hosts, http.host, *hosts),
            origins=http.cors_origins,
            proxies=http.proxies if alone else None,
            is_local=not keys_required,
            streams=streams,
            surfaces=surfaces(),
            facts=facts,
        )

    deployment = ray_serve.deployment(
        name="ingress",
        max_ongoing_requests=_UNBOUNDED,
        graceful_shutdown_timeout_s=_SHUTDOWN_SECONDS,
        health_check_period_s=_CHECK_INTERVAL,
        ray_actor_options={"num_cpus": 0},
        logging_config=serve_logging(plan.worker.log.format),
        **(one_for_each_node(plan.namespace) if replicas is None else {"num_replicas": replicas}),
    )(ray_serve.ingress(api)())
    return deployment.bind(*beside)
