"""Queries of what a tenant has in the store: for those who delete it, and for those who export it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.store.queries import Query


class OpenRun(Struct, frozen=True):
    """A run that is not over."""

    agent: AgentRef
    run_id: RunId
    queued: bool


class OpenRuns(Query[Sequence[OpenRun]], frozen=True):
    """Runs of a tenant that are not over, the oldest first."""

    tenant: TenantId
    limit: int


class RowsLeft(Query[Mapping[str, int]], frozen=True):
    """How many rows of each table a tenant has, of those tables that its deletion empties; none where there are none."""

    tenant: TenantId


class RowPage(Struct, frozen=True):
    """Rows of a table, as JSON."""

    rows: Sequence[JsonObject]
    after: tuple[str | int, ...] | None
    """Where to go on; None at the end."""
    keys: Sequence[str]
    """The ids of these rows by which those of other tables name them."""


class TenantRowPage(Query[RowPage], frozen=True):
    """A page of a tenant's rows of a table, in an order that stays.

    Times are texts with their zone, bytes are Base64, and JSON is JSON; values of secrets and hashes of keys are left out.
    """

    tenant: TenantId
    table: str
    after: tuple[str | int, ...] | None = None
    limit: int = 200
    parents: tuple[str, ...] | None = None
    """Of tables whose rows belong to those of another one (entries to runs, ticks to schedules): to which of these."""
