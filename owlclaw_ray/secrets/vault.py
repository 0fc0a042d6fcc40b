"""The secrets of tenants over a store: the one place where they are encrypted and decrypted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from typing_extensions import override

from owlclaw_ray.domain.ledger import access_record
from owlclaw_ray.domain.secret import MAX_SECRETS, Secret, check_name, check_value
from owlclaw_ray.errors import NotFoundError, SecretsUnavailableError, StoreUnavailableError, UserError
from owlclaw_ray.ids import TenantId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.ledger.redaction import TenantRedactors
from owlclaw_ray.secrets.api import SecretKeeper
from owlclaw_ray.secrets.keyring import Keyring, SealedSecret
from owlclaw_ray.store.api import CommandStore, QueryStore
from owlclaw_ray.store.commands import (
    AppendLedger,
    Command,
    CommandBlocked,
    CommandFailed,
    DeleteSecret,
    PutSecret,
    ReplaceCiphertext,
)
from owlclaw_ray.store.secrets import SecretByName, SecretsOfTenant, SecretsSince, StoredSecret

_ROUNDS = 5
_CLOCKS_APART = timedelta(minutes=1)
"""How far clocks of nodes may be apart."""
logger = logging.getLogger(__name__)


class SecretVault(SecretKeeper):
    """Has the master keys. What it decrypts it has the redactors take out of the tenant's ledger from then on."""

    def __init__(
        self, store: QueryStore, commits: CommandStore, keyring: Keyring, redactors: TenantRedactors, clock: Clock
    ) -> None:
        """Read from `store` and write through `commits`."""
        self._store, self._commits, self._keyring = store, commits, keyring
        self._redactors, self._clock = redactors, clock
        self._seen: datetime | None = None
        self._known: dict[tuple[TenantId, str], bytes] = {}
        """The ciphertexts whose values the redactors have."""
        self._problem = ""

    async def secret(self, tenant: TenantId, name: str) -> str:
        """Return the value; raises NotFoundError, and SecretsUnavailableError if it cannot be decrypted."""
        check_name(name)
        found = await self._store.read(SecretByName(tenant, name))
        if found is None:
            raise NotFoundError("secret", name)
        return self._opened(found)

    @override
    async def set_secret(self, tenant: TenantId, name: str, value: str, by: str) -> Secret:
        check_name(name)
        check_value(value)
        sealed = self._keyring.seal(tenant, name, value)
        there = await self._store.read(SecretsOfTenant(tenant))
        if len(there) >= MAX_SECRETS and all(each.secret.name != name for each in there):
            raise UserError(f"the tenant has {MAX_SECRETS:,} secrets, and no more may be added")
        self._redactors.add(tenant, name, value)
        put = PutSecret(tenant, name, sealed.key_id, sealed.ciphertext, by, self._clock.now())
        await self._apply([put, self._told(tenant, "secret_set", by, name=name, key_id=sealed.key_id)])
        stored = await self._store.read(SecretByName(tenant, name))
        if stored is None:
            raise NotFoundError("secret", name)
        return stored.secret

    @override
    async def secrets(self, tenant: TenantId) -> Sequence[Secret]:
        return tuple(each.secret for each in await self._store.read(SecretsOfTenant(tenant)))

    @override
    async def delete_secret(self, tenant: TenantId, name: str, by: str) -> Secret:
        found = await self._store.read(SecretByName(tenant, name))
        if found is None:
            raise NotFoundError("secret", name)
        await self._apply([DeleteSecret(tenant, name), self._told(tenant, "secret_deleted", by, name=name)])
        return found.secret

    @override
    async def rotate_secrets(self, tenant: TenantId, by: str) -> int:
        newest, rotated = self._keyring.newest, 0
        for _ in range(_ROUNDS):
            old = [each for each in await self._store.read(SecretsOfTenant(tenant)) if each.secret.key_id != newest]
            if not old:
                return rotated
            commands, problems = list[Command](), list[SecretsUnavailableError]()
            for each in old:
                try:
                    commands.append(self._resealed(each))
                except SecretsUnavailableError as error:
                    problems.append(error)
            if commands:
                told = self._told(tenant, "secrets_rotated", by, key_id=newest, count=len(commands))
                await self._apply([*commands, told])
            if problems:
                raise problems[0]
            rotated = max(rotated, len(old))
        raise SecretsUnavailableError("secrets are being set with another master key at the same time: try again")

    @override
    async def rotate_all_secrets(self, by: str) -> int:
        tenants = sorted({each.tenant for each in await self._store.read(SecretsSince(None))})
        rotated, problems = 0, list[str]()
        for tenant in tenants:
            try:
                rotated += await self.rotate_secrets(tenant, by)
            except SecretsUnavailableError as error:
                problems.append(f"tenant {tenant}: {error}")
        if problems:
            raise SecretsUnavailableError(f"not all is encrypted with the newest master key: {'; '.join(problems)}")
        return rotated

    async def learn(self) -> None:
        """Have the redactors know all values that are in the store. What cannot be decrypted is logged, and left out."""
        since = None if self._seen is None else self._seen - _CLOCKS_APART
        found = await self._store.read(SecretsSince(since))
        problems = []
        for each in found:
            if self._known.get((each.tenant, each.secret.name)) != each.ciphertext:
                try:
                    self._opened(each)
                except SecretsUnavailableError as error:
                    problems.append(str(error))
        said = problems[0] + (f" ({len(problems)} secrets like this)" if len(problems) > 1 else "") if problems else ""
        if said and said != self._problem:
            logger.error("%s; until then it is not taken out of ledgers", said)
        self._problem = said
        if found:
            self._seen = found[-1].secret.rotated_at

    async def values(self) -> dict[TenantId, dict[str, str]]:
        """Return all values, former ones that are known here too, by tenant and name: what is told elsewhere must not have them."""
        await self.learn()
        return self._redactors.values

    def _opened(self, stored: StoredSecret) -> str:
        value = self._keyring.open(
            stored.tenant, stored.secret.name, SealedSecret(stored.secret.key_id, stored.ciphertext)
        )
        key = stored.tenant, stored.secret.name
        if self._known.get(key) != stored.ciphertext:
            self._redactors.add(*key, value)
            self._known[key] = stored.ciphertext
        return value

    def _resealed(self, stored: StoredSecret) -> ReplaceCiphertext:
        name = stored.secret.name
        sealed = self._keyring.seal(stored.tenant, name, self._opened(stored))
        return ReplaceCiphertext(
            stored.tenant, name, stored.ciphertext, sealed.key_id, sealed.ciphertext, self._clock.now()
        )

    def _told(self, tenant: TenantId, what: str, by: str, **data: object) -> AppendLedger:
        """Return what tells the ledger of a change, in the transaction that makes it."""
        at = self._clock.now()
        record_id = derived_id("rec", tenant, what, *map(str, data.values()), at.isoformat())
        return AppendLedger((access_record(record_id, tenant, what, at, {"by": by, **data}),))

    async def _apply(self, commands: Sequence[Command]) -> None:
        for outcome in await self._commits.apply(commands):
            if isinstance(outcome, CommandFailed | CommandBlocked):
                raise StoreUnavailableError(outcome.message)
