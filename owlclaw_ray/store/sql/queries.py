"""Queries of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec.structs import replace
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Subquery,
    Table,
    and_,
    case,
    exists,
    func,
    null,
    select,
    tuple_,
)

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import Approval, ApprovalStatus
from owlclaw_ray.domain.callback import Callback
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.ledger import ChainBreak, ChainedRecord
from owlclaw_ray.domain.quota import RUNNING_RUNS, RUNNING_RUNS_OF_KEY
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind, ScheduleStatus, Tick, TickOutcome
from owlclaw_ray.domain.task import Task
from owlclaw_ray.domain.tenant import TenantStatus
from owlclaw_ray.domain.webhook import Delivery
from owlclaw_ray.ids import DEFAULT_TENANT, AgentId, CallbackId, DeliveryId, RunId, ScheduleId, TenantId
from owlclaw_ray.ledger.chain import ChainHead, verify
from owlclaw_ray.store.commands import ClusterNode, NodeState, RunEnded
from owlclaw_ray.store.queries import (
    STRETCH,
    ActiveRunCounts,
    AgentByRef,
    AgentPage,
    AgentQueue,
    AgentRecord,
    AgentsByIds,
    AgentsByKeyPrefix,
    AgentsOfDefinition,
    AgentsWithWork,
    ApprovalById,
    ApprovalFilter,
    CallbackById,
    CallbackFilter,
    ChainPage,
    ChangedRuns,
    ClusterNodes,
    ComingSchedules,
    DeliveryById,
    DeliveryFilter,
    DueCallbacks,
    DueSchedules,
    DueUpkeep,
    EntriesOfKinds,
    ExpiredApprovals,
    HeadsOfWriter,
    JournalOfRun,
    JournalTail,
    LedgerBreaks,
    LedgerChain,
    LedgerChains,
    LedgerFilter,
    LedgerPlace,
    LedgerStretch,
    LedgerWriters,
    LongestQueues,
    MissingLedgerGuards,
    NextChainPage,
    NextDueTime,
    NextLedgerStretch,
    OldCallbacks,
    OldDeliveries,
    PausedHeartbeats,
    PendingApprovalCounts,
    PendingCallbackCount,
    Place,
    ProgressOfRuns,
    PromptTexts,
    Query,
    ReleasedRuns,
    RunById,
    RunFilter,
    RunProgress,
    ScheduleById,
    ScheduleFilter,
    SchedulesByIds,
    TaskById,
    TasksOfAgent,
    TicksOfSchedule,
    TickSum,
    TickSums,
    UpcomingSchedules,
    Upkeep,
    WaitingDeliveries,
)
from owlclaw_ray.store.sql.answers import named_blobs
from owlclaw_ray.store.sql.codec import (
    agent_key,
    agent_of,
    blob_keys,
    digest_of,
    dump,
    from_micros,
    load,
    load_result,
    load_state,
    load_trigger,
    optional_time,
    tenant_key,
    tenant_range,
    to_micros,
)
from owlclaw_ray.store.sql.dialects import DIALECTS, Dialect, dialect_of
from owlclaw_ray.store.sql.ledger_guard import missing_guards
from owlclaw_ray.store.sql.queue_order import priority_of
from owlclaw_ray.store.sql.quotas import free_places, free_places_of, free_places_of_keys
from owlclaw_ray.store.sql.row_codecs import (
    APPROVALS,
    BRIEF_DELIVERY_COLUMNS,
    CALLBACKS,
    DELIVERIES,
    ENTRY_COLUMNS,
    NODES,
    RECORD_COLUMNS,
    SCHEDULES,
    TASKS,
    TICKS,
    approval_of,
    entry_of,
    record_of,
)
from owlclaw_ray.store.sql.schema import (
    QUEUED,
    RUNNING,
    WAITING,
    active_run,
    active_schedule,
    agents,
    approvals,
    awaiting_run,
    begun_run,
    blobs,
    callbacks,
    cluster_lease,
    cluster_nodes,
    executed_run,
    has_open_breaker,
    journal,
    key_run,
    ledger,
    ledger_heads,
    open_schedule,
    pending_approval,
    pending_callback,
    runs,
    schedules,
    settled_callback,
    tasks,
    tenants,
    ticks,
    waiting_delivery,
    webhook_deliveries,
)
from owlclaw_ray.store.sql.working_set import EPOCH_AFTER_WAIT, awaited_by

_PAGE = 500
_LAST_CHARACTER = "\U0010ffff"
BRIEF_RUN_COLUMNS = (*(column for column in runs.c if column is not runs.c.payload), null().label("payload"))
_PROGRESS_ROWS, _PROGRESS_CHARACTERS = 2_000, 4_000_000
"""Of journals that are followed, in one answer."""
_SCHEDULE_ORDER = (schedules.c.agent, schedules.c.created_at, schedules.c.schedule_id)
_queued_runs = (
    select(func.count())
    .select_from(runs)
    .where(runs.c.agent == agents.c.agent, runs.c.status == QUEUED, active_run)
    .correlate(agents)
    .scalar_subquery()
)
_running_run = (
    select(func.max(runs.c.run_id)).where(runs.c.agent == agents.c.agent, begun_run).correlate(agents).scalar_subquery()
)
_running_status = (
    select(func.max(runs.c.status)).where(runs.c.agent == agents.c.agent, begun_run).correlate(agents).scalar_subquery()
)
_agents = select(
    agents,
    _queued_runs.label("queued_runs"),
    _running_run.label("running_run"),
    _running_status.label("running_status"),
)


_READERS: dict[type[Query[Any]], Callable[[Connection, Any], Any]] = {}
_Q = TypeVar("_Q", bound=Query[Any])
_T = TypeVar("_T")


def reads(query: type[Query[_T]]) -> Callable[[Callable[[Connection, _Q], _T]], Callable[[Connection, _Q], _T]]:
    """Have the function answer queries of this type; mypy checks that its answer is the type's."""

    def register(function: Callable[[Connection, _Q], _T]) -> Callable[[Connection, _Q], _T]:
        _READERS[query] = function
        return function

    return register


def answer(connection: Connection, query: Query[_T]) -> _T:
    """Return the query's answer."""
    found: _T = _READERS[type(query)](connection, query)
    return found


@reads(RunById)
def _read_run(connection: Connection, query: RunById) -> Run | None:
    found = select(runs).where(runs.c.run_id == query.run_id, runs.c.tenant == query.tenant)
    row = connection.execute(found).one_or_none()
    return None if row is None else _with_waits(connection, query.tenant, [row])[0]


def _with_waits(connection: Connection, tenant: TenantId, rows: Sequence[Any]) -> list[Run]:
    """Return the runs of a tenant, and of those that wait for a place among its running ones that they do."""
    found, waiting = [run_of_row(row) for row in rows], {row.run_id for row in rows if _is_to_begin(row)}
    if not waiting:
        return found
    if tenant != DEFAULT_TENANT and not free_places(connection, tenant).get(tenant, 1):
        return [replace(run, waits_for=RUNNING_RUNS) if run.run_id in waiting else run for run in found]
    counting = {row.run_id: row.counts_for for row in rows if row.counts_for is not None and row.run_id in waiting}
    if not counting:
        return found
    of_keys = free_places_of_keys(connection, tenant)
    full = {run_id for run_id, counts_for in counting.items() if free_places_of(counts_for, of_keys) == 0}
    return [replace(run, waits_for=RUNNING_RUNS_OF_KEY) if run.run_id in full else run for run in found]


def _is_to_begin(row: Any) -> bool:
    resumes: bool = row.status == RunStatus.RUNNING.value and row.claimed_epoch == EPOCH_AFTER_WAIT
    return resumes or bool(row.status == RunStatus.QUEUED.value)


@reads(RunFilter)
def _read_runs(connection: Connection, where: RunFilter) -> Sequence[Run]:
    found = select(*(runs.c if where.payloads else BRIEF_RUN_COLUMNS)).order_by(runs.c.seq.desc()).limit(where.limit)
    if where.agent is None:
        found = found.where(runs.c.tenant == where.tenant)
    else:
        found = found.where(runs.c.agent == agent_key(where.agent), runs.c.tenant == where.tenant)
    if where.status is not None:
        found = found.where(runs.c.status == where.status.value)
    if where.before_seq is not None:
        found = found.where(runs.c.seq < where.before_seq)
    return runs_of_rows(connection, where.tenant, connection.execute(found).all(), payloads=where.payloads)


@reads(LongestQueues)
def _read_longest_queues(connection: Connection, query: LongestQueues) -> Sequence[AgentQueue]:
    length, oldest = func.count().label("length"), func.min(runs.c.seq).label("oldest")
    queued = select(runs.c.agent, length, oldest).where(runs.c.tenant == query.tenant, runs.c.status == QUEUED)
    longest = queued.group_by(runs.c.agent).order_by(length.desc(), oldest).limit(query.limit)
    lengths = {row.oldest: row.length for row in connection.execute(longest)}
    rows = connection.execute(
        select(*BRIEF_RUN_COLUMNS).where(runs.c.seq.in_(lengths), runs.c.tenant == query.tenant)
    ).all()
    found = {run.seq: run for run in runs_of_rows(connection, query.tenant, rows, payloads=False)}
    return [AgentQueue(found[seq], length) for seq, length in lengths.items()]


def runs_of_rows(connection: Connection, tenant: TenantId, rows: Sequence[Any], *, payloads: bool) -> Sequence[Run]:
    """Return the runs of a tenant's rows, with what they wait for; without payloads these are None."""
    found = _with_waits(connection, tenant, rows)
    return found if payloads else [replace(run, trigger=replace(run.trigger, content=None)) for run in found]


@reads(JournalOfRun)
def _read_journal(connection: Connection, query: JournalOfRun) -> Sequence[JournalEntry]:
    found = (
        select(*ENTRY_COLUMNS)
        .join(runs, runs.c.run_id == journal.c.run_id)
        .where(journal.c.run_id == query.run_id, journal.c.seq > query.after, runs.c.tenant == query.tenant)
        .order_by(journal.c.seq)
    )
    return [entry_of(row) for row in connection.execute(found)]


@reads(JournalTail)
def _read_journal_tail(connection: Connection, query: JournalTail) -> Sequence[JournalEntry]:
    found = (
        select(*ENTRY_COLUMNS)
        .join(runs, runs.c.run_id == journal.c.run_id)
        .where(journal.c.run_id == query.run_id, runs.c.tenant == query.tenant)
        .order_by(journal.c.seq.desc())
        .limit(query.limit)
    )
    if query.before is not None:
        found = found.where(journal.c.seq < query.before)
    return [entry_of(row) for row in connection.execute(found)][::-1]


@reads(EntriesOfKinds)
def _read_entries_of_kinds(connection: Connection, query: EntriesOfKinds) -> Sequence[JournalEntry]:
    found = (
        select(*ENTRY_COLUMNS)
        .join(runs, runs.c.run_id == journal.c.run_id)
        .where(journal.c.run_id == query.run_id, journal.c.seq > query.after, runs.c.tenant == query.tenant)
        .where(journal.c.kind.in_([each.value for each in query.kinds]))
        .order_by(journal.c.seq)
        .limit(query.limit)
    )
    return [entry_of(row) for row in connection.execute(found)]


@reads(PromptTexts)
def _read_prompt_texts(connection: Connection, query: PromptTexts) -> Mapping[str, str]:
    built = (
        select(*ENTRY_COLUMNS)
        .join(runs, runs.c.run_id == journal.c.run_id)
        .where(journal.c.run_id == query.run_id, runs.c.tenant == query.tenant)
        .where(journal.c.kind == EntryKind.PROMPT_BUILT.value)
    )
    named = named_blobs([entry_of(row) for row in connection.execute(built)])
    keys = [key for digest in named for key in blob_keys(query.tenant, digest)]
    found = connection.execute(select(blobs.c.hash, blobs.c.content).where(blobs.c.hash.in_(keys))) if keys else ()
    return {digest_of(row.hash): load(row.content) for row in found}


class _PositionStatements:
    """Statements that read many runs' journals at once."""

    def __init__(self, dialect: Dialect) -> None:
        each = dialect.each_position()
        self.statuses = select(each.c.place, runs.c.tenant, runs.c.status).select_from(
            each.join(runs, runs.c.run_id == each.c.run_id)
        )
        behind = (journal.c.run_id == each.c.run_id) & (journal.c.seq > each.c.after)
        self.entries = (
            select(each.c.place, *ENTRY_COLUMNS)
            .select_from(each.join(journal, behind))
            .order_by(each.c.place, journal.c.seq)
            .limit(_PROGRESS_ROWS)
        )
        final = [status.value for status in RunStatus if status.final]
        over = exists().where(runs.c.run_id == each.c.run_id, runs.c.status.in_(final))
        self.changed = select(each.c.run_id).where(exists().where(behind) | over)


_POSITION_STATEMENTS = {each: _PositionStatements(each) for each in DIALECTS}


@reads(ProgressOfRuns)
def _read_progress_of_runs(connection: Connection, query: ProgressOfRuns) -> Sequence[RunProgress | None]:
    dialect, positions = dialect_of(connection), query.positions
    statements = _POSITION_STATEMENTS[dialect]
    parameters = dialect.positions([(each.run_id, each.after) for each in positions])
    statuses = {
        place: RunStatus(status)
        for place, tenant, status in connection.execute(statements.statuses, parameters)
        if positions[place].tenant == tenant
    }
    entries: dict[int, list[JournalEntry]] = {place: [] for place in statuses}
    rows = characters = last = 0
    with connection.execute(statements.entries, parameters) as found:
        for row in found:
            rows, characters, last = rows + 1, characters + len(row.data), row.place
            if last in entries:
                entries[last].append(entry_of(row))
            if characters >= _PROGRESS_CHARACTERS:
                break
    cut = rows >= _PROGRESS_ROWS or characters >= _PROGRESS_CHARACTERS
    return [
        RunProgress(tuple(entries[place]), statuses[place], more=cut and place >= last) if place in statuses else None
        for place in range(len(positions))
    ]


@reads(ChangedRuns)
def _read_changed_runs(connection: Connection, query: ChangedRuns) -> Sequence[RunId]:
    dialect = dialect_of(connection)
    parameters = dialect.positions([(each.run_id, each.after) for each in query.positions])
    return list(connection.execute(_POSITION_STATEMENTS[dialect].changed, parameters).scalars())


@reads(AgentByRef)
def _read_agent(connection: Connection, query: AgentByRef) -> AgentRecord | None:
    row = connection.execute(_agents.where(agents.c.agent == agent_key(query.agent))).one_or_none()
    return None if row is None else _agent(row)


@reads(AgentPage)
def _read_agent_page(connection: Connection, query: AgentPage) -> Sequence[AgentRecord]:
    first = tenant_key(query.tenant, query.prefix)
    beyond = f"{first}{_LAST_CHARACTER}" if query.prefix else tenant_range(query.tenant)[1]

    def among(key: ColumnElement[str]) -> ColumnElement[bool]:
        return and_(key > tenant_key(query.tenant, query.after), key >= first, key < beyond)

    found = _agents.where(agents.c.tenant == query.tenant, among(agents.c.agent))
    if query.with_open_breaker:
        found = found.where(has_open_breaker)
    if query.busy:  # by the index of runs that are not over
        keys = select(runs.c.agent).where(active_run, among(runs.c.agent)).distinct()
        found = found.where(agents.c.agent.in_(keys.order_by(runs.c.agent).limit(query.limit)))
    return [_agent(row) for row in connection.execute(found.order_by(agents.c.agent).limit(query.limit))]


@reads(AgentsByIds)
def _read_agents_by_ids(connection: Connection, query: AgentsByIds) -> Sequence[AgentRecord]:
    keys = [tenant_key(query.tenant, each) for each in query.agent_ids]
    return [_agent(row) for row in connection.execute(_agents.where(agents.c.agent.in_(keys)))]


_suspended = select(tenants.c.tenant).where(tenants.c.status != TenantStatus.ACTIVE.value)


_first = runs.alias("first")
_first_counts_for = (
    select(_first.c.counts_for)
    .where(_first.c.agent == runs.c.agent, _first.c.status.in_([QUEUED, RUNNING, WAITING]))
    .order_by(case((_first.c.status == QUEUED, 1), else_=0), _first.c.rank, _first.c.seq)
    .limit(1)
    .correlate(runs)
    .scalar_subquery()
)
"""The keys for which the run counts that an agent is to execute."""


@reads(AgentsWithWork)
def _read_agents_with_work(connection: Connection, query: AgentsWithWork) -> Sequence[AgentRef]:
    waits = func.max(case((runs.c.status == WAITING, 1), else_=0))
    since, tenant = func.min(runs.c.seq), func.min(runs.c.tenant)
    of_keys, free = _free_places_by_keys(connection), free_places(connection)
    leaving = connection.execute(select(cluster_lease.c.leaving)).scalar_one_or_none()
    working = (
        select(
            runs.c.agent,
            since.label("since"),
            tenant.label("tenant"),
            func.max(case((executed_run, 1), else_=0)).label("executed"),
            (_first_counts_for if of_keys else null()).label("counts_for"),
        )
        .where(active_run, *((~_held_by(leaving),) if leaving else ()))
        .group_by(runs.c.agent)  # by its index of active runs, which the tenant has no part in
        .having(waits == 0, tenant.not_in(_suspended))
        .subquery("working")
    )
    if of_keys:
        working = _first_of(working, of_keys, "counts_for")
    if free:
        working = _first_of(working, free, "tenant")
    turn = func.row_number().over(partition_by=working.c.tenant, order_by=working.c.since)
    found = select(working.c.agent).order_by(turn, working.c.since).limit(query.limit).offset(query.skip)
    return [agent_of(key) for key in connection.execute(found).scalars()]


def _first_of(working: Subquery, free: Mapping[Any, int], group: str) -> Subquery:
    """Return the agents that may begin: all that execute a run, and of each group as many of the others as it has places."""
    place = func.row_number().over(partition_by=(working.c[group], working.c.executed), order_by=working.c.since)
    each = select(*working.c, place.label("place")).subquery()
    may_begin = (each.c.executed == 1) | (each.c.place <= case(free, value=each.c[group], else_=each.c.place))
    return select(*(column for column in each.c if column.key != "place")).where(may_begin).subquery()


def _free_places_by_keys(connection: Connection) -> dict[str, int]:
    """Return how many more runs may be executed that count for the same keys, by these as runs name them."""
    of_keys = free_places_of_keys(connection)
    if not of_keys:
        return {}
    counting = connection.execute(select(runs.c.counts_for).where(key_run).distinct()).scalars()
    found = {each: free_places_of(each, of_keys) for each in counting if each is not None}
    return {each: free for each, free in found.items() if free is not None}


def _held_by(cluster: str) -> ColumnElement[bool]:
    """Return whether the agent of a run belongs to a host on a living node of the cluster."""
    held = agents.join(cluster_nodes, cluster_nodes.c.node_id == agents.c.node_id)
    on_living_node = (cluster_nodes.c.cluster == cluster) & (cluster_nodes.c.state != NodeState.LOST.value)
    own = (agents.c.agent == runs.c.agent) & agents.c.activation_id.is_not(None)
    return select(agents.c.agent).select_from(held).where(own, on_living_node).correlate(runs).exists()


@reads(AgentsByKeyPrefix)
def _read_agents_by_key_prefix(connection: Connection, query: AgentsByKeyPrefix) -> Sequence[AgentRecord]:
    first = agent_key(AgentRef(query.tenant, AgentId(f"{query.definition}:{query.key_prefix}")))
    beyond = first[:-1] + chr(ord(first[-1]) + 1)
    found = _agents.where(agents.c.agent >= first, agents.c.agent < beyond).order_by(agents.c.agent).limit(query.limit)
    return [_agent(row) for row in connection.execute(found)]


@reads(AgentsOfDefinition)
def _read_agents_of_definition(connection: Connection, query: AgentsOfDefinition) -> Sequence[AgentRef]:
    unstarted = (agents.c.definition == query.definition) & agents.c.lineage.is_(None)
    found = select(agents.c.agent).where(unstarted).order_by(agents.c.agent).limit(query.limit)
    return [agent_of(key) for key in connection.execute(found).scalars()]


@reads(ClusterNodes)
def _read_cluster_nodes(connection: Connection, _query: ClusterNodes) -> Sequence[ClusterNode]:
    return [*map(NODES.fact, connection.execute(select(*NODES.columns).order_by(cluster_nodes.c.node_id)))]


@reads(ReleasedRuns)
def _read_released_runs(connection: Connection, query: ReleasedRuns) -> Sequence[RunEnded]:
    waiting = select(runs.c.agent, runs.c.run_id, runs.c.awaits).where(awaiting_run).order_by(runs.c.seq)
    found: list[RunEnded] = []
    for page in connection.execute(waiting).partitions(_PAGE):
        awaited = {row.run_id: awaited_by(row.awaits) for row in page}
        names = [run_id for ids in awaited.values() for run_id in ids]
        active = set(connection.execute(select(runs.c.run_id).where(runs.c.run_id.in_(names), active_run)).scalars())
        for row in page:
            ended = tuple(run_id for run_id in awaited[row.run_id] if run_id not in active)
            if ended:
                found.append(RunEnded(agent_of(row.agent), row.run_id, ended))
        if len(found) >= query.limit:
            break
    return found[: query.limit]


@reads(DueUpkeep)
def _read_due_upkeep(connection: Connection, query: DueUpkeep) -> frozenset[Upkeep]:
    there = {
        Upkeep.RELEASED_RUNS: exists().where(awaiting_run),
        Upkeep.EXPIRED_APPROVALS: exists().where(pending_approval, approvals.c.expires_at <= to_micros(query.now)),
        Upkeep.TENANT_DELETIONS: exists().where(tenants.c.status == TenantStatus.DELETING.value),
    }
    row = connection.execute(select(*(found.label(kind.value) for kind, found in there.items()))).one()
    return frozenset(kind for kind in there if getattr(row, kind.value))


@reads(TaskById)
def _read_task(connection: Connection, query: TaskById) -> Task | None:
    row = connection.execute(select(*TASKS.columns).where(tasks.c.task_id == query.task_id)).one_or_none()
    task = None if row is None else TASKS.fact(row)
    return task if task is not None and task.owner.tenant == query.tenant else None


@reads(TasksOfAgent)
def _read_tasks(connection: Connection, query: TasksOfAgent) -> Sequence[Task]:
    found = select(*TASKS.columns).where(tasks.c.agent == agent_key(query.owner))
    found = found.order_by(tasks.c.created_at.desc(), tasks.c.task_id).limit(query.limit)
    return [TASKS.fact(row) for row in connection.execute(found)]


@reads(DueSchedules)
def _read_due_schedules(connection: Connection, query: DueSchedules) -> Sequence[Schedule]:
    found = (
        select(*SCHEDULES.columns)
        .where(active_schedule, schedules.c.next_fire_at <= to_micros(query.now))
        .order_by(schedules.c.next_fire_at)
        .limit(query.limit)
    )
    return [SCHEDULES.fact(row) for row in connection.execute(found)]


@reads(NextDueTime)
def _read_next_due_time(connection: Connection, _query: NextDueTime) -> datetime | None:
    found = select(func.min(schedules.c.next_fire_at)).where(active_schedule)
    return optional_time(connection.execute(found).scalar_one())


@reads(ScheduleById)
def _read_schedule(connection: Connection, query: ScheduleById) -> Schedule | None:
    first, end = tenant_range(query.tenant)
    found = select(*SCHEDULES.columns).where(
        schedules.c.schedule_id == query.schedule_id, schedules.c.agent >= first, schedules.c.agent < end
    )
    row = connection.execute(found).one_or_none()
    return None if row is None else SCHEDULES.fact(row)


@reads(SchedulesByIds)
def _read_schedules_by_ids(connection: Connection, query: SchedulesByIds) -> Sequence[Schedule]:
    found = select(*SCHEDULES.columns).where(schedules.c.schedule_id.in_(query.schedule_ids))
    return [SCHEDULES.fact(row) for row in connection.execute(found)]


@reads(UpcomingSchedules)
def _read_upcoming_schedules(connection: Connection, query: UpcomingSchedules) -> Mapping[ScheduleId, datetime]:
    found = (
        select(schedules.c.schedule_id, schedules.c.next_fire_at)
        .where(active_schedule, schedules.c.kind != ScheduleKind.HEARTBEAT.value)
        .order_by(schedules.c.next_fire_at)
        .limit(query.limit)
    )
    return {ScheduleId(row.schedule_id): from_micros(row.next_fire_at) for row in connection.execute(found)}


@reads(ComingSchedules)
def _read_coming_schedules(connection: Connection, where: ComingSchedules) -> Sequence[Schedule]:
    columns = schedules.c
    own = _of_tenant(columns.agent, where.tenant)
    found = select(*SCHEDULES.columns).where(active_schedule, own, columns.next_fire_at < to_micros(where.until))
    if where.agent is not None:
        found = found.where(columns.agent == agent_key(where.agent))
    if where.heartbeats is not None:
        found = found.where((columns.kind == ScheduleKind.HEARTBEAT.value) == where.heartbeats)
    found = found.order_by(columns.next_fire_at, columns.schedule_id).limit(where.limit)
    return [SCHEDULES.fact(row) for row in connection.execute(found)]


@reads(ScheduleFilter)
def _read_schedules(connection: Connection, where: ScheduleFilter) -> Sequence[Schedule]:
    found = select(*SCHEDULES.columns).order_by(*_SCHEDULE_ORDER).limit(where.limit)
    if where.agent is not None:
        found = found.where(schedules.c.agent == agent_key(where.agent))
    found = found.where(_of_tenant(schedules.c.agent, where.tenant))
    if where.status is not None:
        found = found.where(schedules.c.status == where.status.value)
    if where.after is not None:
        place = select(*_SCHEDULE_ORDER).where(schedules.c.schedule_id == where.after)
        place = place.where(_of_tenant(schedules.c.agent, where.tenant))
        if where.agent is not None:
            place = place.where(schedules.c.agent == agent_key(where.agent))
        row = connection.execute(place).one_or_none()
        if row is None:
            return []
        found = found.where(tuple_(*_SCHEDULE_ORDER) > tuple_(*row))
    return [SCHEDULES.fact(row) for row in connection.execute(found)]


def _of_tenant(agent: ColumnElement[str], tenant: TenantId) -> ColumnElement[bool]:
    first, end = tenant_range(tenant)
    return (agent >= first) & (agent < end)


@reads(PausedHeartbeats)
def _read_paused_heartbeats(connection: Connection, query: PausedHeartbeats) -> Sequence[Schedule]:
    found = select(*SCHEDULES.columns).where(
        schedules.c.agent.in_(select(webhook_deliveries.c.agent).where(waiting_delivery)),
        open_schedule,
        schedules.c.status == ScheduleStatus.PAUSED.value,
        schedules.c.kind == ScheduleKind.HEARTBEAT.value,
    )
    return [SCHEDULES.fact(row) for row in connection.execute(found.limit(query.limit))]


@reads(TicksOfSchedule)
def _read_ticks_of_schedule(connection: Connection, query: TicksOfSchedule) -> Sequence[Tick]:
    found = select(*TICKS.columns).where(ticks.c.schedule_id == query.schedule_id)
    found = found.order_by(ticks.c.due_at.desc(), ticks.c.firing_id.desc()).limit(query.limit)
    if query.before is not None:
        found = found.where(ticks.c.due_at < to_micros(query.before))
    if query.tenant is not None:
        own = _of_tenant(schedules.c.agent, query.tenant)
        found = found.where(exists().where(schedules.c.schedule_id == query.schedule_id, own))
    return [TICKS.fact(row) for row in connection.execute(found)]


@reads(TickSums)
def _read_tick_sums(connection: Connection, query: TickSums) -> Sequence[TickSum]:
    begin, *ends = map(to_micros, query.bounds)
    span = case(*((ticks.c.due_at < end, number) for number, end in enumerate(ends))).label("span")
    together = case((ticks.c.count > 1, ticks.c.last_due_at)).label("together")
    first, last = func.min(ticks.c.due_at), func.max(ticks.c.due_at)
    found = (
        select(span, ticks.c.outcome, func.sum(ticks.c.count), first, last, together)
        .where(ticks.c.schedule_id == query.schedule_id, ticks.c.due_at >= begin, ticks.c.due_at < ends[-1])
        .where(
            exists().where(schedules.c.schedule_id == query.schedule_id, _of_tenant(schedules.c.agent, query.tenant))
        )
        .group_by("span", ticks.c.outcome, "together")
        .order_by("span", first)
    )
    spans = [
        TickSum(number, TickOutcome(outcome), int(count), from_micros(since), from_micros(until or latest))
        for number, outcome, count, since, latest, until in connection.execute(found)
    ]
    earlier = _read_ticks_of_schedule(connection, TicksOfSchedule(query.schedule_id, query.bounds[0], 1, query.tenant))
    return [
        TickSum(-1, tick.outcome, tick.count, tick.due_at, tick.last_due_at)
        for tick in earlier
        if tick.count > 1 and tick.last_due_at is not None and tick.due_at < query.bounds[0] <= tick.last_due_at
    ] + spans


@reads(ApprovalById)
def _read_approval(connection: Connection, query: ApprovalById) -> Approval | None:
    found = select(*APPROVALS.columns).where(
        approvals.c.approval_id == query.approval_id, approvals.c.tenant == query.tenant
    )
    row = connection.execute(found).one_or_none()
    return None if row is None else approval_of(row)


@reads(ApprovalFilter)
def _read_approvals(connection: Connection, where: ApprovalFilter) -> Sequence[Approval]:
    found = select(*APPROVALS.columns).where(*_of_runs(approvals, where)).limit(where.limit)
    place = tuple_(approvals.c.expires_at if where.expiring else approvals.c.requested_at, approvals.c.approval_id)
    behind = None if where.after is None else _key(where.after)
    if where.expiring:
        found = found.where(pending_approval).order_by(approvals.c.expires_at, approvals.c.approval_id)
        found = found if behind is None else found.where(place > behind)
    else:
        found = found.order_by(approvals.c.requested_at.desc(), approvals.c.approval_id.desc())
        found = found if behind is None else found.where(place < behind)
    return [approval_of(row) for row in connection.execute(found)]


@reads(PendingApprovalCounts)
def _count_pending_approvals(connection: Connection, query: PendingApprovalCounts) -> Mapping[AgentRef, int]:
    where = ApprovalFilter(query.tenant, status=ApprovalStatus.PENDING)
    found = select(approvals.c.agent).where(*_of_runs(approvals, where)).order_by(approvals.c.requested_at)
    counted = Counter(connection.execute(found.limit(query.limit)).scalars())
    return {agent_of(key): number for key, number in counted.items()}


def _key(place: Place) -> tuple[int, str]:
    return to_micros(place.at), place.id


def _of_runs(table: Table, where: ApprovalFilter | CallbackFilter) -> Iterator[ColumnElement[bool]]:
    """Yield what rows have to meet that belong to a run, an agent and a tenant, and stand somehow."""
    yield table.c.tenant == where.tenant
    if where.agent is not None:
        yield table.c.agent == agent_key(where.agent)
    if where.run_id is not None:
        yield table.c.run_id == where.run_id
    if where.status is not None:
        yield table.c.status == where.status.value


@reads(ExpiredApprovals)
def _read_expired_approvals(connection: Connection, query: ExpiredApprovals) -> Sequence[Approval]:
    found = (
        select(*APPROVALS.columns)
        .where(pending_approval, approvals.c.expires_at <= to_micros(query.now))
        .order_by(approvals.c.expires_at)
        .limit(query.limit)
    )
    return [approval_of(row) for row in connection.execute(found)]


@reads(DeliveryById)
def _read_delivery(connection: Connection, query: DeliveryById) -> Delivery | None:
    mine = (webhook_deliveries.c.delivery_id == query.delivery_id, webhook_deliveries.c.tenant == query.tenant)
    row = connection.execute(select(*DELIVERIES.columns).where(*mine)).one_or_none()
    return None if row is None else DELIVERIES.fact(row)


@reads(DeliveryFilter)
def _read_deliveries(connection: Connection, where: DeliveryFilter) -> Sequence[Delivery]:
    table = webhook_deliveries.c
    found = select(*BRIEF_DELIVERY_COLUMNS).where(table.tenant == where.tenant)
    if where.source is not None:
        found = found.where(table.source == where.source)
    if where.status is not None:
        found = found.where(table.status == where.status.value)
    if where.before is not None:
        found = found.where(tuple_(table.received_at, table.delivery_id) < _key(where.before))
    found = found.order_by(table.received_at.desc(), table.delivery_id.desc()).limit(where.limit)
    return [DELIVERIES.fact(row) for row in connection.execute(found)]


@reads(WaitingDeliveries)
def _read_waiting_deliveries(connection: Connection, query: WaitingDeliveries) -> Sequence[Delivery]:
    table = webhook_deliveries.c
    found = select(*BRIEF_DELIVERY_COLUMNS, table.event).where(table.agent == agent_key(query.agent), waiting_delivery)
    found = found.order_by(table.received_at, table.delivery_id).limit(query.limit)
    return [DELIVERIES.fact(row) for row in connection.execute(found)]


@reads(OldDeliveries)
def _read_old_deliveries(connection: Connection, query: OldDeliveries) -> Sequence[DeliveryId]:
    table = webhook_deliveries.c
    found = select(table.delivery_id).where(table.tenant == query.tenant, table.status != WAITING)
    found = found.where(table.received_at < to_micros(query.before))
    found = found.where(~exists().where(runs.c.run_id == table.run_id, runs.c.finished_at >= to_micros(query.before)))
    return list(connection.execute(found.order_by(table.received_at).limit(query.limit)).scalars())


@reads(CallbackById)
def _read_callback(connection: Connection, query: CallbackById) -> Callback | None:
    mine = (callbacks.c.callback_id == query.callback_id, callbacks.c.tenant == query.tenant)
    row = connection.execute(select(*CALLBACKS.columns).where(*mine)).one_or_none()
    return None if row is None else CALLBACKS.fact(row)


@reads(CallbackFilter)
def _read_callbacks(connection: Connection, where: CallbackFilter) -> Sequence[Callback]:
    found = select(*CALLBACKS.columns).where(*_of_runs(callbacks, where))
    if where.before is not None:
        found = found.where(tuple_(callbacks.c.created_at, callbacks.c.callback_id) < _key(where.before))
    found = found.order_by(callbacks.c.created_at.desc(), callbacks.c.callback_id.desc()).limit(where.limit)
    return [CALLBACKS.fact(row) for row in connection.execute(found)]


@reads(DueCallbacks)
def _read_due_callbacks(connection: Connection, query: DueCallbacks) -> Sequence[Callback]:
    parameters = {"now": to_micros(query.now), "per_host": query.per_host, "limit": query.limit}
    return [
        CALLBACKS.fact(row)
        for row in connection.execute(dialect_of(connection).due_callbacks(CALLBACKS.columns), parameters)
    ]


@reads(OldCallbacks)
def _read_old_callbacks(connection: Connection, query: OldCallbacks) -> Sequence[CallbackId]:
    found = select(callbacks.c.callback_id).where(callbacks.c.tenant == query.tenant, settled_callback)
    found = found.where(callbacks.c.created_at < to_micros(query.before))
    ended_at = func.coalesce(callbacks.c.delivered_at, callbacks.c.tried_at, callbacks.c.created_at)
    found = found.where(ended_at < to_micros(query.before))
    return list(connection.execute(found.order_by(callbacks.c.created_at).limit(query.limit)).scalars())


@reads(PendingCallbackCount)
def _read_pending_callback_count(connection: Connection, _query: PendingCallbackCount) -> int:
    return int(connection.execute(select(func.count()).select_from(callbacks).where(pending_callback)).scalar_one())


@reads(LedgerFilter)
def _read_ledger(connection: Connection, where: LedgerFilter) -> Sequence[ChainedRecord]:
    found: list[ChainedRecord] = []
    while len(found) < where.limit:
        size = where.limit if where.tool is None else _PAGE
        page = [record_of(row) for row in connection.execute(_ledger_page(where, size))]
        found += page if where.tool is None else [each for each in page if each.record.data.get("tool") == where.tool]
        if len(page) < size:
            break
        where = replace(where, after=LedgerPlace.of(page[-1]))
    return found[: where.limit]


@reads(NextLedgerStretch)
def _read_ledger_stretch(connection: Connection, query: NextLedgerStretch) -> LedgerStretch:
    where = query.where
    everything = replace(where, tool=None)
    rows = connection.execute(_ledger_page(everything, STRETCH)).all()
    found = [
        record for record in map(record_of, rows) if where.tool is None or record.record.data.get("tool") == where.tool
    ]
    if len(found) > where.limit:
        return LedgerStretch(found[: where.limit], LedgerPlace.of(found[where.limit - 1]))
    return LedgerStretch(found, LedgerPlace.of(record_of(rows[-1])) if len(rows) == STRETCH else None)


def _ledger_page(where: LedgerFilter, size: int) -> Select[Any]:
    found = select(*RECORD_COLUMNS).where(ledger.c.tenant == where.tenant)
    if where.agent is not None:
        found = found.where(ledger.c.agent == agent_key(where.agent))
    if where.run_id is not None:
        found = found.where(ledger.c.run_id == where.run_id)
    if where.kind is not None:
        found = found.where(ledger.c.kind == where.kind.value)
    if where.tool is not None:  # of what has the text somewhere, the caller takes what has it in its place
        found = found.where(ledger.c.data.contains(f'"tool":{dump(where.tool)}', autoescape=True))
    if where.since is not None:
        found = found.where(ledger.c.at >= to_micros(where.since))
    if where.until is not None:
        found = found.where(ledger.c.at < to_micros(where.until))
    if where.after is not None:
        at, place = to_micros(where.after.at), (where.after.writer, where.after.position)
        chained = tuple_(ledger.c.writer, ledger.c.position)
        if where.newest_first:
            found = found.where(ledger.c.at <= at, (ledger.c.at < at) | (chained < place))
        else:
            found = found.where(ledger.c.at >= at, (ledger.c.at > at) | (chained > place))
    order = (ledger.c.at, ledger.c.writer, ledger.c.position)
    return found.order_by(*((each.desc() for each in order) if where.newest_first else order)).limit(size)


@reads(MissingLedgerGuards)
def _read_missing_ledger_guards(connection: Connection, _query: MissingLedgerGuards) -> Sequence[str]:
    return missing_guards(connection)


@reads(LedgerChains)
def _read_ledger_chains(connection: Connection, query: LedgerChains) -> Sequence[LedgerChain]:
    found = select(ledger_heads).where(ledger_heads.c.tenant == query.tenant).order_by(ledger_heads.c.writer)
    return [LedgerChain(row.writer, row.position, row.hash) for row in connection.execute(found)]


@reads(HeadsOfWriter)
def _read_heads_of_writer(connection: Connection, query: HeadsOfWriter) -> Sequence[ChainHead]:
    found = select(ledger_heads).where(ledger_heads.c.writer == query.writer).order_by(ledger_heads.c.tenant)
    return [ChainHead(row.tenant, row.writer, row.position, row.hash) for row in connection.execute(found)]


@reads(LedgerWriters)
def _read_ledger_writers(connection: Connection, query: LedgerWriters) -> Sequence[str]:
    heads = connection.execute(select(ledger_heads.c.writer).where(ledger_heads.c.tenant == query.tenant)).scalars()
    return sorted({*heads, *_writers(connection, query.tenant)})


@reads(NextChainPage)
def _read_chain_page(connection: Connection, query: NextChainPage) -> ChainPage:
    found = select(*RECORD_COLUMNS).where(ledger.c.tenant == query.tenant, ledger.c.writer == query.writer)
    found = found.where(ledger.c.position > query.after).order_by(ledger.c.position).limit(STRETCH)
    records = [record_of(row) for row in connection.execute(found)]
    ends = select(ledger_heads).where(ledger_heads.c.tenant == query.tenant, ledger_heads.c.writer == query.writer)
    end = connection.execute(ends).one_or_none()
    head = ChainHead(query.tenant, query.writer)
    return ChainPage(records, head if end is None else replace(head, position=end.position, hash=end.hash))


@reads(LedgerBreaks)
def _read_ledger_breaks(connection: Connection, query: LedgerBreaks) -> Sequence[ChainBreak]:
    heads = {
        row.writer: ChainHead(query.tenant, row.writer, row.position, row.hash)
        for row in connection.execute(select(ledger_heads).where(ledger_heads.c.tenant == query.tenant))
    }
    noted = [head for head in query.noted if head.tenant == query.tenant]
    writers = {*heads, *_writers(connection, query.tenant), *(head.writer for head in noted)}
    ends = [heads.get(writer, ChainHead(query.tenant, writer)) for writer in sorted(writers)]
    return [
        each
        for end in ends
        for each in verify(_chain(connection, end), end, [head for head in noted if head.writer == end.writer])
    ]


def _chain(connection: Connection, end: ChainHead) -> Iterator[ChainedRecord]:
    after = -1
    page: Select[Any] = select(*RECORD_COLUMNS).where(ledger.c.tenant == end.tenant, ledger.c.writer == end.writer)
    while True:
        rows = connection.execute(page.where(ledger.c.position > after).order_by(ledger.c.position).limit(_PAGE)).all()
        yield from map(record_of, rows)
        if len(rows) < _PAGE:
            return
        after = rows[-1].position


def _writers(connection: Connection, tenant: TenantId) -> Iterable[str]:
    writer = connection.execute(_next_writer(tenant, "")).scalar_one()
    while writer is not None:
        yield writer
        writer = connection.execute(_next_writer(tenant, writer)).scalar_one()


@reads(ActiveRunCounts)
def _read_active_run_counts(connection: Connection, _query: ActiveRunCounts) -> Mapping[RunStatus, int]:
    counted = select(runs.c.status, func.count()).where(active_run).group_by(runs.c.status)
    found = {RunStatus(row[0]): row[1] for row in connection.execute(counted)}
    return {status: found.get(status, 0) for status in RunStatus if not status.final}


def _next_writer(tenant: TenantId, after: str) -> Select[Any]:
    return select(func.min(ledger.c.writer)).where(ledger.c.tenant == tenant, ledger.c.writer > after)


def run_of_row(row: Any) -> Run:
    """Return the run of a row of the table."""
    return Run(
        row.run_id,
        row.seq,
        agent_of(row.agent),
        load_trigger(row.trigger, row.payload),
        RunStatus(row.status),
        from_micros(row.created_at),
        optional_time(row.started_at),
        optional_time(row.finished_at),
        cancel_requested=row.cancel_requested,
        result=load_result(row.result),
        priority=priority_of(row.rank),
        deadline=optional_time(row.deadline),
        interrupted_by=row.interrupted_by,
        awaits=awaited_by(row.awaits),
    )


def _agent(row: Any) -> AgentRecord:
    return AgentRecord(
        agent_of(row.agent),
        row.epoch,
        row.activation_id,
        load_state(row.state),
        from_micros(row.created_at),
        row.queued_runs,
        row.running_run,
        None if row.running_status is None else RunStatus(row.running_status),
    )
