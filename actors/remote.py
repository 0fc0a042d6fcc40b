"""The only place that makes and calls actors, and what their deaths mean to the one who asks. (Tasks: `tool_task`.)

A Ray error is no proof that the call did not happen. Everything asked through here is therefore safe to ask again.
"""

from __future__ import annotations

import asyncio
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError

from owlclaw_ray.errors import RuntimeUnavailableError

KEEPER, DIRECTORY, GATEWAY, SCHEDULER, ROOT = "keeper", "directory", "gateway", "scheduler", "root"

CALLS_AT_ONCE = 10_000
"""Concurrent calls of an actor: most of them only wait."""


def make(kind: type[Any], *arguments: object, **options: object) -> ActorHandle[Any]:
    """Return a new actor of that class, which takes no CPU from Ray's accounts. It may not answer yet."""
    actor: ActorHandle[Any] = (
        ray.remote(kind).options(num_cpus=0, max_concurrency=CALLS_AT_ONCE, **options).remote(*arguments)
    )
    return actor


def tell(actor: ActorHandle[Any], method: str) -> None:
    """Have the actor do something without waiting for it, or hearing how it went."""
    getattr(actor, method).remote()


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


def ask_now(actor: ActorHandle[Any], method: str, *arguments: object, seconds: float = 30.0) -> Any:
    """Do as `ask`, from code that is not asynchronous (a tool worker, the process that starts the runtime)."""
    try:
        return ray.get(getattr(actor, method).remote(*arguments), timeout=seconds)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        raise RuntimeUnavailableError(f"{method}: {type(error).__name__}") from error


class Named:
    """A named actor, found when first needed, and found anew when it died with its root."""

    def __init__(self, name: str, namespace: str) -> None:
        self.name, self._namespace = name, namespace
        self._actor: ActorHandle[Any] | None = None

    async def ask(self, method: str, *arguments: object) -> Any:
        """See `ask`; also RuntimeUnavailableError while no actor of that name exists."""
        actor = self._actor if self._actor is not None else await asyncio.to_thread(self._find)
        try:
            return await ask(actor, method, *arguments)
        except RuntimeUnavailableError:
            self._actor = None
            raise

    def ask_now(self, method: str, *arguments: object, seconds: float = 30.0) -> Any:
        """See `ask_now`."""
        actor = self._actor if self._actor is not None else self._find()
        try:
            return ask_now(actor, method, *arguments, seconds=seconds)
        except RuntimeUnavailableError:
            self._actor = None
            raise

    def _find(self) -> ActorHandle[Any]:
        try:
            actor = ray.get_actor(self.name, namespace=self._namespace)
        except ValueError as error:
            raise RuntimeUnavailableError(f"the {self.name} is not there yet") from error
        self._actor = actor
        return actor
