"""Secrets of tenants in the store: what commands do to the working set, and the answers to queries."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Row, select

from owlclaw_ray.domain.secret import Secret
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.commands import DeleteSecret, PutSecret, ReplaceCiphertext, SecretsChanged
from owlclaw_ray.store.secrets import SecretByName, SecretsOfTenant, SecretsSince, StoredSecret
from owlclaw_ray.store.sql.codec import from_micros, to_micros
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.queries import reads
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.schema import secrets
from owlclaw_ray.store.sql.working_set import RowChange, WorkingSet


def _need_nothing(_needs: RowNeeds, _command: object) -> None:
    """What is written does not depend on what is there."""


@applies(PutSecret, needs=_need_nothing)
def put(store: WorkingSet, command: PutSecret) -> SecretsChanged:
    """Write the row: after a removal in the same batch, and in the place of what was set before in it."""
    key, at = (command.tenant, command.name), to_micros(command.at)
    store.changes[RowChange.SECRET][key] = (*key, command.key_id, command.ciphertext, at, at, command.by)
    store.changes[RowChange.REPLACED_CIPHERTEXT].pop(key, None)
    return SecretsChanged()


@applies(ReplaceCiphertext, needs=_need_nothing)
def replace_ciphertext(store: WorkingSet, command: ReplaceCiphertext) -> SecretsChanged:
    """Write the ciphertext if the row still has the one before."""
    key, at = (command.tenant, command.name), to_micros(command.at)
    store.changes[RowChange.REPLACED_CIPHERTEXT][key] = (command.key_id, command.ciphertext, at, *key, command.before)
    return SecretsChanged()


@applies(DeleteSecret, needs=_need_nothing)
def delete(store: WorkingSet, command: DeleteSecret) -> SecretsChanged:
    """Remove the row."""
    key = command.tenant, command.name
    for change in (RowChange.SECRET, RowChange.REPLACED_CIPHERTEXT):
        store.changes[change].pop(key, None)
    store.changes[RowChange.REMOVED_SECRET][key] = key
    return SecretsChanged()


@reads(SecretByName)
def _read_secret(connection: Connection, query: SecretByName) -> StoredSecret | None:
    found = select(secrets).where(secrets.c.tenant == query.tenant, secrets.c.name == query.name)
    row = connection.execute(found).one_or_none()
    return None if row is None else _stored(row)


@reads(SecretsOfTenant)
def _read_secrets_of_tenant(connection: Connection, query: SecretsOfTenant) -> Sequence[StoredSecret]:
    found = select(secrets).where(secrets.c.tenant == query.tenant).order_by(secrets.c.name)
    return [_stored(row) for row in connection.execute(found)]


@reads(SecretsSince)
def _read_secrets_since(connection: Connection, query: SecretsSince) -> Sequence[StoredSecret]:
    found = select(secrets).order_by(secrets.c.rotated_at)
    if query.at is not None:
        found = found.where(secrets.c.rotated_at >= to_micros(query.at))
    return [_stored(row) for row in connection.execute(found)]


def _stored(row: Row[tuple[object, ...]]) -> StoredSecret:
    about = Secret(row.name, row.key_id, from_micros(row.created_at), from_micros(row.rotated_at), row.created_by)
    return StoredSecret(TenantId(row.tenant), about, bytes(row.ciphertext))
