"""The Keeper, as other processes use it: the store over batched actor calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from typing_extensions import override

from actors.remote import KEEPER, NamedActor
from owlclaw_ray.errors import RuntimeUnavailableError, StoreUnavailableError
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.command_link import CommandLink
from owlclaw_ray.store.commands import Command, Outcome
from owlclaw_ray.store.queries import Query

_T = TypeVar("_T")


class KeeperClient(Store):
    """The store at the Keeper. Commands of all callers in this process leave together, see CommandLink."""

    def __init__(self, namespace: str, rest: Callable[[], Awaitable[object]] | None = None, at_once: int = 1) -> None:
        """See CommandLink for `rest` and `at_once`."""
        self._keeper = NamedActor(KEEPER, namespace)
        self._commands = CommandLink(self._send, rest=rest, at_once=at_once)

    @override
    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        return await self._commands.apply(commands)

    async def _send(self, parcels: Sequence[bytes]) -> Sequence[bytes]:
        try:
            return cast("Sequence[bytes]", await self._keeper.ask_packed("apply", parcels))
        except RuntimeUnavailableError as error:
            raise _restarting(error) from error

    @override
    async def read(self, query: Query[_T]) -> _T:
        return cast("_T", await self._ask("read", query))

    @override
    async def check_writable(self) -> None:
        await self._ask("ready")

    @override
    async def close(self) -> None:
        """Nothing to release: the Keeper keeps the connections."""

    async def _ask(self, method: str, *arguments: object) -> Any:
        try:
            return await self._keeper.ask(method, *arguments)
        except RuntimeUnavailableError as error:
            raise _restarting(error) from error


def _restarting(error: RuntimeUnavailableError) -> StoreUnavailableError:
    return StoreUnavailableError(f"the Keeper is being restarted ({error})")
