"""Starting and stopping the runtime's actors on a Ray cluster."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
import ray
from ray._private import node, parameter  # no public names
from ray.actor import ActorHandle
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put
from ray.job_config import JobConfig
from typing_extensions import override

from actors.nodes import living_nodes
from actors.plan import HatchetPlan, RuntimePlan, ToolSlots
from actors.remote import (
    DIRECTORY,
    EXPORTER,
    GATEWAY,
    KEEPER,
    MCP_POOL,
    PARTS,
    ROOT,
    SCHEDULER,
    NamedActor,
    PartName,
    call_now,
    find,
    kill,
)
from actors.root import make_root
from actors.secrets import Entrusted, entrust
from actors.tool_task import slot_resources
from owlclaw_ray.domain.endpoint import RealModel
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.errors import RuntimeUnavailableError

NAMESPACE = "owlclaw"
_STORE_SECONDS = 120.0
_STOP_MARGIN = 15.0
_PAUSE = 0.5
_STARTED, _KV = b"started", b"owlclaw"
"""Where Ray's control store has what the runtime was started with."""

A = TypeVar("A")

logger = logging.getLogger(__name__)


def start_ray(*, address: str | None, temp_dir: Path, num_cpus: int | None, slots: ToolSlots) -> None:
    """Start a local Ray, or attach to the cluster at `address`. The environment must be set before.

    Raises RuntimeUnavailableError.
    """
    where: dict[str, Any] = {"address": address}
    if address is None:
        where = {
            "address": "local",
            "num_cpus": num_cpus or os.cpu_count(),
            "resources": slot_resources(slots),
            "include_dashboard": False,
            "_temp_dir": str(temp_dir),
        }
    try:
        with _without_helpers():
            ray.init(
                namespace=NAMESPACE,
                job_config=_OwnPackages(),
                log_to_driver=False,
                logging_level=logging.ERROR,
                **where,
            )
    except Exception as error:
        if address is not None:
            raise RuntimeUnavailableError(f"the Ray cluster at {address} cannot be joined: {error}") from error
        busy = f"{os.getloadavg()[0]:.0f} processes want to run on {os.cpu_count()} cores"
        raise RuntimeUnavailableError(f"Ray did not start ({busy}): {error}") from error


class _OwnPackages(JobConfig):
    """Has Ray not put the current folder before our packages on the import path of its workers, as it does otherwise.

    That is where an application may have an `actors` or a `serve` of its own. The workers that need the application put its folder on
    their import path themselves, once our packages are imported.
    """

    @override
    def _runtime_env_has_working_dir(self) -> bool:
        """Return True: what Ray asks before it adds the folder of the script, and the current one."""
        return True


@contextmanager
def _without_helpers() -> Iterator[None]:
    """Have Ray start no process that nothing here asks: what reads workers' logs for drivers that print them, what adds machines in a
    cloud, and the dashboard's server, which only counts usage where it is not included.

    `ray start` has options for the first two, `ray.init` of 2.60 for none.
    """
    made: Any = parameter.RayParams
    setattr(parameter, made.__name__, partial(made, include_log_monitor=False, no_monitor=True))
    start = node.Node.start_api_server
    setattr(node.Node, start.__name__, lambda _node, **_options: None)
    try:
        yield
    finally:
        setattr(parameter, made.__name__, made)
        setattr(node.Node, start.__name__, start)


class Cluster:
    """The actors of one runtime, seen from the process that started them."""

    def __init__(
        self,
        plan: RuntimePlan,
        tools: Sequence[ToolDefinition],
        hatchet: HatchetPlan | None = None,
        secrets: Mapping[Entrusted, str] = MappingProxyType({}),
        *,
        adopt: str = "",
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the runtime; only the actors that use one of the `secrets` get it. A runtime that runs already is stopped first, unless
        whoever started it gave the same name to `adopt` and all else is the same: that one is taken over.
        `check` is called before anything is made, not where a runtime is taken over; what it raises ends the start.
        """
        self._plan = plan
        told = {each.name: value for each, value in secrets.items()}
        digest = _digest(adopt, plan, tools, hatchet, told) if adopt else b""
        if not adopt or _internal_kv_get(_STARTED, namespace=_KV) != digest:
            self._stop_previous()
            _internal_kv_put(_STARTED, b"", overwrite=True, namespace=_KV)
            check()
        _internal_kv_put(_STARTED, digest, overwrite=True, namespace=_KV)
        entrust(secrets)
        self._root = make_root(plan, tools, hatchet)

    def wait_for_store(self) -> None:
        """Return once the store is open; raises what is wrong with it."""
        call_now(self._root, lambda root: root.hosts(), _STORE_SECONDS)
        self._part(KEEPER).call_now(lambda part: part.ready(), _STORE_SECONDS)

    def wait_for_agents(self) -> list[str]:
        """Return, once agents can be placed and models asked, and what ends from now on is exported, what does not work all the same."""
        exporter = (
            ""
            if self._plan.tracing is None
            else self._part(EXPORTER).call_now(lambda part: part.ready(), _STORE_SECONDS)
        )
        self._part(DIRECTORY).call_now(lambda part: part.hosts(), _STORE_SECONDS)
        self._part(GATEWAY).call_now(lambda part: part.ready(), _STORE_SECONDS)
        return [exporter] if exporter else []

    def warm_tools(self) -> None:
        """Return when what the first tool calls need is loaded; raises RuntimeUnavailableError if that takes minutes."""
        call_now(self._root, lambda root: root.warm_tools(), _STORE_SECONDS)

    def warm_models(self, models: Sequence[RealModel]) -> dict[str, str]:
        """Load what calls of real models need; return which of these lack a key, with the environment variables to set."""
        return self._part(GATEWAY).call_now(lambda gateway: gateway.warm(models), _STORE_SECONDS)

    def stop(self) -> None:
        """Fire no more schedules, let runs end within the plan's grace (the rest resume at the next start), close the store."""
        grace = self._plan.drain_seconds
        nodes = [node.node_id for node in living_nodes()]
        roots = [NamedActor(ROOT, self._plan.namespace, node) for node in nodes]
        keepers = [NamedActor(KEEPER, self._plan.namespace, node) for node in nodes]
        pools = [NamedActor(MCP_POOL, self._plan.namespace, node) for node in nodes if self._has_pool(node)]
        self._ask_each(roots, lambda root: root.retire())
        ending = [actor for part in (ROOT, *PARTS) for actor in self._found(part, nodes)]
        self._ask_each([self._part(SCHEDULER)], lambda scheduler: scheduler.stop())
        self._ask_each([self._part(DIRECTORY)], lambda directory: directory.stop(grace))
        self._ask_each(keepers, lambda keeper: keeper.stop())
        if find(EXPORTER, self._plan.namespace) is not None:
            self._ask_each([self._part(EXPORTER)], lambda exporter: exporter.stop())
        self._ask_each(pools, lambda pool: pool.stop())
        for actor in ending:
            kill(actor)
        entrust({})

    def _stop_previous(self) -> None:
        """Stop a runtime that outlived the process which started it, as it can on a cluster that was there before."""
        end = time.monotonic() + _STORE_SECONDS
        while self._is_still_running():
            self.stop()
            if time.monotonic() > end:
                raise RuntimeUnavailableError("the Ray cluster has a runtime already, and it cannot be stopped")
            time.sleep(_PAUSE)

    def _is_still_running(self) -> bool:
        nodes = [node.node_id for node in living_nodes()]
        return any(self._found(part, nodes) for part in (ROOT, *PARTS))

    def _has_pool(self, node_id: str) -> bool:
        return find(MCP_POOL, self._plan.namespace, node_id) is not None

    def _found(self, part: PartName[A], nodes: Sequence[str]) -> list[ActorHandle[A]]:
        found = [find(part, self._plan.namespace, node) for node in nodes]
        return [actor for actor in found if actor is not None]

    def _ask_each(self, parts: Sequence[NamedActor[A]], question: Callable[[A], Awaitable[object]]) -> None:
        for part in parts:
            try:
                part.call_now(question, self._plan.drain_seconds + _STOP_MARGIN)
            except RuntimeUnavailableError as error:
                logger.warning("the %s was not told to stop: %s", part.name, error)

    def _part(self, name: PartName[A]) -> NamedActor[A]:
        return NamedActor(name, self._plan.namespace)


def _digest(*parts: object) -> bytes:
    """Return what differs if any of the parts does, or the version of this package; the order of sets makes no difference."""
    encoded = msgspec.msgpack.encode((version("owlclaw-ray"), parts), order="deterministic", enc_hook=str)
    return hashlib.sha256(encoded).hexdigest().encode()
