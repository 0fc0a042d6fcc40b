"""Queries of what follows the ends of runs; see ports.tracing."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, or_, select

from owlclaw_ray.domain.embedding import EmbeddingPurpose
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.store.run_ends import Chain, EndedRuns, RunFacts
from owlclaw_ray.store.sql.codec import load
from owlclaw_ray.store.sql.dialects import Dialect
from owlclaw_ray.store.sql.entry_rows import ENTRY_COLUMNS, RECORD_COLUMNS, entry_of, record_of
from owlclaw_ray.store.sql.queries import run_of_row
from owlclaw_ray.store.sql.schema import blobs, journal, ledger, ledger_heads, runs

_KNOWN = (EntryKind.RUN_QUEUED.value, EntryKind.RUN_STARTED.value, EntryKind.RUN_FINISHED.value)
"""What the row of a run says too."""


def read_chains(connection: Connection) -> Mapping[Chain, int]:
    """As RunEnds.chains."""
    found = select(ledger_heads.c.tenant, ledger_heads.c.writer, ledger_heads.c.position)
    return {Chain(TenantId(row.tenant), row.writer): row.position for row in connection.execute(found)}


def read_ended(connection: Connection, chain: Chain, after: int, most: int) -> EndedRuns:
    """As RunEnds.ended."""
    head = select(ledger_heads.c.position).where(
        ledger_heads.c.tenant == chain.tenant, ledger_heads.c.writer == chain.writer
    )
    until = connection.execute(head).scalar_one()
    ends = select(ledger.c.position, ledger.c.run_id).where(_ends(chain, after))
    rows = connection.execute(ends.order_by(ledger.c.position).limit(most)).all()
    found = tuple((row.position, RunId(row.run_id)) for row in rows)
    return EndedRuns(found, found[-1][0] if len(found) == most else until)


def read_backlog(connection: Connection, chain: Chain, after: int) -> int:
    """As RunEnds.backlog."""
    counted = select(func.count()).select_from(ledger).where(_ends(chain, after))
    return int(connection.execute(counted).scalar_one())


class RunFactReader:
    """Reads what is known of runs, with statements that are made once."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        of_runs = dialect.among(ledger.c.run_id, "ids")
        told = or_(ledger.c.data.contains('"failed_attempts"'), ledger.c.data.contains('"error"'))
        of_vectors = ledger.c.data.contains('"purpose"')
        untold = dialect.among(journal.c.run_id, "ids") & journal.c.kind.not_in(_KNOWN)
        self._runs = select(runs).where(dialect.among(runs.c.run_id, "ids"))
        self._entries = select(journal.c.run_id, *ENTRY_COLUMNS).where(untold).order_by(journal.c.run_id, journal.c.seq)
        self._calls = (
            select(*RECORD_COLUMNS)
            .where(of_runs, ledger.c.kind == LedgerKind.MODEL_CALL.value, or_(told, of_vectors))
            .order_by(ledger.c.at)
        )
        self._blobs = select(blobs.c.hash, blobs.c.content).where(dialect.among(blobs.c.hash, "ids"))

    def read(self, connection: Connection, wanted: Sequence[RunId]) -> Sequence[RunFacts]:
        """As RunEnds.facts, with as many statements for many runs as for one."""
        ids = {"ids": self._dialect.ids(wanted)}
        found = {row.run_id: run_of_row(row) for row in connection.execute(self._runs, ids)}
        journals = _journals(connection.execute(self._entries, ids))
        failures: dict[str, list[LedgerRecord]] = defaultdict(list)
        indexing: dict[str, list[LedgerRecord]] = defaultdict(list)
        for row in connection.execute(self._calls, ids):
            record = record_of(row).record
            match record.data.get("purpose"):
                case None:
                    failures[row.run_id].append(record)
                case EmbeddingPurpose.INDEX.value:
                    indexing[row.run_id].append(record)
        named = {run_id: _system_prompts(entries) for run_id, entries in journals.items()}
        texts = self._texts(connection, set(itertools.chain.from_iterable(named.values())))
        return [
            RunFacts(
                found[run_id],
                tuple(journals[run_id]),
                tuple(failures[run_id]),
                tuple(indexing[run_id]),
                {digest: texts[digest] for digest in named.get(run_id, ()) if digest in texts},
            )
            for run_id in wanted
            if run_id in found
        ]

    def _texts(self, connection: Connection, hashes: set[str]) -> dict[str, str]:
        if not hashes:
            return {}
        rows = connection.execute(self._blobs, {"ids": self._dialect.ids(hashes)})
        return {row.hash: load(row.content) for row in rows}


def _ends(chain: Chain, after: int) -> ColumnElement[bool]:
    return (
        (ledger.c.tenant == chain.tenant)
        & (ledger.c.writer == chain.writer)
        & (ledger.c.position > after)
        & (ledger.c.kind == LedgerKind.RUN.value)
    )


def _system_prompts(entries: Iterable[JournalEntry]) -> tuple[str, ...]:
    return tuple(entry.data["system"] for entry in entries if entry.kind is EntryKind.PROMPT_BUILT)


def _journals(rows: Iterable[Any]) -> dict[str, list[JournalEntry]]:
    journals: dict[str, list[JournalEntry]] = defaultdict(list)
    for row in rows:
        journals[row.run_id].append(entry_of(row))
    return journals
