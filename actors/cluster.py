"""Starting and stopping the runtime's actors on a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import ray

from actors.plan import RuntimePlan
from actors.remote import DIRECTORY, GATEWAY, KEEPER, ROOT, SCHEDULER, Named, ask_now, make, tell
from actors.root import RootActor
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.errors import RuntimeUnavailableError

NAMESPACE = "owlclaw"
_STORE_SECONDS = 120.0
_STOP_MARGIN = 15.0


def start_ray(*, address: str | None, temp_dir: Path, num_cpus: int | None, tool_slots: int) -> None:
    """Start a local Ray, or attach to the cluster at `address`. The environment must be set before."""
    quiet: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": "ERROR"}
    if address is not None:
        ray.init(address=address, **quiet)
        return
    ray.init(
        address="local",
        num_cpus=num_cpus or os.cpu_count(),
        resources={"tool_slots": tool_slots},
        include_dashboard=False,
        _temp_dir=str(temp_dir),
        **quiet,
    )


class Cluster:
    """The actors of one runtime, seen from the process that started them."""

    def __init__(self, plan: RuntimePlan, tools: Sequence[ToolDefinition]) -> None:
        self._plan = plan
        self._root = make(
            RootActor,
            plan,
            tuple(tools),
            name=ROOT,
            namespace=plan.namespace,
            lifetime="detached",
            max_restarts=-1,
        )

    def wait_for_store(self) -> None:
        """Return once the store is open; raises what is wrong with it."""
        ask_now(self._root, "hosts", seconds=_STORE_SECONDS)
        self._part(KEEPER).ask_now("ready", seconds=_STORE_SECONDS)

    def wait_for_agents(self) -> None:
        """Return once agents can be placed and models asked."""
        self._part(DIRECTORY).ask_now("hosts", seconds=_STORE_SECONDS)
        self._part(GATEWAY).ask_now("ready", seconds=_STORE_SECONDS)

    def warm_tools(self) -> None:
        """Begin to load what the first tool calls will need; returns at once."""
        tell(self._root, "warm_tools")

    def warm_models(self, models: Sequence[str]) -> dict[str, str]:
        """Load what calls of real models need; return which of these lack a key, with the environment variables to set."""
        return cast("dict[str, str]", self._part(GATEWAY).ask_now("warm", models, seconds=_STORE_SECONDS))

    def stop(self) -> None:
        """Fire no more schedules, let runs end within the plan's grace (the rest resume at the next start), close the store."""
        grace = self._plan.drain_seconds
        for name, method, arguments in (
            (SCHEDULER, "stop", ()),
            (DIRECTORY, "stop", (grace,)),
            (KEEPER, "stop", ()),
        ):
            try:
                self._part(name).ask_now(method, *arguments, seconds=grace + _STOP_MARGIN)
            except RuntimeUnavailableError:
                continue
        ray.kill(self._root, no_restart=True)

    def _part(self, name: str) -> Named:
        return Named(name, self._plan.namespace)
