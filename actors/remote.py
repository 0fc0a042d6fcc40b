"""The only place that makes and calls actors, and what their deaths mean to the one who asks. (Tasks: `tool_task`.)

A Ray error is no proof that the call did not happen. Everything asked through here is therefore safe to ask again.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import ray
from msgspec import Struct
from ray._private.state import actors as actor_table  # ray.util.state asks the dashboard, which may not run
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.kernel.packing import pack, unpack

ROOT, KEEPER, GATEWAY, MCP_POOL = "root", "keeper", "gateway", "mcp_pool"
"""Parts that every node has of its own; the last only if there are MCP servers."""
DIRECTORY, SCHEDULER, EXPORTER = "directory", "scheduler", "exporter"
"""Parts of which the whole cluster has one; the last only if traces are exported."""
PARTS = (EXPORTER, SCHEDULER, DIRECTORY, MCP_POOL, GATEWAY, KEEPER)
_NODE_PARTS = frozenset({ROOT, KEEPER, GATEWAY, MCP_POOL})

CALLS_AT_ONCE = 10_000
"""Concurrent calls of an actor: most of them only wait."""


def here() -> str:
    """Return the id of the node that this process runs on."""
    node_id: str = ray.get_runtime_context().get_node_id()
    return node_id


def restarted() -> bool:
    """Return whether this actor lived before, in another process."""
    again: bool = ray.get_runtime_context().was_current_actor_reconstructed
    return again


def full_name(part: str, node_id: str = "") -> str:
    """Return what a part is called in Ray; the part of this node unless another one is named."""
    return f"{part}@{node_id or here()}" if part in _NODE_PARTS else part


def make(
    kind: type[Any], *arguments: object, node_id: str = "", movable: bool = False, **options: object
) -> ActorHandle[Any]:
    """Return a new actor of that class on that node (this one by default), which takes no CPU from Ray's accounts.

    It may not answer yet. A movable one is started again elsewhere when its node is lost.
    """
    place = NodeAffinitySchedulingStrategy(node_id or here(), soft=movable)
    actor: ActorHandle[Any] = (
        ray.remote(kind)
        .options(num_cpus=0, max_concurrency=CALLS_AT_ONCE, scheduling_strategy=place, **options)
        .remote(*arguments)
    )
    return actor


def kill(actor: ActorHandle[Any]) -> None:
    """End the actor's process for good; harmless for a dead one."""
    ray.kill(actor, no_restart=True)


class ProcessLocation(Struct, frozen=True):
    """Where an actor's process is."""

    node_id: str
    pid: int


async def whereabouts(actor: ActorHandle[Any]) -> ProcessLocation:
    """Return where the actor is, from its own event loop: whoever gets an answer knows that it is not stuck."""
    found: ProcessLocation = await ask(actor, "__ray_call__", _own_whereabouts)
    return found


async def registered(actor: ActorHandle[Any]) -> ProcessLocation | None:
    """Return where Ray started the actor's present process, which may be stuck, even before it could do anything; None if it has none."""
    entry = await asyncio.to_thread(actor_table, actor_id=actor._actor_id.hex())  # noqa: SLF001 - it has no public name
    if not entry or entry["State"] == "DEAD" or not entry["Pid"]:
        return None
    return ProcessLocation(entry["Address"]["NodeID"], entry["Pid"])


def _own_whereabouts(_actor: object) -> ProcessLocation:
    return ProcessLocation(here(), os.getpid())


async def ask(actor: ActorHandle[Any], method: str, *arguments: object) -> Any:
    """Return what the actor's method returns, and raise what it raises.

    Raises RuntimeUnavailableError when the actor is dead or being restarted: the call may or may not have happened.
    """
    try:
        return await getattr(actor, method).remote(*arguments)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        raise RuntimeUnavailableError(f"{method}: {type(error).__name__}") from error


async def ask_packed(actor: ActorHandle[Any], method: str, *arguments: object) -> Any:
    """Do as `ask`, for a method that is `packed`."""
    return unpack(await ask(actor, method, pack(arguments)))


def ask_now(actor: ActorHandle[Any], method: str, *arguments: object, seconds: float = 30.0) -> Any:
    """Do as `ask`, from code that is not asynchronous (a tool worker, the process that starts the runtime)."""
    try:
        return ray.get(getattr(actor, method).remote(*arguments), timeout=seconds)
    except GetTimeoutError as error:
        raise RuntimeUnavailableError(f"{method}: no answer within {seconds:g} s") from error
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        raise RuntimeUnavailableError(f"{method}: {type(error).__name__}") from error


def find(part: str, namespace: str, node_id: str = "") -> ActorHandle[Any] | None:
    """Return the actor of that name, or None. It blocks: call it in a thread."""
    try:
        actor: ActorHandle[Any] = ray.get_actor(full_name(part, node_id), namespace=namespace)
    except ValueError:
        return None
    return actor


def find_all(namespace: str) -> dict[str, ActorHandle[Any]]:
    """Return the actors that have names in that namespace, by name. It blocks: call it in a thread."""
    names = [each["name"] for each in ray.util.list_named_actors(all_namespaces=True) if each["namespace"] == namespace]
    return {name: actor for name in names if (actor := find(name, namespace)) is not None}


class NamedActor:
    """A named part, found when first needed, and found anew when it died with its root; this node's, unless another is named."""

    def __init__(self, name: str, namespace: str, node_id: str = "") -> None:
        self.name, self._namespace, self._node_id = name, namespace, node_id
        self._actor: ActorHandle[Any] | None = None

    async def ask(self, method: str, *arguments: object) -> Any:
        """See `ask`; also RuntimeUnavailableError while no actor of that name exists."""
        actor = self._actor if self._actor is not None else await asyncio.to_thread(self._find)
        try:
            return await ask(actor, method, *arguments)
        except RuntimeUnavailableError:
            self._actor = None
            raise

    async def ask_packed(self, method: str, *arguments: object) -> Any:
        """See `ask_packed`."""
        return unpack(await self.ask(method, pack(arguments)))

    def ask_packed_now(self, method: str, *arguments: object, seconds: float = 30.0) -> Any:
        """See `ask_now`, for a method that is `packed`."""
        return unpack(self.ask_now(method, pack(arguments), seconds=seconds))

    def ask_now(self, method: str, *arguments: object, seconds: float = 30.0) -> Any:
        """See `ask_now`."""
        actor = self._actor if self._actor is not None else self._find()
        try:
            return ask_now(actor, method, *arguments, seconds=seconds)
        except RuntimeUnavailableError:
            self._actor = None
            raise

    def _find(self) -> ActorHandle[Any]:
        actor = find(self.name, self._namespace, self._node_id)
        if actor is None:
            raise RuntimeUnavailableError(f"the {self.name} is not there yet")
        self._actor = actor
        return actor
