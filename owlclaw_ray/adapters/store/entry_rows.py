"""Journal entries and ledger records, read from rows."""

from __future__ import annotations

from typing import Any

from owlclaw_ray.adapters.store.codec import agent_of, from_micros, load
from owlclaw_ray.adapters.store.schema import journal, ledger
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import ChainedRecord, LedgerKind, LedgerRecord

ENTRY_COLUMNS = (journal.c.seq, journal.c.kind, journal.c.at, journal.c.data)
RECORD_COLUMNS = tuple(column for column in ledger.c if column.name != "id")


def entry_of(row: Any) -> JournalEntry:
    """Return the entry of a row that has ENTRY_COLUMNS."""
    return JournalEntry(row.seq, EntryKind(row.kind), from_micros(row.at), load(row.data))


def record_of(row: Any) -> ChainedRecord:
    """Return the record of a row that has RECORD_COLUMNS; raises ValueError if somebody made it unreadable."""
    return _chained(row, LedgerKind(row.kind), load(row.data))


def suspect_record_of(row: Any) -> ChainedRecord:
    """Return as record_of, and for an unreadable row one whose hash cannot be right."""
    try:
        return record_of(row)
    except ValueError:
        return _chained(row, LedgerKind.WARNING, {"unreadable": row.data})


def _chained(row: Any, kind: LedgerKind, data: JsonObject) -> ChainedRecord:
    agent = agent_of(row.agent)
    record = LedgerRecord(row.record_id, agent.tenant, agent.agent_id, row.run_id, kind, from_micros(row.at), data)
    return ChainedRecord(record, row.writer, row.position, row.previous_hash, row.hash)
