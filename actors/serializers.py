"""Ray's serializers of other libraries' objects, which no message between our actors has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ray
from ray.util import serialization_addons

_LIBRARIES = frozenset({"pyarrow", "pydantic.v1", "starlette"})
"""Whose objects Ray (2.60) has serializers for."""
_register: Callable[[Any], None] = serialization_addons.apply


def skip_unused() -> None:
    """Have Ray import no library, in a process that it has made for an actor, to register serializers of its objects.

    With NumPy, which pyarrow brings along, they are 32 MB (PSS) for each process, and 0.3 seconds of processor time (0.5 where each process
    compiles modules anew). All are registered where one of the libraries is imported by the time of the first message: Ray asks for them
    then, so call this in the body of a module that the actor's class needs. Programs and tasks keep all that Ray has.
    """
    worker: Any = ray._private.worker.global_worker  # noqa: SLF001 - no public name
    if not worker.actor_id.is_nil():
        serialization_addons.apply = _register_used


def _register_used(context: Any) -> None:
    if not _LIBRARIES.isdisjoint(sys.modules):
        _register(context)
