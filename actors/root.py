"""The root: the detached owner of every actor of its node, and nothing else.

Ray ties a node's task workers to the root detached actor of their last task: agents that are children of one root share warm tool
workers, agents that are detached themselves do not. The root's children die with it, so a restarted root makes them anew and
all state comes from the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray.actor import ActorHandle

from actors.agent import AgentActor
from actors.directory import DirectoryActor
from actors.keeper import KeeperActor
from actors.logs import configure
from actors.model_gateway import ModelGatewayActor
from actors.plan import RuntimePlan
from actors.remote import DIRECTORY, GATEWAY, KEEPER, SCHEDULER, make
from actors.scheduler import SchedulerActor
from actors.tool_task import warm_tools
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.ids import RandomIds

_WARM_HOLD = 0.2


class RootActor:
    """Makes the parts of its node in __init__, so that a restart needs nobody's help."""

    def __init__(self, plan: RuntimePlan, tools: Sequence[ToolDefinition]) -> None:
        configure(plan.worker.log)
        self._plan, self._tools = plan, tuple(tools)
        self._ids = RandomIds()
        self._hosts: dict[str, ActorHandle[Any]] = {}
        self._parts = [
            self._part(KEEPER, KeeperActor),
            self._part(DIRECTORY, DirectoryActor),
            self._part(GATEWAY, ModelGatewayActor),
            self._part(SCHEDULER, SchedulerActor),
        ]

    async def spawn_host(self) -> tuple[str, ActorHandle[Any]]:
        """Return a new agent actor, which may not answer yet."""
        host_id = self._ids.make("host")
        self._hosts[host_id] = make(AgentActor, host_id, self._plan, self._tools, max_restarts=0)
        return host_id, self._hosts[host_id]

    async def hosts(self) -> Sequence[tuple[str, ActorHandle[Any]]]:
        """Return all agent actors, dead ones included until somebody forgets them."""
        return tuple(self._hosts.items())

    async def forget_host(self, host_id: str) -> None:
        """Give up the handle of a dead actor."""
        self._hosts.pop(host_id, None)

    async def warm_tools(self) -> None:
        """Have every tool slot import what calls need."""
        for _ in range(self._plan.tool_slots):
            warm_tools.remote(self._plan.worker, _WARM_HOLD)

    def _part(self, name: str, kind: type[Any]) -> ActorHandle[Any]:
        return make(kind, self._plan, name=name, namespace=self._plan.namespace, max_restarts=-1, max_task_retries=0)
