"""Commands about who may do what: access keys and tenants. A row is written by who has seen it as it is."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.access_key import AccessKey
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.ids import KeyId


class PutKey(Struct, frozen=True):
    """Store a key, if what is stored of it is what was `seen`, whenever it was used (None: there is none), with records of the ledger.

    Outcome: KeyStored, or KeyChanged.
    """

    key: AccessKey
    seen: AccessKey | None = None
    records: tuple[LedgerRecord, ...] = ()


class NoteKeyUse(Struct, frozen=True):
    """Note when a key was used last; with its first use, the records go to the ledger. Outcome: KeyUseNoted."""

    key_id: KeyId
    at: datetime
    first: tuple[LedgerRecord, ...] = ()


class PutTenant(Struct, frozen=True):
    """Store a tenant, if what is stored of it is what was `seen` (None: there is none), with records of the ledger. Its quotas count what
    there is from this commit on.

    Outcome: TenantStored, or TenantChanged.
    """

    tenant: Tenant
    seen: Tenant | None = None
    records: tuple[LedgerRecord, ...] = ()


class KeyStored(Struct, frozen=True):
    """The key is durable as it was given, or was before."""


class KeyChanged(Struct, frozen=True):
    """Nothing was stored: somebody else changed the key."""

    key: AccessKey | None


class KeyUseNoted(Struct, frozen=True):
    """The use is noted, if there is such a key."""


class TenantStored(Struct, frozen=True):
    """The tenant is durable as it was given, or was before."""


class TenantChanged(Struct, frozen=True):
    """Nothing was stored: somebody else changed the tenant."""

    tenant: Tenant | None
