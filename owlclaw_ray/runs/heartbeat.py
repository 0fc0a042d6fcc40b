"""Heartbeats: whether a run that only looks has anything to think about (R7).

A heartbeat is a firing of a schedule of the kind `heartbeat`, so it is durable and accounted for as every firing is. Before a
model is called, the sources are asked; nothing new: the run is `skipped`.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime, timedelta

import orjson
from msgspec import Struct
from msgspec.structs import asdict, replace

from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, AgentState
from owlclaw_ray.domain.heartbeat import (
    PENDING_EVENTS,
    SUBMITTERS,
    EventSourceKind,
    Heartbeat,
    HeartbeatSkipReason,
    HeartbeatState,
)
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import Run, RunError, RunResult, RunStatus
from owlclaw_ray.domain.schedule import ScheduleStatus
from owlclaw_ray.domain.tool import Effect, ToolClass
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import DeliveryId, RunId, ScheduleId, ToolCallId, derived_id
from owlclaw_ray.kernel.containment import contained
from owlclaw_ray.models.tokens import estimate_tokens
from owlclaw_ray.runs.prompt import trigger_text
from owlclaw_ray.runs.run_journal import RunJournal
from owlclaw_ray.runs.run_loop import RunServices
from owlclaw_ray.store.commands import CancelSchedule, IdleHeartbeat, PauseSchedule, ResumeSchedule

_INBOX = EventSourceKind.INBOX.value
_FAILURES = "failures"

logger = logging.getLogger(__name__)


def heartbeat_schedule_id(agent: AgentRef, heartbeat: Heartbeat, number: int = 0) -> ScheduleId:
    """Return the id of a schedule that makes an agent's heartbeats; `number` counts those before it that are over for good."""
    digest = derived_id("", agent.tenant, agent.agent_id, str(number))
    return ScheduleId(f"{_prefix(heartbeat)}{digest}")


def _prefix(heartbeat: Heartbeat) -> str:
    return f"sch_heartbeat_{heartbeat.every_seconds}"


class HeartbeatDue(Struct, frozen=True):
    """Something new is pending: the run with it as its payload, and the pulse, if that is dealt with."""

    run: Run
    pulse: HeartbeatState


class HeartbeatSkipped(Struct, frozen=True):
    """There is nothing to think about. `command` is what else should become of the schedule, if anything. `idle`: nothing is to be
    told of it that the look before did not tell.
    """

    result: RunResult
    pulse: HeartbeatState
    idle: IdleHeartbeat | None = None
    command: PauseSchedule | CancelSchedule | None = None


def resumed_heartbeat(run: Run, woken: JsonObject | None) -> HeartbeatDue | None:
    """Return for what the heartbeat woke its agent before it was interrupted, or waited; None if it did not."""
    return None if woken is None else _woken(run, woken)


def _woken(run: Run, data: JsonObject) -> HeartbeatDue:
    """Return it from the data of its journal entry."""
    submitters = dict.fromkeys((*run.trigger.submitters, *data.get(SUBMITTERS, ())))
    trigger = replace(run.trigger, content=_payload(run, data["events"]), submitters=tuple(submitters))
    return HeartbeatDue(replace(run, trigger=trigger), HeartbeatState(**data["pulse"]))


def _payload(run: Run, events: Sequence[JsonObject]) -> JsonObject:
    return {**(run.trigger.payload if isinstance(run.trigger.payload, dict) else {}), "events": list(events)}


async def look(
    run: Run, definition: AgentDefinition, state: AgentState, journal: RunJournal, services: RunServices
) -> HeartbeatDue | HeartbeatSkipped:
    """Ask the sources of a heartbeat what is pending, and decide."""
    now, pulse = services.clock.now(), state.pulse or HeartbeatState()
    if not pulse.active_at or pulse.paused == run.trigger.source:  # somebody had the heartbeats go on
        pulse = replace(pulse, active_at=now.timestamp(), paused="")
    heartbeat = definition.heartbeat
    if heartbeat is None or _disables(run, heartbeat):
        return _disabled(run, pulse, now)
    found = await contained(services.tools.run(_question(run, definition, heartbeat)))
    if found.result.error is not None:
        return _skipped(HeartbeatSkipReason.CHECK_FAILED, found.result.error.message, pulse)
    events, problems = found.result.content["events"], found.result.content["problems"]
    for at, problem in enumerate(problems):
        journal.audit(LedgerKind.WARNING, f"source-{at}", {"what": "event source failed", **problem})
    fitting = _fitting(_inbox(events), definition.limits.short_term_tokens // 2)
    askers = list(dict.fromkeys(name for each in fitting for name in each.get(SUBMITTERS, ())))
    inbox = [{key: value for key, value in each.items() if key != SUBMITTERS} for each in fitting]
    others = [each for each in events if each["source"] != _INBOX]
    if not inbox and not others:
        skipped = _nothing(heartbeat, replace(pulse, fingerprint=""), problems)
        return skipped if problems else _idle(run, heartbeat, skipped, now, journal)
    fingerprint = hashlib.sha256(orjson.dumps(others, option=orjson.OPT_SORT_KEYS)).hexdigest() if others else ""
    today = now.date().isoformat()
    woken = pulse.woken if pulse.day == today else 0
    if not inbox and fingerprint == pulse.fingerprint:
        message = "what is pending is what the agent dealt with before"
        skipped = _skipped(HeartbeatSkipReason.UNCHANGED, message, pulse)
        return _idle(run, heartbeat, skipped, now, None if problems else journal)
    if heartbeat.max_per_day is not None and woken >= heartbeat.max_per_day:
        message = f"{woken} heartbeats woke the agent today, and no more may (heartbeat.max_per_day)"
        return _skipped(HeartbeatSkipReason.DAILY_LIMIT, message, pulse)
    seen = _beside(inbox, others, run, definition.limits.short_term_tokens) if inbox else others
    pulse = replace(
        pulse, fingerprint=fingerprint, active_at=now.timestamp(), day=today, woken=woken + 1, paused="", idle=""
    )
    submitters = {SUBMITTERS: askers} if askers else {}
    journal.record(EntryKind.HEARTBEAT_WOKEN, {"events": seen, "pulse": asdict(pulse), **submitters})
    assert journal.conversation.woken is not None
    return _woken(run, journal.conversation.woken)


def _inbox(events: Sequence[JsonObject]) -> list[JsonObject]:
    return [delivery for each in events if each["source"] == _INBOX for delivery in each["pending"]]


def _fitting(deliveries: Sequence[JsonObject], tokens: int) -> list[JsonObject]:
    """Return the oldest, as many as the model can be shown whole, at least one: the others wait for the next heartbeat.

    One that a heartbeat saw and failed is shown alone, so that what makes heartbeats fail is found out.
    """
    fitting: list[JsonObject] = []
    for each in deliveries:
        shown = {key: value for key, value in each.items() if key != _FAILURES}
        tokens -= estimate_tokens(orjson.dumps(shown).decode())
        if fitting and (tokens < 0 or _FAILURES in each):
            break
        fitting.append(shown)
        if _FAILURES in each:
            break
    return fitting


def _beside(inbox: Sequence[JsonObject], others: Sequence[JsonObject], run: Run, tokens: int) -> list[JsonObject]:
    """Return the deliveries, and of what else is pending as much as leaves them whole: for the sake of it they are not cut."""
    seen: list[JsonObject] = [{"source": _INBOX, "pending": list(inbox)}, *(_first(each, 0) for each in others)]
    for at, event in enumerate(others, 1):

        def too_many(most: int, at: int = at, event: JsonObject = event) -> bool:
            events = [*seen[:at], _first(event, most), *seen[at + 1 :]]
            trigger = replace(run.trigger, content=_payload(run, events))
            return estimate_tokens(trigger_text(trigger, sys.maxsize)) > tokens

        most = bisect_left(range(1, len(_pending(event)) + 1), True, key=too_many)
        seen[at] = _first(event, most)
    return seen


def _first(event: JsonObject, most: int) -> JsonObject:
    pending = _pending(event)
    return event if len(pending) <= most else {**event, "pending": pending[:most], "left_out": len(pending) - most}


def _pending(event: JsonObject) -> list[JsonValue]:
    pending: JsonValue = event["pending"]
    return pending if isinstance(pending, list) else [pending]


def _question(run: Run, definition: AgentDefinition, heartbeat: Heartbeat) -> ToolInvocation:
    call_id = ToolCallId(derived_id("call", run.run_id, "events"))
    asked = {
        "sources": [each.value for each in heartbeat.sources],
        "query": heartbeat.query,
        "url_variable": heartbeat.url_variable,
    }
    return ToolInvocation(
        call_id=call_id,
        tool=PENDING_EVENTS,
        arguments=orjson.dumps(asked).decode(),
        agent=run.agent,
        run_id=run.run_id,
        trigger=run.trigger.kind,
        effect=Effect.PURE,
        tool_class=ToolClass.ALONE,
        timeout=definition.limits.tool_timeout,
        idempotency_key=call_id,
    )


def _nothing(heartbeat: Heartbeat, pulse: HeartbeatState, problems: Sequence[JsonObject]) -> HeartbeatSkipped:
    if problems:
        message = f"these sources could not be asked: {', '.join(each['source'] for each in problems)}"
        return _skipped(HeartbeatSkipReason.CHECK_FAILED, message, pulse)
    names = ", ".join(each.value for each in heartbeat.sources)
    return _skipped(HeartbeatSkipReason.NO_EVENTS, f"nothing is pending ({names})", pulse)


def _idle(
    run: Run, heartbeat: Heartbeat, skipped: HeartbeatSkipped, now: datetime, journal: RunJournal | None
) -> HeartbeatSkipped:
    """Have heartbeats stop if nothing happened for long. Else no more than the last idle one is kept, and of several after another
    the ledger is told of the first; without a `journal` it is kept as any run.
    """
    days, pulse, error = heartbeat.pause_after_idle_days, skipped.pulse, skipped.result.error
    if days is not None and now.timestamp() - pulse.active_at >= timedelta(days=days).total_seconds():
        source = ScheduleId(run.trigger.source)
        logger.info("heartbeats of %s stop: nothing happened for %g days", run.agent, days)
        return replace(skipped, pulse=replace(pulse, paused=source), command=PauseSchedule(run.agent, source, now))
    if journal is None or error is None:
        return skipped
    if pulse.idle != error.type:
        journal.audit(LedgerKind.TRIGGER, "idle", {"what": "idle", "why": error.type, "message": error.message})
    beat = IdleHeartbeat(RunId(pulse.idle_run) if pulse.idle_run else None, heartbeat.every_seconds)
    return replace(skipped, idle=beat, pulse=replace(pulse, idle=error.type, idle_run=run.run_id))


def _disables(run: Run, heartbeat: Heartbeat) -> bool:
    """Return whether the agent is not to have the heartbeats of which this is one."""
    return run.trigger.lineage is not None or not run.trigger.source.startswith(f"{_prefix(heartbeat)}_")


def _disabled(run: Run, pulse: HeartbeatState, now: datetime) -> HeartbeatSkipped:
    source, lineage = ScheduleId(run.trigger.source), run.trigger.lineage
    why = "the agent's definition has no such heartbeats any more"
    if lineage is not None:
        why = f"{run.agent} was started by {lineage.parent}, and has no heartbeats"
    skipped = _skipped(HeartbeatSkipReason.DISABLED, why, pulse)
    over = CancelSchedule(run.agent, source, now, run.run_id, ScheduleStatus.DONE)
    return replace(skipped, command=over)


def _skipped(why: HeartbeatSkipReason, message: str, pulse: HeartbeatState) -> HeartbeatSkipped:
    return HeartbeatSkipped(RunResult(RunStatus.SKIPPED, error=RunError(why.value, message)), pulse)


def deliveries_of(woken: JsonObject | None, result: RunResult) -> tuple[DeliveryId, ...]:
    """Return the deliveries that a run saw and that its end says something about: it dealt with them, or may have failed of them.

    That it was cancelled, that no model could be reached, and that a budget was spent is not their doing.
    """
    if woken is None or result.status in {RunStatus.CANCELLED, RunStatus.SKIPPED}:
        return ()
    error = result.error
    if error is not None and (error.type == "budget_exhausted" or (error.type == "model_failed" and error.retryable)):
        return ()
    return tuple(each["delivery_id"] for each in _inbox(woken["events"]))


def after_heartbeat(beat: HeartbeatDue, result: RunResult, state: AgentState, before: AgentState) -> AgentState:
    """Return the state after a heartbeat with a model: what the agent did not deal with may wake it again."""
    fingerprint = beat.pulse.fingerprint
    if result.status is not RunStatus.COMPLETED:
        fingerprint = "" if before.pulse is None else before.pulse.fingerprint
    return replace(state, pulse=replace(beat.pulse, fingerprint=fingerprint))


def is_idle_beat(run: Run, result: RunResult) -> bool:
    """Return whether the run was a heartbeat without anything to do, which its agent need not remember."""
    return run.trigger.kind is TriggerKind.HEARTBEAT and result.status is RunStatus.SKIPPED


def reactivate_heartbeats(run: Run, state: AgentState, now: datetime) -> tuple[AgentState, ResumeSchedule | None]:
    """Return the state of an agent that had another run than a heartbeat, and what sets its heartbeats going again."""
    pulse = state.pulse
    if pulse is None or run.trigger.kind is TriggerKind.HEARTBEAT:
        return state, None
    resume = ResumeSchedule(run.agent, ScheduleId(pulse.paused), now) if pulse.paused else None
    return replace(state, pulse=replace(pulse, active_at=now.timestamp(), paused="")), resume
