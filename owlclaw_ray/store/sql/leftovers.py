"""Removing what runs leave behind: ticks, schedules that are over, and texts of prompts; and what tells the time of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, exists, func, or_, select, tuple_

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.schedule import ScheduleKind
from owlclaw_ray.store.commands import (
    ForgetSchedules,
    ForgetTexts,
    ForgetTicks,
    NoteSweep,
    OldSchedule,
    OldTick,
    Swept,
)
from owlclaw_ray.store.old_runs import (
    ClocksOfSweep,
    NamedTextPage,
    NamedTexts,
    OldSchedulePage,
    OldSchedules,
    OldTexts,
    SchedulePlace,
    SweepClocks,
)
from owlclaw_ray.store.sql.answers import named_blobs
from owlclaw_ray.store.sql.codec import (
    agent_key,
    agent_of,
    blob_key,
    digest_of,
    from_micros,
    optional_time,
    tenant_range,
    to_micros,
)
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.dialects import DIALECTS, POSTGRESQL, Dialect, dialect_of
from owlclaw_ray.store.sql.old_runs import CLOCKS_DIFFER
from owlclaw_ray.store.sql.queries import reads
from owlclaw_ray.store.sql.row_codecs import ENTRY_COLUMNS, entry_of
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.schema import blobs, journal, open_schedule, runs, schedules, sweeps, ticks
from owlclaw_ray.store.sql.tenant_rows import is_blob
from owlclaw_ray.store.sql.working_set import RowChange, WorkingSet

_ORDER = (schedules.c.agent, schedules.c.created_at, schedules.c.schedule_id)
_RUN_OF_TICK = exists().where(runs.c.run_id == ticks.c.run_id)
_MAKER = exists().where(runs.c.run_id == schedules.c.created_by_run)
_HAS_TICKS = exists().where(ticks.c.schedule_id == schedules.c.schedule_id)


class _LeftoverStatements:
    """Statements about the schedules in the parameter `ids`."""

    def __init__(self, dialect: Dialect) -> None:
        later = ticks.alias("later")
        followed = exists().where(later.c.schedule_id == ticks.c.schedule_id, later.c.due_at > ticks.c.due_at)
        goes_on = exists().where(schedules.c.schedule_id == ticks.c.schedule_id, open_schedule)
        until = func.coalesce(ticks.c.last_due_at, ticks.c.due_at).label("until")
        self.ticks = (
            select(ticks.c.firing_id, ticks.c.schedule_id, until)
            .where(dialect.among(ticks.c.schedule_id, "ids"), ~_RUN_OF_TICK, or_(followed, ~goes_on))
            .order_by(ticks.c.schedule_id, ticks.c.due_at, ticks.c.firing_id)
        )
        self.over = select(schedules.c.schedule_id).where(
            dialect.among(schedules.c.schedule_id, "ids"), ~_HAS_TICKS, ~_MAKER
        )


_STATEMENTS = {each: _LeftoverStatements(each) for each in DIALECTS}


@reads(OldSchedules)
def _read_old_schedules(connection: Connection, query: OldSchedules) -> OldSchedulePage:
    first, end = tenant_range(query.tenant)
    found = select(*_ORDER, schedules.c.found_over_at, schedules.c.kind, open_schedule.label("is_open"))
    found = found.where(schedules.c.agent >= first, schedules.c.agent < end)
    if query.after is not None:
        place = (agent_key(query.after.agent), to_micros(query.after.created_at), query.after.schedule_id)
        found = found.where(tuple_(*_ORDER) > tuple_(*place))
    page = connection.execute(found.order_by(*_ORDER).limit(query.schedules)).all()
    if not page:
        return OldSchedulePage((), (), (), None)
    dialect, before = dialect_of(connection), to_micros(query.before)
    statements, owners = _STATEMENTS[dialect], {row.schedule_id: agent_of(row.agent) for row in page}
    over = [row for row in page if not row.is_open and row.kind != ScheduleKind.HEARTBEAT.value]
    old = [row.schedule_id for row in over if row.found_over_at is not None and row.found_over_at < before]
    aged = statements.ticks.where(
        ticks.c.due_at < before, ticks.c.at < before, func.coalesce(ticks.c.last_due_at, ticks.c.due_at) < before
    )
    old_ticks = connection.execute(aged.limit(query.ticks), {"ids": dialect.ids(owners)}).all()
    removable = connection.execute(statements.over, {"ids": dialect.ids(old)}).scalars().all() if old else ()
    last = page[-1]
    return OldSchedulePage(
        tuple(
            OldTick(row.firing_id, row.schedule_id, owners[row.schedule_id], from_micros(row.until))
            for row in old_ticks
        ),
        tuple(OldSchedule(each, owners[each]) for each in removable),
        tuple(OldSchedule(row.schedule_id, owners[row.schedule_id]) for row in over if row.found_over_at is None),
        SchedulePlace(owners[last.schedule_id], from_micros(last.created_at), last.schedule_id)
        if len(page) == query.schedules
        else None,
    )


@reads(OldTexts)
def _read_old_texts(connection: Connection, query: OldTexts) -> Sequence[str]:
    after, used_at = blob_key(query.tenant, query.after), blobs.c.used_at
    found = select(blobs.c.hash).where(is_blob(dialect_of(connection), query.tenant), blobs.c.hash > after)
    found = found.where(or_(used_at.is_(None), used_at < to_micros(query.before)))
    return [digest_of(key) for key in connection.execute(found.order_by(blobs.c.hash).limit(query.limit)).scalars()]


@reads(NamedTexts)
def _read_named_texts(connection: Connection, query: NamedTexts) -> NamedTextPage:
    """Read the runs in the order of acceptance, as those that are to be removed are read."""
    of_tenant = select(runs.c.seq, runs.c.run_id, runs.c.created_at)
    of_tenant = of_tenant.where(runs.c.tenant == query.tenant, runs.c.seq > query.after)
    rows = connection.execute(of_tenant.order_by(runs.c.seq).limit(query.limit)).all()
    end = to_micros(query.before) + CLOCKS_DIFFER
    old = [row.run_id for row in rows if row.created_at < end]
    if not old:
        return NamedTextPage(frozenset(), None)
    dialect = dialect_of(connection)
    built = select(*ENTRY_COLUMNS).where(
        dialect.among(journal.c.run_id, "ids"), journal.c.kind == EntryKind.PROMPT_BUILT.value
    )
    named = named_blobs([entry_of(row) for row in connection.execute(built, {"ids": dialect.ids(old)})])
    return NamedTextPage(frozenset(named), rows[-1].seq if len(rows) == query.limit else None)


@reads(ClocksOfSweep)
def _read_clocks(connection: Connection, query: ClocksOfSweep) -> SweepClocks:
    dialect = dialect_of(connection)
    database = connection.execute(select(dialect.now)).scalar_one() if dialect is POSTGRESQL else None
    swept = connection.execute(select(sweeps.c.swept_at).where(sweeps.c.what == query.what.value)).scalar_one_or_none()
    last = select(func.max(runs.c.seq)).scalar_subquery()
    newest = connection.execute(select(runs.c.created_at).where(runs.c.seq == last)).scalar_one_or_none()
    return SweepClocks(optional_time(database), optional_time(swept), optional_time(newest))


def _lock_agents(needs: RowNeeds, agents: Iterable[AgentRef]) -> None:
    """Note whose schedules they are: who fires one, or runs a time of it afterwards, has its agent locked, too."""
    for each in agents:
        needs.agent(each)


@applies(ForgetTicks, needs=lambda needs, command: _lock_agents(needs, (each.agent for each in command.ticks)))
def forget_ticks(store: WorkingSet, command: ForgetTicks) -> Swept:
    """Remove the ticks, and note how far back what became of due times is known."""
    forgotten = store.changes[RowChange.FORGOTTEN_TICKS]
    for each in command.ticks:
        until = to_micros(each.until)
        known = forgotten.get(each.schedule_id, (each.schedule_id, until))[1]
        forgotten[each.schedule_id] = (each.schedule_id, max(until, known))
    store.remove(RowChange.REMOVED_TICK, (each.firing_id for each in command.ticks))
    return Swept()


@applies(
    ForgetSchedules,
    needs=lambda needs, command: _lock_agents(needs, (each.agent for each in (*command.schedules, *command.found))),
)
def forget_schedules(store: WorkingSet, command: ForgetSchedules) -> Swept:
    """Remove the schedules; a backfill may have come first, or somebody else, which the statement sees."""
    at, found = to_micros(command.at), store.changes[RowChange.SCHEDULE_FOUND_OVER]
    found.update((each.schedule_id, (each.schedule_id, at)) for each in command.found)
    store.remove(RowChange.REMOVED_SCHEDULE, (each.schedule_id for each in command.schedules))
    return Swept()


@applies(ForgetTexts, needs=lambda _needs, _command: None)
def forget_texts(store: WorkingSet, command: ForgetTexts) -> Swept:
    """Remove the texts, or renew them; one that somebody stores meanwhile stays, which the statements see."""
    before = to_micros(command.before)
    for change, hashes in ((RowChange.UNUSED_BLOB, command.unused), (RowChange.USED_BLOB, command.used)):
        keys = [blob_key(command.tenant, each) for each in hashes]
        store.changes[change].update((key, (key, before)) for key in keys)
    return Swept()


@applies(NoteSweep, needs=lambda _needs, _command: None)
def note_sweep(store: WorkingSet, command: NoteSweep) -> Swept:
    """Note it; the statement lets none go back."""
    store.changes[RowChange.SWEEP][command.what.value] = (command.what.value, to_micros(command.at))
    return Swept()
