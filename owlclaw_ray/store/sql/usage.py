"""What runs and tool calls came to: counting it in the commits that end them, and reading it.

A batch sums up first and writes one row for each time and agent, or tool, that it concerns, however many runs it ends. What was counted
is in the transaction of the fact itself: a command that is sent again finds the run over, or the entry there, and counts nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from operator import add
from typing import Any

from sqlalchemy import Column, Connection, Select, func, literal_column, select
from sqlalchemy.sql.schema import Table

from owlclaw_ray.domain.budget import NANO
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.run import RunStatus, Usage
from owlclaw_ray.domain.usage import (
    DURATION_BOUNDS,
    NOT_CALLED,
    STEP,
    Grain,
    RunBucket,
    RunCounts,
    ToolBucket,
    ToolCounts,
    UsageBy,
)
from owlclaw_ray.store.sql.codec import agent_key, agent_of, from_micros, to_micros
from owlclaw_ray.store.sql.queries import reads
from owlclaw_ray.store.sql.schema import usage_of_agents, usage_of_tenants, usage_of_tools
from owlclaw_ray.store.sql.working_set import RowChange, RunRow, WorkingSet
from owlclaw_ray.store.usage import RunUsage, ToolUsage

_MOST = 10**15
"""More than that is no count of one run, but would have a sum overflow that others share."""
_OUTCOMES = (
    RunStatus.COMPLETED,
    RunStatus.FAILED,
    RunStatus.TIMEOUT,
    RunStatus.TERMINATED,
    RunStatus.CANCELLED,
    RunStatus.SKIPPED,
)
"""In the order of the first fields of RunCounts."""
_ENDED = {status: tuple(int(status is each) for each in _OUTCOMES) for status in _OUTCOMES}
_OF_RUNS, _OF_CALLS = RunCounts.__struct_fields__, ToolCounts.__struct_fields__
_LONGEST = _OF_CALLS.index("longest_ms")


def _micros(step: timedelta) -> int:
    return step // timedelta(microseconds=1)


_STEPS = {grain: _micros(step) for grain, step in STEP.items()}
_MINUTE, _HOUR, _DAY = _STEPS[Grain.MINUTE], _STEPS[Grain.HOUR], _STEPS[Grain.DAY]


def count_end(store: WorkingSet, run: RunRow, usage: Usage) -> None:
    """Count a run that has just ended, and what it used."""
    assert run.finished_at is not None
    at, agent = run.finished_at, agent_of(run.agent)
    begun = at if run.started_at is None else run.started_at
    amounts = (
        *_ENDED[run.status],
        round(min(max(0.0, usage.cost), _MOST / NANO) * NANO),
        _within(usage.prompt_tokens),
        _within(usage.completion_tokens),
        _within(usage.cached_tokens),
        _within((begun - run.created_at) // 1_000),
        _within((at - begun) // 1_000),
    )
    for step in (_MINUTE, _HOUR):
        _add(store, RowChange.TENANT_USAGE, (agent.tenant, step // 1_000_000, at - at % step), amounts)
    key = (agent.tenant, at - at % _DAY, run.agent)
    _add(store, RowChange.AGENT_USAGE, key, amounts, (agent.definition,))


def count_calls(store: WorkingSet, run: RunRow, entries: Iterable[JournalEntry]) -> None:
    """Count the calls that these new entries of a run are the ends of."""
    for entry in entries:
        if entry.kind is EntryKind.TOOL_FINISHED:
            tool, error, took = (entry.data.get(name) for name in ("tool", "error", "duration_ms"))
            if isinstance(tool, str) and not (isinstance(error, dict) and error.get("type") in NOT_CALLED):
                took = _within(took) if isinstance(took, int) else 0
                classes = [0] * (len(DURATION_BOUNDS) + 1)
                classes[bisect_left(DURATION_BOUNDS, took)] = 1
                at = to_micros(entry.at)
                amounts = (1, int(error is not None), took, took, *classes)
                _add(store, RowChange.TOOL_USAGE, (run.tenant, at - at % _HOUR, tool), amounts)


def _within(amount: int) -> int:
    return min(max(0, amount), _MOST)


def _add(
    store: WorkingSet, change: RowChange, key: tuple[Any, ...], amounts: Sequence[int], about: tuple[str, ...] = ()
) -> None:
    """Add amounts to those that the batch has to write under the key; `about` is what else the row says."""
    rows = store.changes[change]
    row = rows.get(key)
    if row is None:
        rows[key] = [*key, *about, *amounts]
        return
    first = len(key) + len(about)
    summed = [*map(add, row[first:], amounts)]
    if change is RowChange.TOOL_USAGE:
        summed[_LONGEST] = max(row[first + _LONGEST], amounts[_LONGEST])
    row[first:] = summed


@reads(RunUsage)
def _read_run_usage(connection: Connection, query: RunUsage) -> Sequence[RunBucket]:
    of_agents = query.by is not UsageBy.NONE or bool(query.agents)
    table = usage_of_agents if of_agents else usage_of_tenants
    columns = {UsageBy.AGENT: [table.c.get("agent")], UsageBy.DEFINITION: [table.c.get("definition")]}
    keys = [column for column in columns.get(query.by, ()) if column is not None]
    found = _summed(table, query, keys, _OF_RUNS, table.c.cost)
    if query.agents:
        # Days as a list, not as a span: then the table's key finds the rows of these agents, and not those of all in the span.
        days = range(-(-to_micros(query.since) // _DAY) * _DAY, to_micros(query.until), _DAY)
        keys_ = [agent_key(each) for each in query.agents]
        found = found.where(table.c.begins_at.in_(days), table.c.agent.in_(keys_))
    else:
        found = found.where(table.c.begins_at >= to_micros(query.since), table.c.begins_at < to_micros(query.until))
    if not of_agents:
        step = _MINUTE if query.grain is Grain.MINUTE else _HOUR
        found = found.where(table.c.seconds == step // 1_000_000)
    buckets = []
    for begins_at, *row in connection.execute(found):
        counts, named = RunCounts(*map(int, row[len(keys) :])), row[0] if keys else ""
        buckets.append(
            RunBucket(
                counts,
                None if begins_at is None else from_micros(begins_at),
                agent_of(named) if query.by is UsageBy.AGENT else None,
                named if query.by is UsageBy.DEFINITION else "",
            )
        )
    return buckets


@reads(ToolUsage)
def _read_tool_usage(connection: Connection, query: ToolUsage) -> Sequence[ToolBucket]:
    table = usage_of_tools
    found = _summed(table, query, [table.c.tool], _OF_CALLS, table.c.running_ms)
    found = found.where(table.c.begins_at >= to_micros(query.since), table.c.begins_at < to_micros(query.until))
    return [
        ToolBucket(ToolCounts(*map(int, row)), tool, None if begins_at is None else from_micros(begins_at))
        for begins_at, tool, *row in connection.execute(found)
    ]


def _summed(
    table: Table, query: RunUsage | ToolUsage, keys: list[Column[str]], counts: Sequence[str], largest: Column[int]
) -> Select[Any]:
    """Return what sums up a tenant's rows: by the beginnings of the times, if there are any, and by the keys."""
    begins_at: Any = literal_column("NULL")
    grouped: list[Any] = [*keys]
    if query.grain is not Grain.TOTAL:
        begins_at = table.c.begins_at - table.c.begins_at % literal_column(str(_STEPS[query.grain]))
        grouped.insert(0, begins_at)
    found = select(begins_at.label("time"), *keys, *_sums(table, counts)).where(table.c.tenant == query.tenant)
    order = [*grouped[: len(grouped) - len(keys)], func.sum(largest).desc(), *keys]
    if grouped:
        return found.group_by(*grouped).order_by(*order).limit(query.limit)
    return found.having(func.count() > 0)


def _sums(table: Table, counts: Sequence[str]) -> Iterator[Any]:
    for name in counts:
        yield (func.max if name == "longest_ms" else func.sum)(table.c[name])
