"""Surfaces: what the ingress serves beside its JSON API, from packages of layers above this one.

A surface brings its routes, each with a scope as every other, and may know people by something else than the header Authorization.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import Protocol

from fastapi import APIRouter
from msgspec import Struct
from starlette.types import ASGIApp, Scope

from owlclaw_ray.domain.issuer import Credential
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runtime.api import Runtime
from serve.server_facts import NO_FACTS, ServerFacts
from serve.streams import OpenRequestLimit

_MODULES = ("console.surface",)


class Surface(Protocol):
    """What is served below a path. Its requests pass the same gate and limits as all others."""

    prefix: str
    """The path: it, and all that begins with it and a slash, are the surface's."""

    def router(self) -> APIRouter:
        """Return its routes, which declare their scopes (serve.resource.operation)."""
        ...

    async def key_of(self, scope: Scope) -> Credential | None:
        """Return what a request without the header Authorization acts by, None if it has nothing.

        Raises StoreUnavailableError.
        """
        ...

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return what stands around everything else of the ingress: it may show problems in its own form."""
        ...


class Surroundings(Struct, frozen=True):
    """What surfaces are made of."""

    runtime: Runtime
    clock: Clock
    places: OpenRequestLimit
    """Of requests that stay open."""
    keep_alive: float
    """Seconds between two signs of life of a stream."""
    facts: ServerFacts = NO_FACTS


SurfaceFactory = Callable[[Surroundings], Surface]


def surfaces() -> Sequence[SurfaceFactory]:
    """Return all surfaces of this installation: the layers below them must not import them."""
    return [import_module(name).build for name in _MODULES]


def surface_at(surfaces: Collection[Surface], path: str) -> Surface | None:
    """Return the surface that a path belongs to."""
    return next((each for each in surfaces if is_below(each.prefix, path)), None)


def is_below(prefix: str, path: str) -> bool:
    """Return whether a path is that of a surface, or one of its pages."""
    return path == prefix or path.startswith(f"{prefix}/")
