"""Handles of actors by their names, made without the classes of these."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import ray
from ray.actor import ActorHandle

from actors.remote_actor import RemoteActor

_actor_class: Any = ray.remote(RemoteActor)
_BARE: type[Any] = _actor_class.__ray_metadata__.modified_class
"""What is called of actors: `answer`, and the methods that Ray gives to every class."""
_methods: dict[object, object] = ray.actor._ActorClassMethodMetadata._cache  # noqa: SLF001 - no public name


class _Lookup(threading.local):
    """What this thread looks up."""

    is_on = False
    descriptor: object = None
    """Under which Ray keeps what it knows of the methods of the class, if it knew nothing before."""


_lookup = _Lookup()


def named_actor(name: str, namespace: str) -> ActorHandle[Any]:
    """Return a handle of the actor with that name: call only what `_BARE` has. Raises ValueError if there is none.

    Ray (2.60) imports the class of an actor to make a handle of it: for Serve's actors that is Serve and FastAPI, half a second of
    processor time and 50 MB, for a Scheduler croniter and pydantic.
    """
    manager: Any = ray._private.worker.global_worker.function_actor_manager  # noqa: SLF001 - no public name
    if "load_actor_class" not in vars(manager):
        manager.load_actor_class = partial(_load, manager.load_actor_class)
    _lookup.is_on, _lookup.descriptor = True, None
    try:
        actor: ActorHandle[Any] = ray.get_actor(name, namespace=namespace)
    finally:
        _lookup.is_on = False
        _methods.pop(_lookup.descriptor, None)  # handles that others make are whole
    return actor


def _load(load: Callable[..., type[Any]], job_id: object, descriptor: object) -> type[Any]:
    if not _lookup.is_on:
        return load(job_id, descriptor)
    if descriptor not in _methods:
        _lookup.descriptor = descriptor
    return _BARE
