"""What the ledger is told about access."""

from __future__ import annotations

from datetime import datetime

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.ids import AgentId, RecordId, RunId, TenantId


def access_record(record_id: str, tenant: TenantId, what: str, at: datetime, data: JsonObject) -> LedgerRecord:
    """Return a record of the kind `access`: what happened, and what there is to it."""
    return LedgerRecord(
        RecordId(record_id), tenant, AgentId(""), RunId(""), LedgerKind.ACCESS, at, {"what": what, **data}
    )
