"""The store: commands change it (see owlclaw_ray.store.commands), queries read it (see owlclaw_ray.store.queries)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from owlclaw_ray.store.commands import Command, Outcome
from owlclaw_ray.store.queries import Query

_T = TypeVar("_T")


class CommandStore(Protocol):
    """What an actor host, an ingress and a scheduler write through."""

    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Commit all commands in one transaction, as if in the order given, and return one outcome each, in order.

        Raises StoreUnavailableError when nothing was committed, for sure or perhaps: apply the same commands again.
        """
        ...


class QueryStore(Protocol):
    """What is read through."""

    async def read(self, query: Query[_T]) -> _T:
        """Return the query's answer, of one moment of the store. Raises StoreUnavailableError."""
        ...


class QueryFunction(Protocol):
    """QueryStore.read for those who are in a thread of their own."""

    def __call__(self, query: Query[_T]) -> _T:
        """Return the query's answer. Raises StoreUnavailableError."""
        ...


class Store(CommandStore, QueryStore, Protocol):
    """The whole store."""

    async def check_writable(self) -> None:
        """Return if something could be committed within the last second; raises StoreUnavailableError if it cannot."""
        ...

    async def close(self) -> None:
        """Release connections and files."""
        ...
