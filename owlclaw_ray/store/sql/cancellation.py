"""CancelRun on the working set."""

from __future__ import annotations

from owlclaw_ray.domain.entries import run_finished
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord, access_record
from owlclaw_ray.domain.run import RunResult, RunStatus
from owlclaw_ray.ids import RecordId, RunId, derived_id
from owlclaw_ray.store.commands import CancelOutcome, CancelRun
from owlclaw_ray.store.sql.answers import CancelAnswer
from owlclaw_ray.store.sql.approvals import withdraw
from owlclaw_ray.store.sql.codec import agent_of, dump, from_micros, to_micros
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.run_lifecycle import leave
from owlclaw_ray.store.sql.usage import count_end
from owlclaw_ray.store.sql.working_set import RunRow, WorkingSet


def _need_run(needs: RowNeeds, command: CancelRun) -> None:
    needs.runs.add(command.run_id)
    needs.cancelled.add(command.run_id)
    needs.finished.add(command.run_id)
    needs.records.add((command.run_id, end_record_id(command.run_id)))


@applies(CancelRun, needs=_need_run)
def cancel_run(store: WorkingSet, command: CancelRun) -> CancelOutcome | CancelAnswer:
    """End a queued run, mark a running one, leave a final one."""
    run = store.runs.get(command.run_id)
    if run is None or agent_of(run.agent).tenant != command.tenant:
        return CancelOutcome(None)
    waited = run.status is RunStatus.WAITING
    if command.by and not run.status.final and not run.cancel_requested:
        record_id = derived_id("rec", run.run_id, "cancelled", str(to_micros(command.at)))
        agent_id, run_id, said = agent_of(run.agent).agent_id, RunId(run.run_id), {"by": command.by}
        record = access_record(
            record_id, command.tenant, "run_cancelled", command.at, said, agent_id=agent_id, run_id=run_id
        )
        store.record((record,))
    ask_to_end(store, run, to_micros(command.at))
    return CancelAnswer(run.snapshot(), waited)


def ask_to_end(store: WorkingSet, run: RunRow, at: int) -> None:
    """End a run that is queued; have any other that is not over end soon, without what it waits for."""
    if run.status is RunStatus.QUEUED:
        _end_cancelled(store, run, at)
        store.run_over(run, at)
    elif not run.status.final and not run.cancel_requested:
        run.cancel_requested = True
        store.changed_run(run)
    if run.status is RunStatus.WAITING:
        withdraw(store, run, at)


def end_at_once(store: WorkingSet, run: RunRow, at: int) -> None:
    """End a run that is not over, whoever executes it: the epoch that its agent has from now on refuses whatever they still store."""
    agent = store.agents[run.agent]
    agent.epoch, agent.activation_id = agent.epoch + 1, None
    store.changed_agent(agent)
    if run.status is RunStatus.WAITING:
        withdraw(store, run, at)
    if agent.running is run:
        agent.running = None
    _end_cancelled(store, run, at)


def _end_cancelled(store: WorkingSet, run: RunRow, at: int) -> None:
    result, was_queued = RunResult(RunStatus.CANCELLED), run.status is RunStatus.QUEUED
    data = run_finished(result)
    store.note(run, EntryKind.RUN_FINISHED, at, data)
    run.status, run.finished_at, run.cancel_requested = RunStatus.CANCELLED, at, True
    run.result = dump(result)
    store.changed_run(run)
    count_end(store, run, result.usage)
    if was_queued:
        store.agents[run.agent].leave(run)
    leave(store, run)
    agent, record_id, run_id = agent_of(run.agent), RecordId(end_record_id(run.run_id)), RunId(run.run_id)
    kind, moment = LedgerKind.RUN, from_micros(at)
    store.record((LedgerRecord(record_id, agent.tenant, agent.agent_id, run_id, kind, moment, data),))


def end_record_id(run_id: str) -> str:
    """Return the id of the ledger record that tells a run's end, the same that the engine gives it."""
    return derived_id("rec", run_id, "run", "end")
