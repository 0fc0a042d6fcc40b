"""Commands by which a tenant is deleted, once its row says that it is being deleted. Each is small, and repeating it does no harm."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct, field

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.ids import RunId, TenantId


class EndRun(Struct, frozen=True):
    """End a run as cancelled, whoever executes it: its agent has another epoch from then on. One that is over stays as it is.

    Outcome: RunIsOver.
    """

    agent: AgentRef
    run_id: RunId
    at: datetime


class RemoveTenantRows(Struct, frozen=True):
    """Remove some rows of a tenant that is being deleted, as many as one transaction should; count them, and `files`, as removed.

    Outcome: TenantRowsRemoved.
    """

    tenant: TenantId
    files: Mapping[str, int] = field(default_factory=dict)


class SealTenant(Struct, frozen=True):
    """Have a tenant be deleted, with a last record in its ledger, if no rows of it are left, and no files: `left` of each place.

    Outcome: TenantSealed, or TenantLeft.
    """

    tenant: TenantId
    at: datetime
    left: Mapping[str, int] = field(default_factory=dict)
    unreached: tuple[str, ...] = ()
    """Nodes whose own folders could not be looked at."""


class RunIsOver(Struct, frozen=True):
    """The run is over."""


class TenantRowsRemoved(Struct, frozen=True):
    """How many rows of each table are gone by this; none, if nothing was found."""

    removed: Mapping[str, int]


class TenantSealed(Struct, frozen=True):
    """The tenant is deleted, and nothing can be added to its ledger."""


class TenantLeft(Struct, frozen=True):
    """Nothing was sealed: so many rows of tables, and files of places, are left."""

    left: Mapping[str, int]
