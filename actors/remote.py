"""The only place that makes and calls actors, and what their deaths mean to the one who asks. (Tasks: `tool_task`.)

A Ray error is no proof that the call did not happen. Everything asked through here is therefore safe to ask again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

import ray
from msgspec import Struct
from ray._private.state import actors as actor_table  # ray.util.state asks the dashboard, which may not run
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.handles import named_actor
from owlclaw_ray.errors import OwlClawError, RuntimeUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.packing import pack, unpack

if TYPE_CHECKING:  # the types of the actors, of which this module imports none
    from actors.agent import AgentActor
    from actors.directory import DirectoryActor
    from actors.exporter import ExporterActor
    from actors.keeper import KeeperActor
    from actors.mcp_pool import McpPoolActor
    from actors.model_gateway import ModelGatewayActor
    from actors.root import RootActor
    from actors.scheduler import SchedulerActor

A = TypeVar("A")
R = TypeVar("R")

AgentHandle: TypeAlias = "ActorHandle[AgentActor]"
NamedRoot: TypeAlias = "NamedActor[RootActor]"


class PartName(str, Generic[A]):
    """The name of a part of the runtime, which tells type checkers the class of its actor."""

    __slots__ = ()


ROOT: PartName[RootActor] = PartName("root")
KEEPER: PartName[KeeperActor] = PartName("keeper")
GATEWAY: PartName[ModelGatewayActor] = PartName("gateway")
MCP_POOL: PartName[McpPoolActor] = PartName("mcp_pool")
"""Parts that every node has of its own; the last only if there are MCP servers."""
DIRECTORY: PartName[DirectoryActor] = PartName("directory")
SCHEDULER: PartName[SchedulerActor] = PartName("scheduler")
EXPORTER: PartName[ExporterActor] = PartName("exporter")
"""Parts of which the whole cluster has one; the last only if traces are exported."""
PARTS: tuple[PartName[Any], ...] = (EXPORTER, SCHEDULER, DIRECTORY, MCP_POOL, GATEWAY, KEEPER)
_NODE_PARTS: frozenset[str] = frozenset({ROOT, KEEPER, GATEWAY, MCP_POOL})

_KNOWN_SECONDS = 10.0
_ONE_BYTE = {"memory": 1}
"""What a movable actor asks for: Ray (2.60) puts one that asks for nothing on any node, unless its affinity is hard."""
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
    kind: type[A], *arguments: object, node_id: str = "", movable: bool = False, **options: object
) -> ActorHandle[A]:
    """Return a new actor of that class on that node (this one by default), which takes no CPU from Ray's accounts.

    It may not answer yet. A movable one is started again elsewhere when its node is lost.
    """
    place = NodeAffinitySchedulingStrategy(node_id or here(), soft=movable)
    asked = _ONE_BYTE if movable else {}
    actor: Any = (
        ray.remote(kind)
        .options(num_cpus=0, max_concurrency=CALLS_AT_ONCE, scheduling_strategy=place, **asked, **options)
        .remote(*arguments)
    )
    return cast("ActorHandle[A]", actor)


def end_process(code: int) -> None:
    """End this process at once, as a crash would: Ray makes the actor again if it may be restarted and counts as alive."""
    os._exit(code)  # Ray's own exit_actor is for good, and asks Ray


def kill(actor: ActorHandle[Any]) -> None:
    """End the actor's process for good; harmless for a dead one."""
    ray.kill(actor, no_restart=True)


class ProcessLocation(Struct, frozen=True):
    """Where an actor's process is."""

    node_id: str
    pid: int


async def whereabouts(actor: ActorHandle[Any]) -> ProcessLocation:
    """Return where the actor is, from its own event loop: whoever gets an answer knows that it is not stuck."""
    with _errors_of("whereabouts"):
        found: ProcessLocation = await actor.__ray_call__.remote(_own_whereabouts)
    return found


async def registered(actor: ActorHandle[Any]) -> ProcessLocation | None:
    """Return where Ray started the actor's present process, which may be stuck, even before it could do anything; None if it has none."""
    entry = await asyncio.to_thread(actor_table, actor_id=actor._actor_id.hex())  # noqa: SLF001 - it has no public name
    if not entry or entry["State"] == "DEAD" or not entry["Pid"]:
        return None
    return ProcessLocation(entry["Address"]["NodeID"], entry["Pid"])


def _own_whereabouts(_actor: object) -> ProcessLocation:
    return ProcessLocation(here(), os.getpid())


class _Call(Struct, frozen=True):
    """A method of an actor, with the arguments that it is to get."""

    method: str
    packed: bytes

    @staticmethod
    def of(method: str, /, *arguments: object, **options: object) -> _Call:
        return _Call(method, pack((method, arguments, options)))


class _Methods:
    """Stands for an actor: has each of its methods, which makes a `_Call` and gives it on."""

    def __init__(self, give: Callable[[_Call], object]) -> None:
        self._give = give

    def __getattr__(self, method: str) -> Callable[..., object]:
        return lambda *arguments, **options: self._give(_Call.of(method, *arguments, **options))


def calls(actor: ActorHandle[A]) -> A:
    """Return what has the actor's methods; each is called there, returns what it returns, and raises what it raises.

    Raises RuntimeUnavailableError when the actor is dead or being restarted: the call may or may not have happened.
    """
    return cast("A", _Methods(partial(_ask, actor)))


async def _ask(actor: ActorHandle[Any], call: _Call) -> object:
    with _errors_of(call.method):
        answer = await _outside_of_tasks(actor, call)
    return _unpacked(answer)


def _outside_of_tasks(actor: ActorHandle[Any], call: _Call) -> Awaitable[object]:
    """Call the actor outside the task that is executed here: with a task Ray cancels what it has called, and ours is often for others, too.

    A request is such a task where it comes through Serve's proxy, and is cancelled when its client goes away.
    """
    answer: Awaitable[object] = Context().run(actor.answer.remote, call.packed)
    return answer


def call_now(actor: ActorHandle[A], question: Callable[[A], Awaitable[R]], seconds: float = 30.0) -> R:
    """Return the answer of the one method that `question` calls, as `calls` does, from code that is not asynchronous."""
    call = cast("_Call", question(cast("A", _Methods(lambda made: made))))
    with _errors_of(call.method):
        try:
            answer: object = ray.get(actor.answer.remote(call.packed), timeout=seconds)
        except GetTimeoutError as error:
            raise RuntimeUnavailableError(f"{call.method}: no answer within {seconds:g} s") from error
    return cast("R", _unpacked(answer))


async def in_time(answer: Awaitable[R], seconds: float) -> R | None:
    """Return the answer of a part, or of anything that may hang; None if it fails or does not come within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except (OwlClawError, OSError):  # TimeoutError is an OSError
        return None


def _unpacked(answer: object) -> object:
    return unpack(answer) if isinstance(answer, bytes) else answer


@contextmanager
def _errors_of(method: str) -> Iterator[None]:
    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, RayError):
            raise RuntimeUnavailableError(f"{method}: {type(error.cause).__name__}") from error
        raise error.cause from None
    except RayError as error:
        raise RuntimeUnavailableError(f"{method}: {type(error).__name__}") from error


def find(part: PartName[A], namespace: str, node_id: str = "") -> ActorHandle[A] | None:
    """Return the actor of that name, or None. It blocks: call it in a thread."""
    return _actor_named(full_name(part, node_id), namespace)


def named(*namespaces: str) -> tuple[frozenset[str], ...]:
    """Return for each namespace the names of its living actors: one question to Ray. It blocks: call it in a thread."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    return tuple(frozenset(each["name"] for each in actors if each["namespace"] == space) for space in namespaces)


class KnownActors:
    """Actors of a namespace, each looked up when it is first asked for and then every `_KNOWN_SECONDS`: what makes a handle costs more
    than a message, and outlives the actor only if another one takes its name.
    """

    def __init__(self, namespace: str, clock: Clock) -> None:
        self._namespace, self._clock = namespace, clock
        self._known: dict[str, tuple[ActorHandle[Any], float]] = {}

    async def find(self, names: Collection[str]) -> dict[str, ActorHandle[Any]]:
        """Return those that are there, by name."""
        now = self._clock.monotonic()
        known = {name: self._known[name] for name in names if name in self._known}
        known = {name: (actor, found) for name, (actor, found) in known.items() if now - found < _KNOWN_SECONDS}
        if unknown := [name for name in names if name not in known]:
            actors = await asyncio.to_thread(lambda: [(name, _actor_named(name, self._namespace)) for name in unknown])
            known |= {name: (actor, now) for name, actor in actors if actor is not None}
        self._known = known
        return {name: actor for name, (actor, _) in known.items()}


def _actor_named(name: str, namespace: str) -> ActorHandle[Any] | None:
    with _errors_of(f"looking for {name}"):
        try:
            return named_actor(name, namespace)
        except ValueError:
            return None


class NamedActor(Generic[A]):
    """A named part, found when first needed, and again when it died with its root; this node's, unless another is named."""

    def __init__(self, part: PartName[A], namespace: str, node_id: str = "") -> None:
        self.name, self._namespace, self._node_id = part, namespace, node_id
        self._actor: ActorHandle[A] | None = None
        self._methods = cast("A", _Methods(self._ask))

    @property
    def call(self) -> A:
        """What has the part's methods, see `calls`; also RuntimeUnavailableError while no actor of that name exists."""
        return self._methods

    def call_now(self, question: Callable[[A], Awaitable[R]], seconds: float = 30.0) -> R:
        """See the function `call_now`."""
        actor = self._actor if self._actor is not None else self._find()
        try:
            return call_now(actor, question, seconds)
        except RuntimeUnavailableError:
            self._actor = None
            raise

    async def _ask(self, call: _Call) -> object:
        actor = self._actor if self._actor is not None else await asyncio.to_thread(self._find)
        try:
            return await _ask(actor, call)
        except RuntimeUnavailableError:
            self._actor = None
            raise

    def _find(self) -> ActorHandle[A]:
        actor = find(self.name, self._namespace, self._node_id)
        if actor is None:
            raise RuntimeUnavailableError(f"the {self.name} is not there yet")
        self._actor = actor
        return actor
