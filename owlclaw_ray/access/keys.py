"""Making, listing, rotating and revoking access keys, on behalf of a principal."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.access.quota_use import quota_use
from owlclaw_ray.domain.access_key import DEFAULT_DAYS, MAX_DAYS, AccessKey, make_key, make_secret
from owlclaw_ray.domain.budget import minute_of
from owlclaw_ray.domain.ledger import access_record
from owlclaw_ray.domain.principal import OF_OPERATORS, Principal, check_name, parse_patterns, parse_scopes
from owlclaw_ray.domain.quota import (
    HELD,
    KEY_QUOTAS,
    MAX_QUOTA,
    MODEL_TOKENS_A_MINUTE,
    STARTS_A_MINUTE,
    QuotaUse,
    key_held_account,
    key_starts_account,
    model_tokens_budget,
)
from owlclaw_ray.errors import (
    AccessConflictError,
    AccessDeniedError,
    InvalidAccessError,
    NotFoundError,
    StoreUnavailableError,
)
from owlclaw_ray.ids import DEFAULT_TENANT, IdSource, KeyId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import KeyChanged, KeyStored, PutKey
from owlclaw_ray.store.queries import KeyById, KeysOfTenant, TenantById

_RACES = 5
MAX_GRACE_SECONDS = 30 * 86_400.0


class KeyRequest(Struct, frozen=True):
    """What a new key is to be. `scopes` and `agents` as in domain.principal; `scopes` may name roles."""

    name: str
    scopes: tuple[str, ...]
    agents: tuple[str, ...] = ()
    days: float = DEFAULT_DAYS
    """How long it is valid."""
    tenant: TenantId | None = None
    """Another tenant's, by somebody who may administer tenants; None: the minter's own."""
    starts_a_minute: int | None = None
    open_runs: int | None = None
    running_runs: int | None = None
    model_tokens_a_minute: int | None = None


class IssuedKey(Struct, frozen=True):
    """A key, with its text: it is told once, and kept nowhere."""

    key: AccessKey
    text: str


class AccessKeys:
    """The keys of tenants. `random` returns so many random bytes. `made` is called when there is a key."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdSource,
        random: Callable[[int], bytes] = secrets.token_bytes,
        made: Callable[[], None] = lambda: None,
    ) -> None:
        self._made = made
        self._store, self._clock, self._ids, self._random = store, clock, ids, random

    async def create(self, by: Principal, request: KeyRequest) -> IssuedKey:
        """Make a key. Raises InvalidAccessError, AccessDeniedError if it could do what `by` cannot, NotFoundError for an unknown tenant,
        AccessConflictError for one that is deleted, StoreUnavailableError.
        """
        tenant = by.tenant if request.tenant is None else request.tenant
        scopes = parse_scopes(request.scopes)
        patterns = parse_patterns(request.agents, scopes)
        if not 0 < request.days <= MAX_DAYS:
            raise InvalidAccessError("days", f"is {request.days:g}", f"more than 0, at most {MAX_DAYS:,}")
        for name in KEY_QUOTAS:
            limit = getattr(request, name)
            if limit is not None and not 0 <= limit <= MAX_QUOTA:
                raise InvalidAccessError(name, f"is {limit}", f"0 to {MAX_QUOTA:,}")
        _refuse_limited(by)
        check_name(request.name)
        if tenant != by.tenant:
            by.require("tenants:admin")
            await self._require_open(tenant)
        operators = sorted(scope for scope in scopes if scope.partition(":")[0] in OF_OPERATORS)
        if operators and tenant != DEFAULT_TENANT:
            raise InvalidAccessError("scopes", f"{', '.join(operators)} are for no tenant", "leave them out")
        by.require_grant(scopes, patterns)
        now = self._clock.now()
        for _ in range(_RACES):
            key_id, text, secret_hash = make_key(self._random)
            key = AccessKey(
                key_id,
                tenant,
                request.name,
                secret_hash,
                tuple(sorted(scopes)),
                patterns,
                now,
                str(by),
                now + timedelta(days=request.days),
                starts_a_minute=request.starts_a_minute,
                open_runs=request.open_runs,
                running_runs=request.running_runs,
                model_tokens_a_minute=request.model_tokens_a_minute,
            )
            told = {} if key.quota is None else {"quotas": key.quota.given}
            if await self._put(
                by, key, None, "key_created", name=key.name, scopes=[*key.scopes], agents=[*patterns], **told
            ):
                self._made()
                return IssuedKey(key, text)
        raise StoreUnavailableError("no free key id was found")

    async def _require_open(self, tenant: TenantId) -> None:
        if tenant == DEFAULT_TENANT:
            return
        found = await self._store.read(TenantById(tenant))
        if found is None:
            raise NotFoundError("tenant", tenant)
        if found.status.closed:
            raise AccessConflictError(f"tenant {tenant!r} is {found.status.value}: it gets no keys")

    async def keys(self, tenant: TenantId, after: str = "", limit: int = 1_000) -> Sequence[AccessKey]:
        """Return the tenant's keys by id, revoked and expired ones too."""
        return await self._store.read(KeysOfTenant(tenant, after, limit))

    async def key(self, tenant: TenantId, key_id: KeyId) -> AccessKey:
        """Return a key; raises NotFoundError."""
        found = await self._store.read(KeyById(key_id, tenant))
        if found is None:
            raise NotFoundError("key", key_id)
        return found

    async def use(self, key: AccessKey) -> QuotaUse:
        """Return how much of its quotas a key uses at the moment. Raises StoreUnavailableError."""
        quota, now = key.quota, self._clock.now()
        if quota is None:
            return QuotaUse()
        accounts = {name: key_held_account(name, key.key_id, key.tenant) for name in HELD if name in quota.given}
        if quota.starts_a_minute is not None:
            accounts[STARTS_A_MINUTE] = key_starts_account(key.key_id, minute_of(now))
        budget = model_tokens_budget(quota)
        if budget is not None:
            accounts[MODEL_TOKENS_A_MINUTE] = budget.account(key.tenant, "", budget.window(now))
        return await quota_use(self._store, accounts)

    async def rotate(self, by: Principal, key_id: KeyId, grace_seconds: float, *, seen_as: str = "") -> IssuedKey:
        """Give a key a new secret; the old one stays valid for the grace, and the one before that no longer.

        Raises as `create`, and AccessConflictError for one that is revoked or expired, or of which `seen_as` is neither empty nor the
        fingerprint.
        """
        if not 0 <= grace_seconds <= MAX_GRACE_SECONDS:
            raise InvalidAccessError("grace_seconds", f"is {grace_seconds:g}", f"0 to {MAX_GRACE_SECONDS:g}")
        for _ in range(_RACES):
            seen = await self._changeable(by, key_id)
            if seen.revoked_at is not None:
                raise AccessConflictError(f"key {key_id} is revoked: create another one")
            if self._clock.now() >= seen.expires_at:
                raise AccessConflictError(f"key {key_id} is expired, and another secret would be: create another one")
            if seen_as not in {"", seen.fingerprint}:
                raise AccessConflictError(
                    f"key {key_id} was given another secret meanwhile: another one would end the one before it"
                )
            text, secret_hash = make_secret(key_id, self._random)
            until = self._clock.now() + timedelta(seconds=grace_seconds)
            key = replace(seen, secret_hash=secret_hash, previous_hash=seen.secret_hash, previous_until=until)
            if await self._put(by, key, seen, "key_rotated", grace_seconds=grace_seconds):
                return IssuedKey(key, text)
        raise StoreUnavailableError(f"key {key_id} is being changed by others")

    async def revoke(self, by: Principal, key_id: KeyId) -> AccessKey:
        """Have a key never be let in again; repeating it changes nothing. Raises NotFoundError, AccessDeniedError, and
        StoreUnavailableError.
        """
        for _ in range(_RACES):
            seen = await self._changeable(by, key_id)
            if seen.revoked_at is not None:
                return seen
            key = replace(seen, revoked_at=self._clock.now())
            if await self._put(by, key, seen, "key_revoked"):
                return key
        raise StoreUnavailableError(f"key {key_id} is being changed by others")

    async def _changeable(self, by: Principal, key_id: KeyId) -> AccessKey:
        key = await self.key(by.tenant, key_id)
        by.require_grant(key.scopes, key.patterns)
        _refuse_limited(by, key_id)
        return key

    async def _put(self, by: Principal, key: AccessKey, seen: AccessKey | None, what: str, **data: object) -> bool:
        """Store the key; return whether nobody else changed it."""
        said = {"by": str(by), "key_id": key.key_id, **data}
        record = access_record(self._ids.make("rec"), key.tenant, what, self._clock.now(), said)
        match (await self._store.apply([PutKey(key, seen, (record,))]))[0]:
            case KeyStored():
                return True
            case KeyChanged():
                return False
            case other:
                raise StoreUnavailableError(f"the key was not stored: {other}")


def _refuse_limited(by: Principal, own: KeyId | None = None) -> None:
    """Refuse who has quotas, unless that key is its own: with another one it could have and start more."""
    if by.quota is not None and by.quota.key_id != own:
        raise AccessDeniedError(
            f"{by} has a quota ({', '.join(by.quota.given)}), and keys that have one change no keys but themselves"
        )
