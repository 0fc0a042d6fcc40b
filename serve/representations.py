"""From domain objects to the JSON of `owlclaw_ray.wire`.

A body is told by the type of `wire` alone: each of its fields is the attribute of that name, in the form that JSON has for it. Only a
field that has another name or another meaning is written down here. What does not fit the type of `wire` fails when this is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Generic, NotRequired, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import orjson
from msgspec import Struct
from starlette.responses import Response
from typing_extensions import is_typeddict

from owlclaw_ray import wire
from owlclaw_ray.access.keys import IssuedKey
from owlclaw_ray.domain.access_key import AccessKey
from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.approval import Allowance, Approval
from owlclaw_ray.domain.artifact import StoredArtifact
from owlclaw_ray.domain.budget import NANO
from owlclaw_ray.domain.callback import Callback
from owlclaw_ray.domain.journal import JournalEntry
from owlclaw_ray.domain.json import JsonText, JsonValue
from owlclaw_ray.domain.ledger import ChainedRecord, NotedHead
from owlclaw_ray.domain.lineage import ChildRole
from owlclaw_ray.domain.memory import Memory, MemoryStats, Recall
from owlclaw_ray.domain.node import ClusterView
from owlclaw_ray.domain.quota import Quotas, QuotaUse
from owlclaw_ray.domain.retention import Retention
from owlclaw_ray.domain.run import Run, RunResult, RunStatus, Usage
from owlclaw_ray.domain.schedule import Backfill, Schedule, Tick
from owlclaw_ray.domain.score import Score
from owlclaw_ray.domain.secret import Secret
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.domain.tool import Permission
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.domain.usage import RunBucket, RunCounts, ToolBucket, ToolCounts
from owlclaw_ray.domain.webhook import Delivery, WebhookSource
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.runtime.api import AgentView, LedgerVerification
from owlclaw_ray.schedules.api import Alarm
from owlclaw_ray.store.commands import DeliveryStored, RunAccepted
from owlclaw_ray.store.queries import LedgerChain, LedgerPlace
from owlclaw_ray.tools.mcp.api import McpServerView

PLACE_PATTERN = r"^[0-9]{1,16}\.[0-9]{1,18}\.[^\u0000]+$"
"""A place in the ledger, as clients pass it on: time, position and writer, which mean nothing to them."""
HEAD_PATTERN = r"^[0-9]{1,16}\.[0-9]{1,18}\.[0-9a-f]{64}\.[^\u0000]+$"
"""The end of a chain: microseconds, position, hash and writer."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Source = TypeVar("_Source")
_Body = TypeVar("_Body")
_Form = Callable[[Any], Any]


def json_response(value: JsonValue, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(orjson.dumps(value), status, headers, "application/json")


def moment(at: datetime) -> str:
    """Return ISO 8601 in UTC, such as `2026-11-03T09:30:00.250Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def exact_moment(at: datetime) -> str:
    """Return as `moment`, with microseconds."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


_TEXTS: Mapping[type, _Form] = {datetime: moment, AgentRef: attrgetter("agent_id")}
"""How values that have a text of their own are written."""


class Representation(Generic[_Source, _Body]):
    """Makes the JSON objects of one type of `wire` from the objects of one type of ours.

    A field is the attribute of its name, of the object itself or else of its attribute `within`; or what `fields` says: the path of
    another attribute, or a function. Fields that are not required are left out.
    """

    def __init__(
        self,
        shape: type[_Body],
        source: type[_Source],
        within: str = "",
        /,
        **fields: str | Callable[[_Source], object],
    ) -> None:
        """Raises TypeError if the source has no such attribute, or its type has no JSON form as the field's."""
        hints = get_type_hints(shape, include_extras=True)
        if unknown := fields.keys() - hints.keys():
            raise TypeError(f"{shape.__name__} has no fields {unknown}")
        readers: dict[str, Callable[[_Source], object]] = {}
        for name, hint in hints.items():
            said = fields.get(name, name)
            if get_origin(hint) is NotRequired:
                continue
            if callable(said):
                readers[name] = said
            elif said != name or not within or _has(source, name):
                readers[name] = _reader(source, said, hint)
            else:
                readers[name] = _reader(source, f"{within}.{name}", hint)
        self._readers = [*readers.items()]

    def __call__(self, source: _Source) -> _Body:
        """Return the JSON object."""
        return cast("_Body", {name: read(source) for name, read in self._readers})


def _has(source: type, name: str) -> bool:
    return name in get_type_hints(source) or hasattr(source, name)


def _reader(source: type, path: str, wanted: Any) -> Callable[[Any], object]:
    """Return what reads the attribute of that path from objects of the type, in its JSON form."""
    hint: Any = source
    for name in path.split("."):
        found = getattr(hint, name, None)
        hint = get_type_hints(found.fget)["return"] if isinstance(found, property) else get_type_hints(hint).get(name)
        if hint is None:
            raise TypeError(f"{source.__name__} has no {path}")
    get, form = attrgetter(path), _form(hint, wanted, f"{source.__name__}.{path}")
    return get if form is None else lambda each: form(get(each))


def _form(hint: Any, wanted: Any, where: str) -> _Form | None:
    """Return what makes JSON of type `wanted` from values of type `hint`, None if they are that already."""
    hint = getattr(hint, "__supertype__", hint)
    if hint == wanted or wanted is Any:
        return None
    if get_origin(wanted) in {Union, UnionType} and NoneType in get_args(wanted):
        form = _form(_without_none(hint), _without_none(wanted), where)
        return None if form is None else lambda value: None if value is None else form(value)
    if get_origin(hint) is tuple and get_origin(wanted) is list:
        each = _form(get_args(hint)[0], get_args(wanted)[0], where)
        return list if each is None else lambda values: [each(value) for value in values]
    if wanted is str and hint in _TEXTS:
        return _TEXTS[hint]
    if isinstance(hint, type) and issubclass(hint, Enum) and {each.value for each in hint} == {*get_args(wanted)}:
        return attrgetter("value")
    if isinstance(hint, type) and issubclass(hint, Struct) and is_typeddict(wanted):
        return Representation(wanted, hint)
    raise TypeError(f"{where}: {hint} has no JSON form as {wanted}")


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in {Union, UnionType}:
        return hint
    kept = tuple(each for each in get_args(hint) if each is not NoneType)
    return Union[kept]  # noqa: UP007 - made of types that are not known here


def accepted_body(accepted: RunAccepted, status: RunStatus) -> wire.Accepted:
    """Return what became of a trigger that is committed. Spelled out: this is the hot path."""
    return {
        "run_id": accepted.run_id,
        "agent": accepted.agent.agent_id,
        "status": status.value,
        "scripted": accepted.scripted,
        "duplicate": accepted.duplicate,
        "merged": accepted.merged,
        "interrupted": accepted.interrupted,
    }


event_body = Representation(wire.Event, JournalEntry)
_tokens = Representation(
    wire.Tokens, Usage, prompt="prompt_tokens", completion="completion_tokens", cached="cached_tokens"
)
result_body = Representation(wire.RunResult, RunResult, tokens=lambda result: _tokens(result.usage), cost="usage.cost")
secret_body = Representation(wire.Secret, Secret)
callback_body = Representation(wire.Callback, Callback)
artifact_body = Representation(wire.Artifact, StoredArtifact)
memory_body = Representation(wire.Memory, Memory)
memory_stats_body = Representation(wire.MemoryStats, MemoryStats)
backfill_body = Representation(wire.Backfill, Backfill)
ring_body = Representation(wire.Ring, Alarm)
schedule_body = Representation(
    wire.Schedule, Schedule, interval_seconds=lambda schedule: schedule.interval_seconds or None
)
_tick = Representation(
    wire.Tick,
    Tick,
    due_at=lambda tick: exact_moment(tick.due_at),
    last_due_at=lambda tick: exact_moment(tick.last_due_at or tick.due_at),
)
skill_body = Representation(
    wire.Skill,
    Skill,
    trigger="triggers",
    risk_level=lambda skill: skill.risk_level,
    constraints=lambda skill: skill.constraints(),
    problem="unmet",
)
key_body = Representation(wire.AccessKey, AccessKey, agents="patterns")
"""A key, without the hash of its secret."""
issued_key_body = Representation(wire.IssuedKey, IssuedKey, key="text", about=lambda issued: key_body(issued.key))
quotas_body = Representation(wire.Quotas, Quotas)
quota_use_body = Representation(wire.Quotas, QuotaUse)
key_quota_use_body = Representation(wire.KeyQuotas, QuotaUse)
retention_body = Representation(wire.Retention, Retention)
tenant_body = Representation(
    wire.Tenant,
    Tenant,
    quotas=lambda tenant: quotas_body(tenant.quotas),
    retention=lambda tenant: retention_body(tenant.retention),
)
nodes_body = Representation(wire.Nodes, ClusterView)
mcp_server_body = Representation(
    wire.McpServer, McpServerView, transport=lambda view: "stdio" if view.transport == "stdio" else "http"
)
source_body = Representation(
    wire.WebhookSource,
    WebhookSource,
    source="name",
    path=lambda source: f"/v1/webhooks/{source.name}",
    agent="mapping.agent",
    signature_header="signature.header",
    algorithm="signature.algorithm",
    window_seconds=lambda source: source.signature.tolerance if source.signature.timed else None,
    dedupe="mapping.dedupe",
)
"""A source without its secrets."""
delivery_body = Representation(wire.Delivery, Delivery)
"""A delivery, without its body."""
full_delivery_body = Representation(
    wire.FullDelivery,
    Delivery,
    headers=lambda delivery: {name: str(value) for name, value in delivery.headers.items()},
)
receipt_body = Representation(wire.WebhookReceipt, DeliveryStored, "delivery")
_allowance = Representation(wire.Allowance, Allowance, "decision", decision="decision.decision")
approval_body = Representation(
    wire.Approval,
    Approval,
    "request",
    trigger=lambda approval: TriggerKind(approval.request.trigger).value,
    started_as=lambda approval: ChildRole(approval.request.started_as).value if approval.request.started_as else "",
    permission=lambda approval: Permission(approval.request.permission).value,
    allowed_by=lambda approval: [_allowance(each) for each in approval.allowed_by],
)
"""An approval with everything that a person needs to decide about it."""
record_body = Representation(
    wire.LedgerRecord,
    ChainedRecord,
    "record",
    agent="record.agent_id",
    at=lambda chained: exact_moment(chained.record.at),
)
_outcomes = Representation(wire.RunOutcomes, RunCounts)
_used_tokens = Representation(
    wire.Tokens, RunCounts, prompt="prompt_tokens", completion="completion_tokens", cached="cached_tokens"
)
run_usage_body = Representation(
    wire.UsageOfRuns,
    RunBucket,
    "counts",
    definition=lambda bucket: bucket.definition or (bucket.agent.definition if bucket.agent else None),
    outcomes=lambda bucket: _outcomes(bucket.counts),
    cost=lambda bucket: bucket.counts.cost / NANO,
    tokens=lambda bucket: _used_tokens(bucket.counts),
)
_durations = Representation(wire.CallDurations, ToolCounts)
tool_usage_body = Representation(
    wire.UsageOfTool, ToolBucket, "counts", durations=lambda bucket: _durations(bucket.counts)
)
agent_body = Representation(
    wire.Agent,
    AgentView,
    definition="agent.definition",
    runs=lambda view: _state(view).runs,
    recent_outcomes=lambda view: list(_state(view).recent_outcomes),
    queued_runs=lambda view: view.record.queued_runs if view.record else 0,
    running_run=lambda view: view.record.running_run if view.record else None,
    created_at=lambda view: moment(view.record.created_at) if view.record else None,
)
"""An agent, with zeroes for one that never had a trigger."""


def _state(view: AgentView) -> AgentState:
    return view.record.state if view.record else AgentState()


def score_body(run_id: RunId, score: Score) -> wire.Score:
    """Return a score that is kept."""
    said = score.judgement
    return {
        "score_id": score.score_id,
        "run_id": run_id,
        "trace_id": score.trace_id,
        "name": said.name,
        "value": said.value,
        "comment": said.comment,
    }


_trigger = Representation(wire.Trigger, Trigger)
_run = Representation(
    wire.Run,
    Run,
    trigger=lambda run: _trigger(run.trigger),
    result=lambda run: None if run.result is None else result_body(run.result),
)


def run_body(run: Run, *, payload: bool = True) -> wire.Run:
    """Return a run without its events; without its payload too, if that is said."""
    body, trigger = _run(run), run.trigger
    if run.waits_for:
        body["waits_for"] = cast("wire.WaitsFor", run.waits_for)
    shown = body["trigger"]
    if trigger.task_type:
        shown["task_type"] = trigger.task_type
    if trigger.session:
        shown["session"] = trigger.session
    if trigger.user:
        shown["user"] = trigger.user
    if payload:
        content = trigger.content
        shown["payload"] = orjson.Fragment(content.text) if isinstance(content, JsonText) else content
    return body


def memories_body(memories: Sequence[Memory], after: str | None, limit: int) -> wire.Memories:
    """Return a page of the memories that begins after that one; raises NotFoundError if it is not among them."""
    begin = 0
    if after is not None:
        begin = next((at for at, each in enumerate(memories, start=1) if each.memory_id == after), 0)
        if not begin:
            raise NotFoundError("memory", after)
    page = memories[begin : begin + limit]
    more = begin + limit < len(memories)
    return {"memories": [memory_body(each) for each in page], "next_after": page[-1].memory_id if more else None}


def found_body(found: Recall, *, explained: bool) -> wire.FoundMemories:
    """Return what a query found, with the parts of the scores if they are to be explained."""
    memories: list[wire.FoundMemory] = [
        {
            **memory_body(each.memory),
            "score": round(each.score, 4),
            "explanation": each.parts.as_json() if explained else None,
        }
        for each in found.memories
    ]
    return {"memories": memories, "degraded": found.degraded, "reason": found.reason}


def schedules_body(schedules: Sequence[Schedule], limit: int) -> wire.Schedules:
    """Return a page of schedules; if it is full, with the place to go on."""
    return {
        "schedules": [schedule_body(each) for each in schedules],
        "next_after": schedules[-1].schedule_id if len(schedules) >= limit else None,
    }


def ticks_body(ticks: Sequence[Tick], limit: int) -> wire.Ticks:
    """Return a page of ticks; if it is full, with the place to go on."""
    return {
        "ticks": [_tick(each) for each in ticks],
        "next_before": exact_moment(ticks[-1].due_at) if len(ticks) >= limit else None,
    }


def ledger_body(records: Sequence[ChainedRecord], limit: int) -> wire.Ledger:
    """Return a page of records; if it is full, with the place to go on."""
    following = None
    if len(records) >= limit:
        following = place_text(LedgerPlace.of(records[-1]))
    return {"records": [record_body(record) for record in records], "next_after": following}


_chain = Representation(wire.LedgerChain, LedgerChain, records="position")
verification_body = Representation(
    wire.LedgerVerification,
    LedgerVerification,
    holds=lambda verification: not verification.breaks,
    chains=lambda verification: [_chain(each) for each in verification.chains],
    noted=lambda verification: {"heads": verification.noted, "problems": list(verification.problems)},
)


def heads_body(tenant: TenantId, chains: Sequence[LedgerChain], at: datetime) -> wire.LedgerHeads:
    """Return the ends of chains as they are noted."""
    noted = exact_moment(at)
    return {
        "heads": [
            {"at": noted, "tenant": tenant, "writer": each.writer, "position": each.position, "hash": each.hash}
            for each in chains
        ]
    }


def place_text(place: LedgerPlace) -> str:
    """Return a place as clients pass it on."""
    return f"{(place.at - _EPOCH) // timedelta(microseconds=1)}.{place.position}.{place.writer}"


def place_of(text: str) -> LedgerPlace:
    """Return the place that a text of PLACE_PATTERN means."""
    micros, position, writer = text.split(".", 2)
    return LedgerPlace(_EPOCH + timedelta(microseconds=int(micros)), writer, int(position))


def head_of(tenant: TenantId, text: str) -> NotedHead:
    """Return the head that a text of HEAD_PATTERN means."""
    micros, position, digest, writer = text.split(".", 3)
    return NotedHead(_EPOCH + timedelta(microseconds=int(micros)), tenant, writer, int(position), digest)
