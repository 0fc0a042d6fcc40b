"""The queries by which the export of traces follows the ends of runs, answered by SQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, func, or_, select

from owlclaw_ray.domain.embedding import EmbeddingPurpose
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.ledger import Chain, LedgerKind, LedgerRecord
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.store.run_ends import (
    ChainPositions,
    EndedRunCount,
    EndedRuns,
    ExportPositions,
    FactsOfRuns,
    RunFacts,
    RunsEndedAfter,
)
from owlclaw_ray.store.sql.codec import blob_keys, digest_of, load
from owlclaw_ray.store.sql.dialects import DIALECTS, Dialect, dialect_of
from owlclaw_ray.store.sql.queries import reads, run_of_row
from owlclaw_ray.store.sql.row_codecs import ENTRY_COLUMNS, RECORD_COLUMNS, entry_of, record_of
from owlclaw_ray.store.sql.schema import blobs, export_positions, journal, ledger, ledger_heads, runs
from owlclaw_ray.store.sql.trace_export import BEGUN

_KNOWN = (EntryKind.RUN_QUEUED.value, EntryKind.RUN_STARTED.value, EntryKind.RUN_FINISHED.value)
"""What the row of a run says too."""


@reads(ChainPositions)
def _read_chain_positions(connection: Connection, _query: ChainPositions) -> Mapping[Chain, int]:
    found = select(ledger_heads.c.tenant, ledger_heads.c.writer, ledger_heads.c.position)
    return {Chain(TenantId(row.tenant), row.writer): row.position for row in connection.execute(found)}


@reads(ExportPositions)
def _read_export_positions(connection: Connection, _query: ExportPositions) -> Mapping[Chain, int] | None:
    c = export_positions.c
    rows = connection.execute(select(c.tenant, c.writer, c.position)).all()
    found = {Chain(TenantId(row.tenant), row.writer): row.position for row in rows}
    return {chain: position for chain, position in found.items() if chain != BEGUN} if found else None


@reads(RunsEndedAfter)
def _read_runs_ended_after(connection: Connection, query: RunsEndedAfter) -> EndedRuns:
    chain = query.chain
    head = select(ledger_heads.c.position).where(
        ledger_heads.c.tenant == chain.tenant, ledger_heads.c.writer == chain.writer
    )
    until = connection.execute(head).scalar_one()
    ends = select(ledger.c.position, ledger.c.run_id).where(_ends(chain, query.after))
    rows = connection.execute(ends.order_by(ledger.c.position).limit(query.most)).all()
    found = tuple((row.position, RunId(row.run_id)) for row in rows)
    return EndedRuns(found, found[-1][0] if len(found) == query.most else until)


@reads(EndedRunCount)
def _read_ended_run_count(connection: Connection, query: EndedRunCount) -> int:
    counted = select(func.count()).select_from(ledger).where(_ends(query.chain, query.after))
    return int(connection.execute(counted).scalar_one())


class _FactStatements:
    """Statements that read what is known of many runs at once."""

    def __init__(self, dialect: Dialect) -> None:
        of_runs = dialect.among(ledger.c.run_id, "ids")
        told = or_(ledger.c.data.contains('"failed_attempts"'), ledger.c.data.contains('"error"'))
        of_vectors = ledger.c.data.contains('"purpose"')
        untold = dialect.among(journal.c.run_id, "ids") & journal.c.kind.not_in(_KNOWN)
        self.runs = select(runs).where(dialect.among(runs.c.run_id, "ids"))
        self.entries = select(journal.c.run_id, *ENTRY_COLUMNS).where(untold).order_by(journal.c.run_id, journal.c.seq)
        self.calls = (
            select(*RECORD_COLUMNS)
            .where(of_runs, ledger.c.kind == LedgerKind.MODEL_CALL.value, or_(told, of_vectors))
            .order_by(ledger.c.at)
        )
        self.blobs = select(blobs.c.hash, blobs.c.content).where(dialect.among(blobs.c.hash, "ids"))


_FACT_STATEMENTS = {each: _FactStatements(each) for each in DIALECTS}


@reads(FactsOfRuns)
def _read_facts_of_runs(connection: Connection, query: FactsOfRuns) -> Sequence[RunFacts]:
    """Read with as many statements for many runs as for one."""
    dialect = dialect_of(connection)
    statements = _FACT_STATEMENTS[dialect]
    ids = {"ids": dialect.ids(query.runs)}
    found = {row.run_id: run_of_row(row) for row in connection.execute(statements.runs, ids)}
    journals: dict[str, list[JournalEntry]] = defaultdict(list)
    for row in connection.execute(statements.entries, ids):
        journals[row.run_id].append(entry_of(row))
    failures: dict[str, list[LedgerRecord]] = defaultdict(list)
    indexing: dict[str, list[LedgerRecord]] = defaultdict(list)
    for row in connection.execute(statements.calls, ids):
        record = record_of(row).record
        match record.data.get("purpose"):
            case None:
                failures[row.run_id].append(record)
            case EmbeddingPurpose.INDEX.value:
                indexing[row.run_id].append(record)
    prompts = {
        run_id: tuple(entry.data["system"] for entry in entries if entry.kind is EntryKind.PROMPT_BUILT)
        for run_id, entries in journals.items()
    }
    texts: dict[str, str] = {}
    keys = {
        key for each in found for digest in prompts.get(each, ()) for key in blob_keys(found[each].agent.tenant, digest)
    }
    if keys:
        rows = connection.execute(statements.blobs, {"ids": dialect.ids(keys)})
        texts = {digest_of(row.hash): load(row.content) for row in rows}
    return [
        RunFacts(
            found[run_id],
            tuple(journals[run_id]),
            tuple(failures[run_id]),
            tuple(indexing[run_id]),
            {digest: texts[digest] for digest in prompts.get(run_id, ()) if digest in texts},
        )
        for run_id in query.runs
        if run_id in found
    ]


def _ends(chain: Chain, after: int) -> ColumnElement[bool]:
    return (
        (ledger.c.tenant == chain.tenant)
        & (ledger.c.writer == chain.writer)
        & (ledger.c.position > after)
        & (ledger.c.kind == LedgerKind.RUN.value)
    )
