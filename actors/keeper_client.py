"""The Keeper, as other processes use it: the store over batched actor calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from typing_extensions import override

from actors.remote import KEEPER, NamedActor
from owlclaw_ray.domain.secret import Secret
from owlclaw_ray.errors import RuntimeUnavailableError, StoreUnavailableError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.secrets.api import SecretKeeper
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.command_link import CommandLink, apply_now
from owlclaw_ray.store.commands import Command, Outcome
from owlclaw_ray.store.queries import Query

_T = TypeVar("_T")


class KeeperClient(Store):
    """The store at the Keeper. Commands of all callers in this process leave together, see CommandLink."""

    def __init__(
        self,
        namespace: str,
        rest: Callable[[], Awaitable[object]] | None = None,
        at_once: int = 1,
        *,
        node_id: str = "",
    ) -> None:
        """The Keeper of that node, or of this one. See CommandLink for `rest` and `at_once`."""
        self._keeper = NamedActor(KEEPER, namespace, node_id)
        self._commands = CommandLink(self._send, rest=rest, at_once=at_once)

    @override
    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        return await self._commands.apply(commands)

    async def _send(self, parcels: Sequence[bytes]) -> Sequence[bytes]:
        return await _answer(self._keeper.call.apply(parcels))

    @override
    async def read(self, query: Query[_T]) -> _T:
        return await _answer(self._keeper.call.read(query))

    @override
    async def check_writable(self) -> None:
        await _answer(self._keeper.call.ready())

    @override
    async def close(self) -> None:
        """Nothing to release: the Keeper keeps the connections."""


class KeeperSecrets(SecretKeeper):
    """The secrets of tenants at the Keeper, which has their keys."""

    def __init__(self, namespace: str) -> None:
        self._keeper = NamedActor(KEEPER, namespace)

    @override
    async def set_secret(self, tenant: TenantId, name: str, value: str, by: str) -> Secret:
        return await _answer(self._keeper.call.set_secret(tenant, name, value, by))

    @override
    async def secrets(self, tenant: TenantId) -> Sequence[Secret]:
        return await _answer(self._keeper.call.secrets(tenant))

    @override
    async def delete_secret(self, tenant: TenantId, name: str, by: str) -> Secret:
        return await _answer(self._keeper.call.delete_secret(tenant, name, by))

    @override
    async def rotate_secrets(self, tenant: TenantId, by: str) -> int:
        return await _answer(self._keeper.call.rotate_secrets(tenant, by))

    @override
    async def rotate_all_secrets(self, by: str) -> int:
        return await _answer(self._keeper.call.rotate_all_secrets(by))


def secrets_at_keeper(namespace: str) -> Callable[[TenantId, str], Awaitable[str]]:
    """Return what asks the Keeper for the value of a tenant's secret, as SecretVault.secret does."""
    keeper = NamedActor(KEEPER, namespace)

    async def ask(tenant: TenantId, name: str) -> str:
        return await _answer(keeper.call.secret(tenant, name))

    return ask


class KeeperNow:
    """The store at the Keeper, for code in threads that is not asynchronous. Raises RuntimeUnavailableError while it does not answer."""

    def __init__(self, namespace: str, seconds: float = 30.0) -> None:
        """Wait for so many seconds for an answer."""
        self._keeper, self._seconds = NamedActor(KEEPER, namespace), seconds

    def commit(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Return what the store answers to each command; raises StoreUnavailableError if that cannot be known."""
        return apply_now(
            commands, lambda parcels: self._keeper.call_now(lambda keeper: keeper.apply(parcels), self._seconds)
        )

    def read(self, query: Query[_T]) -> _T:
        """See QueryFunction."""
        return self._keeper.call_now(lambda keeper: keeper.read(query), self._seconds)

    def secret(self, tenant: TenantId, name: str) -> str:
        """See SecretVault.secret."""
        return self._keeper.call_now(lambda keeper: keeper.secret(tenant, name), self._seconds)


async def _answer(answer: Awaitable[_T]) -> _T:
    try:
        return await answer
    except RuntimeUnavailableError as error:
        raise StoreUnavailableError(f"the Keeper is being restarted ({error})") from error
