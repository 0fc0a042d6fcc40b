"""What model gateways learned of their providers: noting it, and reading it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from owlclaw_ray.domain.concurrency_limit import KEPT, ConcurrencyLimit, NotedLimit
from owlclaw_ray.store.commands import ConcurrencyLimitsNoted, NoteConcurrencyLimits
from owlclaw_ray.store.queries import ConcurrencyLimits
from owlclaw_ray.store.sql.codec import to_micros
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.queries import reads
from owlclaw_ray.store.sql.schema import concurrency_limits
from owlclaw_ray.store.sql.working_set import RowChange, WorkingSet


@applies(NoteConcurrencyLimits, needs=lambda _needs, _command: None)
def note_concurrency_limits(store: WorkingSet, command: NoteConcurrencyLimits) -> ConcurrencyLimitsNoted:
    """Note them as they are now."""
    at = to_micros(command.at)
    noted = store.changes[RowChange.CONCURRENCY_LIMIT]
    for asked, limit in command.limits.items():
        noted[asked, command.node_id] = (asked, command.node_id, limit.calls, limit.threshold, at)
    before = to_micros(command.at - KEPT)
    store.changes[RowChange.OLD_CONCURRENCY_LIMITS][before] = (before,)
    return ConcurrencyLimitsNoted()


@reads(ConcurrencyLimits)
def _read_concurrency_limits(connection: Connection, query: ConcurrencyLimits) -> Sequence[NotedLimit]:
    columns = concurrency_limits.c
    found = select(concurrency_limits).where(columns.asked == query.asked, columns.noted_at >= to_micros(query.since))
    return [
        NotedLimit(row.node_id, ConcurrencyLimit(row.calls, row.threshold))
        for row in connection.execute(found.order_by(columns.node_id))
    ]
