"""Tenants: who shares a runtime without seeing one another."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from msgspec import Struct

from owlclaw_ray.domain.quota import Quotas
from owlclaw_ray.ids import TenantId

MAX_WEIGHT = 1_000
"""Of a tenant's share; the least is 1."""


class TenantStatus(Enum):
    """What a tenant may do."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    """Its keys are refused, none of its runs begins, and what its schedules are due for is skipped. Nothing of it is lost."""


class Tenant(Struct, frozen=True):
    """A tenant. The default one exists from the start, without a row."""

    tenant: TenantId
    name: str
    """For people."""
    created_at: datetime
    created_by: str
    status: TenantStatus = TenantStatus.ACTIVE
    weight: int = 1
    """Its share of what is scarce, beside the weights of the others."""
    quotas: Quotas = Quotas()
