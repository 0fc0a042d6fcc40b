"""Making and changing tenants, on behalf of an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from owlclaw_ray.access.quota_use import accounts_of, quota_use
from owlclaw_ray.domain.callback import MAX_NETWORKS, network_problem
from owlclaw_ray.domain.ledger import access_record
from owlclaw_ray.domain.principal import Principal, check_name, parse_tenant
from owlclaw_ray.domain.quota import (
    MAX_QUOTA,
    NO_QUOTAS,
    Quotas,
    QuotaUse,
)
from owlclaw_ray.domain.retention import MAX_DAYS, NO_RETENTION, Retention
from owlclaw_ray.domain.tenant import MAX_WEIGHT, Deletion, Tenant, TenantStatus
from owlclaw_ray.errors import AccessConflictError, InvalidAccessError, NotFoundError, StoreUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, IdSource, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import PutTenant, TenantChanged, TenantStored
from owlclaw_ray.store.queries import TenantById, TenantPage

_RACES = 5
NOTHING: Mapping[str, str] = MappingProxyType({})


class TenantChange(Struct, frozen=True, omit_defaults=True):
    """What is to be another than it is."""

    name: str | UnsetType = UNSET
    weight: int | UnsetType = UNSET
    status: TenantStatus | UnsetType = UNSET
    quotas: dict[str, int | None] | UnsetType = UNSET
    """Those that change, by their names; None: as much as it likes."""
    retention: dict[str, float | None] | UnsetType = UNSET
    """What changes of it, by its names; None: as the settings of the runtime say."""
    callback_networks: list[str] | UnsetType | None = UNSET
    """All of them; None: as the settings of the runtime say."""


class Tenants:
    """The tenants of a runtime. `made` is called when there is one."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdSource,
        made: Callable[[], None] = lambda: None,
        uncounted: Mapping[str, str] = NOTHING,
    ) -> None:
        """`uncounted`: quotas that this runtime cannot count, each with why."""
        self._made, self._uncounted = made, uncounted
        self._store, self._clock, self._ids = store, clock, ids

    async def create(
        self,
        by: Principal,
        tenant: str,
        name: str = "",
        weight: int = 1,
        quotas: Quotas = NO_QUOTAS,
        *,
        retention: Retention = NO_RETENTION,
        callback_networks: Sequence[str] | None = None,
    ) -> Tenant:
        """Make a tenant. Raises AccessConflictError if there is one of that id, InvalidAccessError, AccessDeniedError, and
        StoreUnavailableError.
        """
        by.require("tenants:admin")
        made = Tenant(
            parse_tenant(tenant),
            name or tenant,
            self._clock.now(),
            str(by),
            weight=weight,
            quotas=quotas,
            retention=retention,
            callback_networks=None if callback_networks is None else tuple(callback_networks),
        )
        self._check(made)
        if made.tenant == DEFAULT_TENANT or not await self._put(by, made, None, "tenant_created"):
            raise AccessConflictError(f"there is a tenant {tenant!r}: take another id")
        self._made()
        return made

    async def tenants(self, after: str = "", limit: int = 1_000) -> Sequence[Tenant]:
        """Return the tenants that were made, by id."""
        return await self._store.read(TenantPage(after, limit))

    async def tenant(self, tenant: TenantId) -> Tenant:
        """Return a tenant; raises NotFoundError."""
        found = await self._store.read(TenantById(tenant))
        if found is None:
            raise NotFoundError("tenant", tenant)
        return found

    async def use(self, tenant: Tenant) -> QuotaUse:
        """Return how much of its quotas a tenant uses at the moment. Raises StoreUnavailableError."""
        return await quota_use(self._store, accounts_of(tenant, self._clock.now()))

    async def change(self, by: Principal, tenant: TenantId, change: TenantChange, *, seen_as: str = "") -> Tenant:
        """Change a tenant, if `seen_as` is its fingerprint or empty, and return it. Raises NotFoundError, InvalidAccessError,
        AccessConflictError, AccessDeniedError, StoreUnavailableError.
        """
        by.require("tenants:admin")
        if change.status is not UNSET and change.status.closed:
            raise InvalidAccessError("status", f"is {change.status.value}", "delete the tenant instead")
        fields = {name: value for name, value in asdict(change).items() if value is not UNSET}
        quotas, retention = fields.pop("quotas", {}), fields.pop("retention", {})
        if isinstance(change.callback_networks, list):
            fields["callback_networks"] = tuple(change.callback_networks)
        for _ in range(_RACES):
            seen = await self.tenant(tenant)
            if seen.status.closed:
                raise AccessConflictError(
                    f"tenant {tenant!r} is {seen.status.value}: nothing of it can be changed any more"
                )
            if seen_as not in {"", seen.fingerprint}:
                raise AccessConflictError(f"tenant {tenant!r} was changed meanwhile: look at what it has now")
            changed = replace(
                seen,
                **fields,
                quotas=replace(seen.quotas, **quotas),
                retention=replace(seen.retention, **retention),
            )
            self._check(changed)
            if changed == seen or await self._put(by, changed, seen, "tenant_changed"):
                return changed
        raise StoreUnavailableError(f"tenant {tenant} is being changed by others")

    async def delete(self, by: Principal, tenant: TenantId) -> Tenant:
        """Have a suspended tenant, and everything of it, be removed for good, and return it as it is now; again changes nothing.

        Raises AccessConflictError for one that is not suspended, and the default one; NotFoundError, AccessDeniedError,
        StoreUnavailableError.
        """
        by.require("tenants:admin")
        if tenant == DEFAULT_TENANT:
            raise AccessConflictError("the default tenant is the operators' own, and cannot be deleted")
        for _ in range(_RACES):
            seen = await self.tenant(tenant)
            if seen.status.closed:
                return seen
            if seen.status is not TenantStatus.SUSPENDED:
                raise AccessConflictError(
                    f"tenant {tenant!r} is {seen.status.value}: suspend it first, with: owlclaw tenants suspend {tenant}"
                )
            closed = replace(seen, status=TenantStatus.DELETING, deletion=Deletion(str(by), self._clock.now()))
            if await self._put(by, closed, seen, "tenant_deletion_requested"):
                return closed
        raise StoreUnavailableError(f"tenant {tenant} is being changed by others")

    async def _put(self, by: Principal, tenant: Tenant, seen: Tenant | None, what: str) -> bool:
        """Store the tenant; return whether nobody else changed it."""
        said = {
            "by": str(by),
            "tenant": tenant.tenant,
            "name": tenant.name,
            "status": tenant.status.value,
            "weight": tenant.weight,
            "quotas": tenant.quotas.given,
            "retention": tenant.retention.given,
            "callback_networks": None if tenant.callback_networks is None else [*tenant.callback_networks],
        }
        record = access_record(self._ids.make("rec"), tenant.tenant, what, self._clock.now(), said)
        match (await self._store.apply([PutTenant(tenant, seen, (record,))]))[0]:
            case TenantStored():
                return True
            case TenantChanged():
                return False
            case other:
                raise StoreUnavailableError(f"the tenant was not stored: {other}")

    def _check(self, tenant: Tenant) -> None:
        check_name(tenant.name)
        if not 1 <= tenant.weight <= MAX_WEIGHT:
            raise InvalidAccessError("weight", f"is {tenant.weight}", f"1 to {MAX_WEIGHT:,}")
        wrong = tenant.quotas.problem()
        if wrong is not None:
            raise InvalidAccessError(
                f"quotas.{wrong[0]}", f"is {wrong[1]}", f"0 to {MAX_QUOTA:,}, or null for as much as it likes"
            )
        too_long = tenant.retention.problem()
        if too_long is not None:
            raise InvalidAccessError(
                f"retention.{too_long[0]}", f"is {too_long[1]:g}", f"0 (for ever) to {MAX_DAYS:,} days, or null"
            )
        networks = tenant.callback_networks or ()
        wrong_network = network_problem(networks)
        if wrong_network or len(networks) > MAX_NETWORKS:
            what = wrong_network or f"are {len(networks)}"
            raise InvalidAccessError("callback_networks", what, f"up to {MAX_NETWORKS} such as 10.1.0.0/16")
        for name in tenant.quotas.given:
            if name in self._uncounted:
                raise InvalidAccessError(f"quotas.{name}", f"cannot be counted: {self._uncounted[name]}", "null")
