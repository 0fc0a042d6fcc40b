"""Journal entries and ledger records, read from rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import ChainedRecord, LedgerKind, LedgerRecord
from owlclaw_ray.store.sql.codec import agent_of, from_micros, load
from owlclaw_ray.store.sql.schema import journal, ledger

ENTRY_COLUMNS = (journal.c.seq, journal.c.kind, journal.c.at, journal.c.data)
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
RECORD_COLUMNS = tuple(column for column in ledger.c if column.name != "id")


def entry_of(row: Any) -> JournalEntry:
    """Return the entry of a row that has ENTRY_COLUMNS."""
    return JournalEntry(row.seq, EntryKind(row.kind), from_micros(row.at), load(row.data))


def record_of(row: Any) -> ChainedRecord:
    """Return the record of a row that has RECORD_COLUMNS; one that somebody made unreadable comes as a warning that says so.

    The hash of such a record cannot be right.
    """
    position = row.position if isinstance(row.position, int) else 0
    try:
        return _chained(row, position, LedgerKind(row.kind), from_micros(row.at), load(row.data))
    except (ValueError, TypeError, OverflowError):
        return _chained(row, position, LedgerKind.WARNING, _NO_TIME, {"what": "unreadable", "why": str(row.data)})


def _chained(row: Any, position: int, kind: LedgerKind, at: datetime, data: JsonObject) -> ChainedRecord:
    agent = agent_of(row.agent)
    record = LedgerRecord(row.record_id, agent.tenant, agent.agent_id, row.run_id, kind, at, data)
    return ChainedRecord(record, row.writer, position, row.previous_hash, row.hash)
