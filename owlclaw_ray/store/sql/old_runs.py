"""Removing runs that ended long ago: which may go, and what goes with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, exists, func, select

from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import CallbackId, RunId
from owlclaw_ray.store.commands import ForgetEntries, ForgetRuns, OldRun, RunsForgotten
from owlclaw_ray.store.old_runs import OldRunPage, OldRuns, ParentsOfOpenRuns
from owlclaw_ray.store.sql.codec import load, to_micros
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.dialects import DIALECTS, Dialect, dialect_of
from owlclaw_ray.store.sql.focus_index import term_rows
from owlclaw_ray.store.sql.queries import reads
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.schema import (
    active_run,
    callbacks,
    journal,
    open_schedule,
    runs,
    schedules,
    settled_callback,
    ticks,
)
from owlclaw_ray.store.sql.working_set import RowChange, WorkingSet

CLOCKS_DIFFER = timedelta(hours=1) // timedelta(microseconds=1)
"""By how much a run may have the later time of two, and have been accepted first."""
_AGENT = TriggerKind.AGENT.value


class _Statements:
    """Statements about the runs in the parameter `ids`."""

    def __init__(self, dialect: Dialect) -> None:
        later = ticks.alias("later")
        followed = exists().where(later.c.schedule_id == ticks.c.schedule_id, later.c.due_at > ticks.c.due_at)
        self.open = select(runs.c.run_id).where(dialect.among(runs.c.run_id, "ids"), active_run)
        self.last_of_schedules = (
            select(ticks.c.run_id)
            .join(schedules, schedules.c.schedule_id == ticks.c.schedule_id)
            .where(dialect.among(ticks.c.run_id, "ids"), open_schedule, ~followed)
        )
        self.callbacks = select(callbacks.c.run_id, callbacks.c.callback_id, settled_callback.label("settled")).where(
            dialect.among(callbacks.c.run_id, "ids")
        )
        last = select(func.coalesce(func.max(journal.c.seq), 0)).where(journal.c.run_id == runs.c.run_id)
        self.entries = select(runs.c.run_id, last.scalar_subquery()).where(dialect.among(runs.c.run_id, "ids"))


_STATEMENTS = {each: _Statements(each) for each in DIALECTS}


@reads(OldRuns)
def _read_old_runs(connection: Connection, query: OldRuns) -> OldRunPage:
    """Read the runs in the order of acceptance: none that was accepted after `before` ended before it."""
    columns = (runs.c.seq, runs.c.run_id, runs.c.created_at, runs.c.finished_at, runs.c.status, runs.c.trigger)
    of_tenant = select(*columns).where(runs.c.tenant == query.tenant, runs.c.seq > query.after)
    rows = connection.execute(of_tenant.order_by(runs.c.seq).limit(query.limit)).all()
    before = to_micros(query.before)
    if not rows:
        return OldRunPage((), None)
    oldest = min(row.created_at for row in rows)  # the last one may be of a clock that was ahead
    after = rows[-1].seq if len(rows) == query.limit and oldest < before + CLOCKS_DIFFER else None
    old = {row.run_id: row for row in rows if _ended_before(row, before)}
    if not old:
        return OldRunPage((), after)
    newest = connection.execute(select(func.max(runs.c.seq)).where(runs.c.tenant == query.tenant)).scalar_one()
    found = [row for row in old.values() if row.seq != newest]
    return OldRunPage(tuple(_free(connection, query, found)), after)


def _ended_before(row: Any, before: int) -> bool:
    return RunStatus(row.status).final and row.finished_at is not None and row.finished_at < before


def _free(connection: Connection, query: OldRuns, rows: Sequence[Any]) -> list[OldRun]:
    """Return those on which nothing stands."""
    dialect = dialect_of(connection)
    statements = _STATEMENTS[dialect]

    def read(statement: Any, ids: Collection[str]) -> Sequence[Any]:
        return connection.execute(statement, {"ids": dialect.ids(ids)}).all() if ids else ()

    triggers = {row.run_id: load(row.trigger) for row in rows}
    parents = {
        run_id: trigger["lineage"]["parent_run"]
        for run_id, trigger in triggers.items()
        if trigger["kind"] == _AGENT and trigger.get("lineage")
    }
    open_parents = {row.run_id for row in read(statements.open, {*parents.values()})}
    held = {run_id for run_id, parent in parents.items() if parent in open_parents}
    held |= {row.run_id for row in read(statements.last_of_schedules, triggers)}
    told: defaultdict[str, list[CallbackId]] = defaultdict(list)
    for row in read(statements.callbacks, triggers):
        told[row.run_id].append(row.callback_id)
        if not row.settled:
            held.add(row.run_id)
    entries = {row[0]: row[1] for row in read(statements.entries, triggers.keys() - held)}
    found = []
    for row in rows:
        if row.run_id not in held:
            trigger = triggers[row.run_id]
            terms = term_rows(query.tenant, row.seq, TriggerKind(trigger["kind"]), trigger["focus"])
            words = tuple(term for _, term, _ in terms)
            found.append(OldRun(row.run_id, row.seq, entries.get(row.run_id, 0), tuple(told[row.run_id]), words))
    return found


@reads(ParentsOfOpenRuns)
def _read_parents_of_open_runs(connection: Connection, query: ParentsOfOpenRuns) -> AbstractSet[RunId]:
    found = select(runs.c.trigger).where(runs.c.tenant == query.tenant, active_run, runs.c.kind == _AGENT)
    lineages = (load(text).get("lineage") for text in connection.execute(found).scalars())
    return {RunId(each["parent_run"]) for each in lineages if each}


def _need_runs(needs: RowNeeds, command: ForgetRuns) -> None:
    for run in command.runs:
        needs.runs.add(run.run_id)
        needs.callbacks.update(run.callbacks)


@applies(ForgetRuns, needs=_need_runs)
def forget_runs(store: WorkingSet, command: ForgetRuns) -> RunsForgotten:
    """Remove the runs that are over and told of, with all that is theirs."""
    removed = 0
    for each in command.runs:
        if not _may_go(store, each, command):
            continue
        store.remove(RowChange.REMOVED_RUN, (each.run_id,))
        store.remove(RowChange.REMOVED_JOURNAL, (each.run_id,))
        store.remove(RowChange.REMOVED_APPROVALS, (each.run_id,))
        store.remove(RowChange.REMOVED_CALLBACK, each.callbacks)
        terms = ((command.tenant, term, each.seq) for term in each.terms)
        store.changes[RowChange.REMOVED_TERM].update((term, term) for term in terms)
        for told in each.callbacks:
            store.callbacks.pop(told, None)
        del store.runs[each.run_id]
        removed += 1
    store.changes[RowChange.EXPIRED_KEYS]["expired"] = to_micros(command.expired)
    return RunsForgotten(removed)


def _need_run(needs: RowNeeds, command: ForgetEntries) -> None:
    needs.runs.add(command.run.run_id)
    needs.callbacks.update(command.run.callbacks)


@applies(ForgetEntries, needs=_need_run)
def forget_entries(store: WorkingSet, command: ForgetEntries) -> RunsForgotten:
    """Remove the beginning of the journal of a run that is over and told of."""
    if _may_go(store, command.run, command):
        run_id = command.run.run_id
        store.changes[RowChange.REMOVED_ENTRIES][run_id] = (run_id, command.up_to)
    return RunsForgotten()


def _may_go(store: WorkingSet, run: OldRun, command: ForgetRuns | ForgetEntries) -> bool:
    row = store.runs.get(run.run_id)
    if row is None or row.tenant != command.tenant or not _ended_before(row, to_micros(command.before)):
        return False
    return all(store.callbacks[told].status.settled for told in run.callbacks if told in store.callbacks)
