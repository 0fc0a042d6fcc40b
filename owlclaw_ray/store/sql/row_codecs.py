"""Facts of the domain as rows: one table of columns and fields for all, and the few rows that are more than that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from msgspec import Struct, convert
from msgspec.structs import asdict
from sqlalchemy.sql.schema import Table

from owlclaw_ray.domain.access_key import AccessKey
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import Allowance, Approval, ApprovalDecision, ApprovalRequest, ApprovalStatus
from owlclaw_ray.domain.callback import Callback
from owlclaw_ray.domain.entries import decision_data, request_data
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.ledger import ChainedRecord, LedgerKind, LedgerRecord
from owlclaw_ray.domain.schedule import Schedule, Tick
from owlclaw_ray.domain.task import Task
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.domain.webhook import Delivery
from owlclaw_ray.store.commands import ClusterNode
from owlclaw_ray.store.sql.codec import (
    agent_key,
    agent_of,
    dump,
    from_micros,
    load,
    optional_time,
    to_micros,
)
from owlclaw_ray.store.sql.schema import (
    access_keys,
    approvals,
    callbacks,
    cluster_nodes,
    journal,
    ledger,
    schedules,
    tasks,
    tenants,
    ticks,
    webhook_deliveries,
)

_T = TypeVar("_T", bound=Struct)
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)


class RowCodec(Generic[_T]):
    """Between structs and the rows of a table: a field is in the column of its name, or in the JSON object of the column `rest`.

    The column `agent` has the key of the field `owner`, columns in `json` have JSON text, and those in `derived` are no fields.
    Fields that the object of an older version lacks have the struct's default.
    """

    def __init__(
        self,
        kind: type[_T],
        table: Table,
        *,
        owner: str = "agent",
        json: tuple[str, ...] = (),
        rest: str = "",
        derived: Mapping[str, Callable[[_T], Any]] | None = None,
    ) -> None:
        self.columns = tuple(table.c)
        self.names = [column.name for column in table.c]
        self._kind, self._json, self._rest = kind, frozenset(json), rest
        self._derived = derived or {}
        fields = {"agent" if name == owner else name: name for name in kind.__struct_fields__}
        self._fields = {column: name for column, name in fields.items() if column in self.names}
        """The fields that have a column, by its name."""
        self._packed = [name for column, name in fields.items() if column not in self._fields]
        hints = get_type_hints(kind)
        self._times = {name for name, hint in hints.items() if datetime in (hint, *get_args(hint))}

    def row(self, fact: _T, names: Sequence[str] = (), **beside: Any) -> tuple[Any, ...]:
        """Return the values of these columns, or of all; `beside` are those of columns that the fact itself does not know."""
        fields = asdict(fact)
        return tuple(
            beside[each] if each in beside else self._value(each, fact, fields) for each in names or self.names
        )

    def _value(self, column: str, fact: _T, fields: Mapping[str, Any]) -> Any:
        if column in self._derived:
            return self._derived[column](fact)
        if column == self._rest:
            return dump({name: fields[name] for name in self._packed})
        value = fields[self._fields[column]]
        match value:
            case None:
                return None
            case datetime():
                return to_micros(value)
            case Enum():
                return value.value
            case AgentRef():
                return agent_key(value)
        return dump(value) if column in self._json else value

    def fact(self, row: Any) -> _T:
        """Return the fact of a row; fields whose columns were not read have their defaults."""
        found = row._asdict()
        fields = load(found[self._rest]) if self._rest else {}
        for column, value in found.items():
            name = self._fields.get(column)
            if name is None:
                continue
            if value is None:
                fields[name] = None
            elif column == "agent":
                fields[name] = agent_of(value)
            elif name in self._times:
                fields[name] = from_micros(value)
            else:
                fields[name] = load(value) if column in self._json else value
        return convert(fields, self._kind)


SCHEDULES = RowCodec(Schedule, schedules, rest="rule", derived={"found_over_at": lambda _: None})
KEYS = RowCodec(AccessKey, access_keys, json=("scopes", "patterns"))
TENANTS = RowCodec(
    Tenant,
    tenants,
    json=("quotas", "deletion", "retention", "callback_networks"),
    derived={
        "quotas": lambda tenant: dump(tenant.quotas.given),
        "retention": lambda tenant: dump(tenant.retention.given),
    },
)
NODES = RowCodec(ClusterNode, cluster_nodes, json=("details",))
TICKS = RowCodec(Tick, ticks, json=("reason",))
TASKS = RowCodec(Task, tasks, owner="owner", rest="data")
"""Beside the task: `created_at`, `updated_at`."""
DELIVERIES = RowCodec(Delivery, webhook_deliveries, json=("reason", "headers", "body", "event"))
CALLBACKS = RowCodec(
    Callback,
    callbacks,
    json=("problem",),
    derived={"tenant": lambda callback: callback.agent.tenant, "host": lambda callback: callback.host},
)
APPROVALS = RowCodec(
    Approval,
    approvals,
    derived={
        "approval_id": lambda approval: approval.request.approval_id,
        "tenant": lambda approval: approval.request.agent.tenant,
        "agent": lambda approval: agent_key(approval.request.agent),
        "run_id": lambda approval: approval.request.run_id,
        "requested_at": lambda approval: to_micros(approval.request.requested_at),
        "expires_at": lambda approval: to_micros(approval.request.expires_at),
        "request": lambda approval: dump(request_data(approval.request)),
        "decision": lambda approval: None if approval.decision is None else dump(decision_data(approval.decision)),
        "allowed_by": lambda approval: _allowances(approval.allowed_by) if approval.allowed_by else None,
    },
)
"""To rows; from them: `approval_of`, for half of a request is in columns of its own."""
BRIEF_DELIVERY_COLUMNS = tuple(column for column in webhook_deliveries.c if column.name not in {"body", "event"})
ENTRY_COLUMNS = (journal.c.seq, journal.c.kind, journal.c.at, journal.c.data)
RECORD_COLUMNS = tuple(column for column in ledger.c if column.name != "id")


def approval_of(row: Any) -> Approval:
    """Return the approval of a row."""
    times = {"requested_at": from_micros(row.requested_at), "expires_at": from_micros(row.expires_at)}
    owner = {"agent": agent_of(row.agent), "run_id": row.run_id}
    request = convert({**load(row.request), **owner, **times}, ApprovalRequest)
    decision = None if row.decision is None else convert(load(row.decision), ApprovalDecision)
    allowed_by = () if row.allowed_by is None else convert(load(row.allowed_by), tuple[Allowance, ...])
    return Approval(request, ApprovalStatus(row.status), decision, optional_time(row.decided_at), allowed_by)


def _allowances(allowed_by: Iterable[Allowance]) -> str:
    return dump([{"decision": decision_data(each.decision), "at": each.at.isoformat()} for each in allowed_by])


def entry_of(row: Any) -> JournalEntry:
    """Return the entry of a row that has ENTRY_COLUMNS."""
    return JournalEntry(row.seq, EntryKind(row.kind), from_micros(row.at), load(row.data))


def record_of(row: Any) -> ChainedRecord:
    """Return the record of a row that has RECORD_COLUMNS; one that somebody made unreadable comes as a warning that says so.

    The hash of such a record cannot be right.
    """
    position = row.position if isinstance(row.position, int) else 0
    try:
        kind, at, data = LedgerKind(row.kind), from_micros(row.at), load(row.data)
    except (ValueError, TypeError, OverflowError):
        kind, at, data = LedgerKind.WARNING, _NO_TIME, {"what": "unreadable", "why": str(row.data)}
    agent = agent_of(row.agent)
    record = LedgerRecord(row.record_id, agent.tenant, agent.agent_id, row.run_id, kind, at, data)
    return ChainedRecord(record, row.writer, position, row.previous_hash, row.hash)
