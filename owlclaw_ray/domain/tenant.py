"""Tenants: who shares a runtime without seeing one another."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from hashlib import sha256

from msgspec import Struct, field

from owlclaw_ray.domain.quota import Quotas
from owlclaw_ray.domain.retention import Retention
from owlclaw_ray.ids import TenantId

MAX_WEIGHT = 1_000
"""Of a tenant's share; the least is 1."""


class TenantStatus(Enum):
    """What a tenant may do."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    """Its keys are refused, none of its runs begins, and what its schedules are due for is skipped. Nothing of it is lost."""
    DELETING = "deleting"
    """Nothing is stored for it any more, and what it has is being removed. There is no way back."""
    DELETED = "deleted"
    """Nothing of it is left but this row, which keeps its id from being used again, and its ledger, to which nothing is added."""

    @property
    def closed(self) -> bool:
        """Whether nothing is stored for it any more."""
        return self in {TenantStatus.DELETING, TenantStatus.DELETED}


class Deletion(Struct, frozen=True, omit_defaults=True):
    """What became of the wish to delete a tenant."""

    by: str
    """Who wanted it."""
    requested_at: datetime
    removed: dict[str, int] = field(default_factory=dict)
    """How many rows of each table, and how many files of each place, were removed so far."""
    checked_at: datetime | None = None
    """When it was last looked for what is left, after nothing more was found to be removed."""
    left: dict[str, int] = field(default_factory=dict)
    """What was found then, as `removed`; nothing once the tenant is deleted."""
    unreached: tuple[str, ...] = ()
    """Nodes whose own folders could not be looked at then: there may be files of the tenant in them."""
    deleted_at: datetime | None = None


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
    deletion: Deletion | None = None
    retention: Retention = Retention()
    callback_networks: tuple[str, ...] | None = None
    """Where its callbacks may go besides public addresses, in the place of what the settings say; None: as they say."""

    @property
    def fingerprint(self) -> str:
        """What tells the tenant from what it is after somebody has changed it."""
        said = (self.name, self.status.value, self.weight, self.quotas, self.retention, self.callback_networks)
        return sha256(repr(said).encode()).hexdigest()[:16]
