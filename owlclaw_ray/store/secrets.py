"""Queries of the secrets of tenants, which are encrypted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.secret import Secret
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.queries import Query


class StoredSecret(Struct, frozen=True):
    """A secret as it is in the store."""

    tenant: TenantId
    secret: Secret
    ciphertext: bytes


class SecretByName(Query["StoredSecret | None"], frozen=True):
    """The tenant's secret of that name, or None."""

    tenant: TenantId
    name: str


class SecretsOfTenant(Query[Sequence[StoredSecret]], frozen=True):
    """All secrets of the tenant, by name."""

    tenant: TenantId


class SecretsSince(Query[Sequence[StoredSecret]], frozen=True):
    """The secrets of all tenants whose values were set or encrypted anew at that time or later; None: all."""

    at: datetime | None = None
