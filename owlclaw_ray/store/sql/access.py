"""Access keys and tenants, on the working set, and as they are read."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from sqlalchemy import Connection, exists, or_, select

from owlclaw_ray.domain.access_key import AccessKey
from owlclaw_ray.domain.budget import BudgetUse
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.store.commands import (
    KeyChanged,
    KeyStored,
    KeyUseNoted,
    NoteKeyUse,
    PutKey,
    PutTenant,
    TenantChanged,
    TenantStored,
)
from owlclaw_ray.store.queries import BudgetUses, IsAccessControlled, KeyById, KeysOfTenant, TenantById, TenantPage
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.queries import reads
from owlclaw_ray.store.sql.row_codecs import KEYS, TENANTS
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.schema import access_keys, budgets, tenants
from owlclaw_ray.store.sql.working_set import WorkingSet


def _need_key(needs: RowNeeds, command: PutKey) -> None:
    needs.access_keys.add(command.key.key_id)
    needs.record(command.records)


@applies(PutKey, needs=_need_key)
def put_key(store: WorkingSet, command: PutKey) -> KeyStored | KeyChanged:
    """Store the key if nobody changed it."""
    stored = store.access_keys.get(command.key.key_id)
    if not _is_same(stored, command.key):
        if not _is_same(stored, command.seen):
            return KeyChanged(stored)
        used = command.key.last_used_at if stored is None else stored.last_used_at
        store.put_key(replace(command.key, last_used_at=used))
    store.record(command.records)
    return KeyStored()


def _is_same(stored: AccessKey | None, other: AccessKey | None) -> bool:
    if stored is None or other is None:
        return stored is other
    return replace(stored, last_used_at=None) == replace(other, last_used_at=None)


def _need_use(needs: RowNeeds, command: NoteKeyUse) -> None:
    needs.access_keys.add(command.key_id)
    needs.record(command.first)


@applies(NoteKeyUse, needs=_need_use)
def note_use(store: WorkingSet, command: NoteKeyUse) -> KeyUseNoted:
    """Move the time of the last use on."""
    stored = store.access_keys.get(command.key_id)
    if stored is not None and (stored.last_used_at is None or stored.last_used_at < command.at):
        if stored.last_used_at is None:
            store.record(command.first)
        store.put_key(replace(stored, last_used_at=command.at))
    return KeyUseNoted()


def _need_tenant(needs: RowNeeds, command: PutTenant) -> None:
    needs.tenants.add(command.tenant.tenant)
    needs.record(command.records)


@applies(PutTenant, needs=_need_tenant)
def put_tenant(store: WorkingSet, command: PutTenant) -> TenantStored | TenantChanged:
    """Store the tenant if nobody changed it."""
    stored = store.tenants.get(command.tenant.tenant)
    if stored != command.tenant:
        if stored != command.seen:
            return TenantChanged(stored)
        store.put_tenant(command.tenant)
    store.record(command.records)
    return TenantStored()


@reads(KeyById)
def _read_key(connection: Connection, query: KeyById) -> AccessKey | None:
    found = select(*KEYS.columns).where(access_keys.c.key_id == query.key_id)
    if query.tenant is not None:
        found = found.where(access_keys.c.tenant == query.tenant)
    row = connection.execute(found).one_or_none()
    return None if row is None else KEYS.fact(row)


@reads(KeysOfTenant)
def _read_keys(connection: Connection, query: KeysOfTenant) -> Sequence[AccessKey]:
    found = (
        select(*KEYS.columns)
        .where(access_keys.c.tenant == query.tenant, access_keys.c.key_id > query.after)
        .order_by(access_keys.c.key_id)
        .limit(query.limit)
    )
    return [KEYS.fact(row) for row in connection.execute(found)]


@reads(TenantById)
def _read_tenant(connection: Connection, query: TenantById) -> Tenant | None:
    row = connection.execute(select(*TENANTS.columns).where(tenants.c.tenant == query.tenant)).one_or_none()
    return None if row is None else TENANTS.fact(row)


@reads(BudgetUses)
def _read_uses(connection: Connection, query: BudgetUses) -> Sequence[BudgetUse]:
    found = select(budgets.c.account, budgets.c.used, budgets.c.reserved).where(budgets.c.account.in_(query.accounts))
    return [BudgetUse(*row) for row in connection.execute(found)]


@reads(TenantPage)
def _read_tenants(connection: Connection, query: TenantPage) -> Sequence[Tenant]:
    found = select(*TENANTS.columns).where(tenants.c.tenant > query.after).order_by(tenants.c.tenant).limit(query.limit)
    if query.status is not None:
        found = found.where(tenants.c.status == query.status.value)
    return [TENANTS.fact(row) for row in connection.execute(found)]


@reads(IsAccessControlled)
def _read_controlled(connection: Connection, _query: IsAccessControlled) -> bool:
    return bool(connection.execute(select(or_(exists(select(access_keys)), exists(select(tenants))))).scalar_one())
