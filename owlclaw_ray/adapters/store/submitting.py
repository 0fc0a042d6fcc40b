"""SubmitRun and CancelRun on the working set."""

from __future__ import annotations

from owlclaw_ray.adapters.store.answers import CancelAnswer
from owlclaw_ray.adapters.store.codec import agent_key, agent_of, dump, from_micros, tenant_key, to_micros
from owlclaw_ray.adapters.store.needs import end_record_id
from owlclaw_ray.adapters.store.working_set import KeyRow, RunRow, WorkingSet
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.run import RunResult, RunStatus
from owlclaw_ray.engine.entries import run_finished
from owlclaw_ray.ids import RecordId, RunId
from owlclaw_ray.ports.store import CancelOutcome, CancelRun, IdempotencyConflict, RunAccepted, SubmitRun


def submit_run(store: WorkingSet, command: SubmitRun) -> RunAccepted | IdempotencyConflict:
    """Queue the run unless its id or its Idempotency-Key is known."""
    key = agent_key(command.agent)
    known = store.runs.get(command.run_id)
    if known is not None:
        if known.agent != key:
            raise ValueError(f"run id {command.run_id} belongs to another agent")
        return RunAccepted(command.run_id, known.seq, command.agent)
    at = to_micros(command.at)
    claim = command.idempotency
    slot = "" if claim is None else tenant_key(command.agent.tenant, claim.key)
    if claim is not None:
        earlier = store.keys.get(slot)
        if earlier is not None and earlier.expires_at > at:
            if earlier.body_hash != claim.body_hash:
                return IdempotencyConflict(claim.key)
            return RunAccepted(RunId(earlier.run_id), earlier.seq, agent_of(earlier.agent), duplicate=True)
    run = RunRow(store.free_seqs.popleft(), command.run_id, key, at, RunStatus.QUEUED, recorded_calls=0)
    run.trigger = dump(command.trigger)
    store.add_run(run)
    store.note(run, EntryKind.RUN_QUEUED, at, {"trigger": command.trigger.kind.value, "focus": command.trigger.focus})
    if claim is not None:
        row = KeyRow(claim.body_hash, run.run_id, to_micros(claim.expires_at), run.seq, key)
        store.keys[slot] = store.changes.keys[slot] = row
    return RunAccepted(command.run_id, run.seq, command.agent)


def cancel_run(store: WorkingSet, command: CancelRun) -> CancelOutcome | CancelAnswer:
    """End a queued run, mark a running one, leave a final one."""
    run = store.runs.get(command.run_id)
    if run is None or agent_of(run.agent).tenant != command.tenant:
        return CancelOutcome(None)
    if run.status is RunStatus.QUEUED:
        _end_queued(store, run, to_micros(command.at))
    elif not run.status.final and not run.cancel_requested:
        run.cancel_requested = True
        store.changed_run(run)
    return CancelAnswer(run.snapshot())


def _end_queued(store: WorkingSet, run: RunRow, at: int) -> None:
    result = RunResult(RunStatus.CANCELLED)
    data = run_finished(result)
    store.note(run, EntryKind.RUN_FINISHED, at, data)
    run.status, run.finished_at, run.cancel_requested = RunStatus.CANCELLED, at, True
    run.result = dump(result)
    store.changed_run(run)
    queue = store.agents[run.agent].queue
    if run in queue:
        queue.remove(run)
    store.record((_end_record(agent_of(run.agent), run, data, at),))


def _end_record(agent: AgentRef, run: RunRow, data: dict[str, object], at: int) -> LedgerRecord:
    record_id, run_id = RecordId(end_record_id(run.run_id)), RunId(run.run_id)
    return LedgerRecord(record_id, agent.tenant, agent.agent_id, run_id, LedgerKind.RUN, from_micros(at), data)
