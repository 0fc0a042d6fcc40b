"""The runtime as an application of Ray Serve, for `serve deploy` and KubeRay: `import_path: serve.declarative:application`."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import ray
from pydantic import Field, ValidationError
from ray import serve as ray_serve
from ray.serve import Application
from ray.serve.context import _get_global_client
from ray.serve.schema import ApplicationStatus

from actors.cluster import Cluster
from actors.node_files import check_files, files_of
from actors.nodes import check_nodes, living_nodes
from actors.plan import RuntimePlan
from actors.runtime import PartsHealth
from actors.secrets import take_over
from owlclaw_ray.configuration.problems import model_problems
from owlclaw_ray.configuration.section import NonEmpty, Section
from owlclaw_ray.configuration.server_location import DEFAULT_HOST, FILE_NAME, is_loopback
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.errors import ConfigurationError, Problem, RetryableError, RuntimeUnavailableError
from owlclaw_ray.secrets.keyring import written_keys
from owlclaw_ray.settings import load_runtime_settings
from serve.deployment import ingress, log_here
from serve.preflight import check_data_dir, check_store, exclusive_data_dir, prepare
from serve.runtime_plan import entrusted_of, hatchet_plan, plan_of

STEWARD = "steward"
_ON_A_CLUSTER = {"OWLCLAW_RAY__ADDRESS": "auto"}
_MARGIN = 60.0
"""Seconds that a stop may take beside the grace of the runs."""
_PAUSE = 1.0
_CHECK_INTERVAL, _CHECK_SECONDS = 10.0, 30.0
_GOING = frozenset({ApplicationStatus.DELETING, ApplicationStatus.NOT_STARTED})

logger = logging.getLogger(__name__)


class ApplicationArguments(Section):
    """The `args` of the application."""

    config: NonEmpty
    """The path of owlclaw.yaml, the same on every machine."""
    variables: dict[NonEmpty, str | int | float] = Field(default_factory=dict)
    """Settings over those of the file, by the names of their variables, such as OWLCLAW_STORE_URL."""
    replicas: Annotated[int, Field(ge=1)] | None = None
    """Of the ingress; None: one for each machine, also for those that join later."""


def application(args: JsonObject) -> Application:
    """Return the application: the ingress, and the Steward, which starts the runtime and stops it.

    Raises ConfigurationError with everything that is wrong with the arguments, the settings, the application and the definitions.
    """
    try:
        wanted = ApplicationArguments.model_validate(args)
    except ValidationError as error:
        where = lambda path: ".".join(("args", *map(str, path)))  # noqa: E731
        raise ConfigurationError(list(model_problems(error, ApplicationArguments, where))) from error
    path = Path(wanted.config)
    if path.name != FILE_NAME or not path.is_file():
        fix = f"write the path of the application's {FILE_NAME}, which every machine has, such as /srv/owlclaw/{FILE_NAME}"
        what = f"is no file named {FILE_NAME}" if path.name != FILE_NAME else "is not there"
        raise ConfigurationError([Problem("args.config", f"{path} {what}", fix)])
    variables = {name: str(value) for name, value in wanted.variables.items()} | _ON_A_CLUSTER
    prepared = prepare(path.parent, _environ() | variables)
    plan = plan_of(prepared.settings, prepared.tracing)
    steward = ray_serve.deployment(
        name=STEWARD,
        num_replicas=1,
        graceful_shutdown_timeout_s=plan.drain_seconds + _MARGIN,
        graceful_shutdown_wait_loop_s=0.1,
        health_check_period_s=_CHECK_INTERVAL,
        health_check_timeout_s=_CHECK_SECONDS,
        ray_actor_options={"num_cpus": 0},
    )(Steward).bind(plan, prepared.tools, str(path.parent), variables)
    nodes = len(living_nodes()) if ray.is_initialized() else 1
    return ingress(
        plan,
        prepared.settings.http,
        alone=False,
        keys_required=not (served_at := _serves_at()) or not is_loopback(served_at),
        replicas=wanted.replicas,
        nodes=nodes,
        beside=[steward],
        facts=prepared.facts,
    )


def _serves_at() -> str:
    """Return the address at which Serve's proxies listen; empty if that cannot be told."""
    client = _get_global_client(raise_if_no_controller_running=False) if ray.is_initialized() else None
    return "" if client is None else client.http_config.host or DEFAULT_HOST


class Steward:
    """Starts the runtime, tells Serve whether its parts answer, and drains and stops it when the application is deleted.

    The runtime outlives it: a Steward that Serve makes anew takes the runtime over, unless the application was changed. Then it stops
    the old one first.
    """

    def __init__(
        self, plan: RuntimePlan, tools: Sequence[ToolDefinition], folder: str, variables: Mapping[str, str]
    ) -> None:
        take_over(starts_runtime=True)
        log_here(plan.worker.log)
        self._plan, self._tools, self._folder, self._variables = plan, tools, Path(folder), variables
        self._app_name: str = ray_serve.get_replica_context().app_name
        self._health = PartsHealth(plan.namespace)
        self._held = ExitStack()
        self._cluster: Cluster | None = None
        self._leaving = threading.Event()
        self._starting = asyncio.create_task(asyncio.to_thread(self._start))

    async def check_health(self) -> None:
        """Return if all parts of the runtime answer. Serve calls it, the first time before the application is served; that call waits
        for the start, and raises what is wrong.
        """
        await asyncio.shield(self._starting)
        health = await self._health()
        if not health.ready:
            wrong = ", ".join(f"{part}: {answer}" for part, answer in health.parts.items() if answer != "ok")
            raise RuntimeUnavailableError(f"not ready: {wrong}")

    async def __del__(self) -> None:
        """Serve's signal that this replica ends: with the application, or alone."""
        self._leaving.set()
        await asyncio.wait([self._starting])
        try:
            if self._cluster is not None and await asyncio.to_thread(self._is_deleted):
                logger.info("the application is deleted: runs have %g s to end", self._plan.drain_seconds)
                await asyncio.to_thread(self._cluster.stop)
        finally:
            self._held.close()

    def _start(self) -> None:
        environ = _environ() | dict(self._variables)
        settings = load_runtime_settings(self._folder, environ)
        check_nodes(settings.store_url)
        check_data_dir(settings)
        if settings.store_url.startswith("sqlite"):
            self._lock(settings.data_dir)
            check_store(settings)
        self._check_alone()
        secrets = entrusted_of(settings, written_keys(settings.secrets.key_file, environ))
        self._cluster = Cluster(
            self._plan,
            self._tools,
            hatchet_plan(settings),
            secrets,
            adopt=self._app_name,
            check=self._check_files,
        )
        self._until_it_works(self._cluster.wait_for_store)
        self._until_it_works(self._cluster.wait_for_agents)

    def _lock(self, data_dir: Path) -> None:
        """Keep others from the file of the store; wait for a predecessor that is ending."""
        left = int(self._plan.drain_seconds + _MARGIN)
        while True:
            try:
                self._held.enter_context(exclusive_data_dir(data_dir))
            except ConfigurationError:
                left -= 1
                if left <= 0 or self._leaving.wait(_PAUSE):
                    raise
            else:
                return

    def _check_alone(self) -> None:
        """Raise ConfigurationError if another application of this Ray cluster is a runtime."""
        others = [
            name
            for name, each in ray_serve.status().applications.items()
            if name != self._app_name and each.status not in _GOING and STEWARD in each.deployments
        ]
        if others:
            what = f"{others[0]} is a runtime already, and a Ray cluster has one"
            raise ConfigurationError([Problem(f"application {self._app_name}", what, "delete one of the two")])

    def _check_files(self) -> None:
        """Raise ConfigurationError if the machines lack files that the runtime needs, RuntimeUnavailableError if the start is given up."""
        problems: list[Problem] | None = None

        def look() -> None:
            nonlocal problems
            problems = check_files(files_of(self._plan), living_nodes())

        self._until_it_works(look)
        if problems is None:
            raise RuntimeUnavailableError("the application ends before it was known which files the machines have")
        if problems:
            raise ConfigurationError(problems)

    def _until_it_works(self, work: Any) -> None:
        """Do it until it does not fail for a reason that may pass, such as a database that does not answer."""
        while not self._leaving.is_set():
            try:
                work()
            except RetryableError as error:
                logger.warning("the runtime is starting; it waits: %s", error)
                self._leaving.wait(_PAUSE)
            else:
                return

    def _is_deleted(self) -> bool:
        found = ray_serve.status().applications.get(self._app_name)
        return found is None or found.status in _GOING


def _environ() -> dict[str, str]:
    return dict(os.environ)  # noqa: TID251 - settings are read from it, as `owlclaw up` does
