"""What an activation does with its agent and runs, on the working set. Every write checks the epoch."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.lineage import Lineage
from owlclaw_ray.domain.quota import OPEN_RUNS, RUNNING_RUNS, KeyQuota
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.webhook import MAX_FAILURES
from owlclaw_ray.ids import RunId
from owlclaw_ray.store.commands import (
    ActivateAgent,
    AgentActivated,
    AgentLeaving,
    Appended,
    AppendJournal,
    AwaitApprovals,
    AwaitRuns,
    ClaimRun,
    FinishRun,
    NothingQueued,
    OnStandby,
    ReleaseAgent,
    Released,
    ReserveBudget,
    RunClaimed,
    RunFinished,
    SettleBudget,
    StaleEpoch,
)
from owlclaw_ray.store.sql.answers import ActivateAnswer, Answer, ClaimAnswer, FinishAnswer
from owlclaw_ray.store.sql.codec import agent_key, agent_of, dump, load_lineage, load_state, to_micros
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.idle_heartbeats import keep_one_idle
from owlclaw_ray.store.sql.quotas import begin, count, count_for_keys, full_keys, keep, no_room_for, reached, stop
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.usage import count_calls, count_end
from owlclaw_ray.store.sql.working_set import EPOCH_AFTER_WAIT, AgentRow, RunRow, WorkingSet

_ANY_EPOCH = -1
"""Of an activation that claims a run: it will be another than the one that claimed the run before."""


def _need_activation(needs: RowNeeds, command: ActivateAgent) -> None:
    key = needs.agent(command.agent, command.at)
    needs.counts.add(key)
    needs.claims_agents = True
    if command.claim:
        needs.claim(key, _ANY_EPOCH)


@applies(ActivateAgent, needs=_need_activation)
def activate(store: WorkingSet, command: ActivateAgent) -> Answer:
    """Give the agent to this activation, under the next epoch unless it has it already, and with it a run if asked."""
    if store.on_standby:
        return OnStandby()
    if stale := store.stale_term(command.term):
        return stale
    agent = store.agents[agent_key(command.agent)]
    if store.is_leaving(agent):
        return AgentLeaving()
    refused = no_room_for(store, agent.agent)
    if refused is not None:
        raise ValueError(f"{command.agent} is new: {refused.error(command.at)}")
    keep(store, agent.agent)
    if agent.activation_id != command.activation_id:
        agent.epoch += 1
        agent.activation_id, agent.node_id = command.activation_id, store.node_id or None
        store.changed_agent(agent)
    claimed = _claim_next(store, agent, command.at) if command.claim else None
    if isinstance(claimed, ClaimAnswer):
        return ActivateAnswer(agent.epoch, load_state(agent.state), claimed)
    return AgentActivated(agent.epoch, load_state(agent.state), claimed)


def _need_release(needs: RowNeeds, command: ReleaseAgent) -> None:
    needs.looks.add(needs.agent(command.agent))


@applies(ReleaseAgent, needs=_need_release)
def release(store: WorkingSet, command: ReleaseAgent) -> Released | StaleEpoch:
    """Take the agent from its activation; again changes nothing."""
    agent = store.agents.get(agent_key(command.agent))
    if agent is None or agent.epoch != command.epoch:
        return _stale(command.agent, agent)
    if agent.activation_id is not None:
        agent.activation_id = None
        agent.state = dump(command.state)
        store.changed_agent(agent)
    if agent.running is not None:
        return Released(pending=agent.running.status is RunStatus.RUNNING)
    return Released(pending=bool(agent.queue))


def _need_claim(needs: RowNeeds, command: ClaimRun) -> None:
    needs.claim(needs.agent(command.agent), command.epoch)


@applies(ClaimRun, needs=_need_claim)
def claim(store: WorkingSet, command: ClaimRun) -> Answer:
    """Give the activation the agent's next run."""
    agent = owned(store, command.agent, command.epoch)
    if isinstance(agent, StaleEpoch):
        return agent
    return _claim_next(store, agent, command.at) or NothingQueued()


def need_facts(needs: RowNeeds, command: AppendJournal | FinishRun | AwaitApprovals | AwaitRuns) -> str:
    """Note the run that facts are stored of, and return the key of its agent."""
    needs.runs.add(command.run_id)
    needs.record(command.ledger)
    return needs.agent(command.agent)


@applies(AppendJournal, needs=need_facts)
def append(store: WorkingSet, command: AppendJournal) -> Appended | StaleEpoch:
    """Append to a run that this activation executes."""
    agent = owned(store, command.agent, command.epoch)
    if isinstance(agent, StaleEpoch):
        return agent
    run = run_of(store, command)
    if any(entry.seq > run.last_entry for entry in command.entries):
        check_claimed(run, command.epoch)
    store_facts(store, run, command)
    return appended(run)


def _need_end(needs: RowNeeds, command: FinishRun) -> None:
    key = need_facts(needs, command)
    needs.finished.add(command.run_id)
    needs.counts.add(key)
    if command.idle is not None:
        needs.ticked.update(filter(None, (command.run_id, command.idle.replaces)))
    if command.claim_next:
        needs.claim(key, command.epoch)


@applies(FinishRun, needs=_need_end)
def finish(store: WorkingSet, command: FinishRun) -> Answer:
    """End a run that this activation executes, unless it is over already, and claim the next if asked."""
    agent = owned(store, command.agent, command.epoch)
    if isinstance(agent, StaleEpoch):
        return agent
    run = run_of(store, command)
    is_full, full = reached(store, command.agent.tenant, RUNNING_RUNS) is not None, full_keys(store, run)
    if not run.status.final:
        _end(store, agent, run, command)
    others_first = is_full or (bool(agent.queue) and not full.isdisjoint(agent.queue[0].keys))
    following = _claim_next(store, agent, command.at) if command.claim_next and not others_first else None
    return FinishAnswer(following) if isinstance(following, ClaimAnswer) else RunFinished(following)


def _end(store: WorkingSet, agent: AgentRow, run: RunRow, command: FinishRun) -> None:
    if not command.result.status.final:
        raise ValueError(f"run {run.run_id} cannot end as {command.result.status.value}")
    check_claimed(run, command.epoch)
    if command.idle is None:
        store_facts(store, run, command)
    else:
        store.record(command.ledger)
        keep_one_idle(store, run, command.idle)
    leave(store, run)
    run.status, run.finished_at, run.result = command.result.status, to_micros(command.at), dump(command.result)
    store.changed_run(run)
    if command.idle is None:
        count_end(store, run, command.result.usage)
    store.call_back(run, filter(None, (command.callback_url,)), run.finished_at)
    store.run_over(run, run.finished_at)
    _mark_seen(store, run, command)
    agent.running = None
    agent.state = dump(command.state)
    store.changed_agent(agent)


def _mark_seen(store: WorkingSet, run: RunRow, command: FinishRun) -> None:
    if command.result.status is RunStatus.COMPLETED:
        store.handled(run, command.deliveries)
        return
    error = command.result.error
    why = f"{MAX_FAILURES} heartbeats that saw it failed, the last one as {command.result.status.value}"
    store.failed(run, command.deliveries, why if error is None else f"{why}: {error.message}")


def _claim_next(store: WorkingSet, agent: AgentRow, at: datetime) -> RunClaimed | ClaimAnswer | None:
    if store.on_standby or (store.suspended and agent_of(agent.agent).tenant in store.suspended):
        return None
    run, lineage = agent.running, load_lineage(agent.lineage)
    if run is not None:
        if run.status is RunStatus.WAITING or not begin(store, run):
            return None
        _take_up(store, run, agent.epoch, to_micros(at))
        return ClaimAnswer(replace(run.snapshot(), key_quotas=_quotas_of(store, run)), run.last_entry, lineage)
    if not agent.queue or not begin(store, agent.queue[0]):
        return None
    run = agent.running = agent.queue[0]
    agent.leave(run)
    began = max(to_micros(at), run.created_at)  # a claim that waited for the store may be older than what it is given
    run.status, run.started_at, run.claimed_epoch = RunStatus.RUNNING, began, agent.epoch
    run.recorded_calls = 0
    store.changed_run(run)
    store.note(run, EntryKind.RUN_STARTED, run.started_at, {"epoch": agent.epoch})
    return _fresh(run, agent.epoch, lineage, _quotas_of(store, run))


def _quotas_of(store: WorkingSet, run: RunRow) -> tuple[KeyQuota, ...]:
    return tuple(store.key_quotas[key_id] for key_id in run.keys if key_id in store.key_quotas)


def _take_up(store: WorkingSet, run: RunRow, epoch: int, at: int) -> None:
    if run.claimed_epoch == epoch:
        return
    if run.claimed_epoch == EPOCH_AFTER_WAIT:
        store.note(run, EntryKind.RUN_CONTINUED, at, {"epoch": epoch})
    else:
        data = {"epoch": epoch, "recorded_tool_calls": run.recorded_calls}
        store.note(run, EntryKind.RUN_RESUMED, at, data)
    run.claimed_epoch = epoch
    store.changed_run(run)


def _fresh(row: RunRow, epoch: int, lineage: Lineage | None, key_quotas: tuple[KeyQuota, ...]) -> RunClaimed:
    run = row.snapshot()
    run = replace(run, trigger=run.trigger.within(lineage), key_quotas=key_quotas)
    assert run.started_at is not None
    queued = {"trigger": run.trigger.kind.value, "focus": run.trigger.focus}
    journal = (
        JournalEntry(1, EntryKind.RUN_QUEUED, run.created_at, queued),
        JournalEntry(row.last_entry, EntryKind.RUN_STARTED, run.started_at, {"epoch": epoch}),
    )
    return RunClaimed(run, journal, payload_left=row.payload_left)


def need_wait(needs: RowNeeds, command: AwaitApprovals | AwaitRuns) -> None:
    """Note the run that is to wait."""
    needs.counts.add(need_facts(needs, command))
    needs.waits = True


def store_facts(
    store: WorkingSet, run: RunRow, command: AppendJournal | FinishRun | AwaitApprovals | AwaitRuns
) -> None:
    """Store the facts that a command brings: entries of the run's journal, ledger records, and the texts that they name."""
    known = run.last_entry
    store.append(run, command.entries)
    count_calls(store, run, (entry for entry in command.entries if entry.seq > known))
    store.record(command.ledger)
    if command.blobs:
        store.keep(run.tenant, command.blobs, max((entry.at for entry in command.entries), default=None))


def appended(run: RunRow) -> Appended:
    """Return what whoever executes the run is told of it."""
    by = run.interrupted_by
    return Appended(bool(run.cancel_requested), None if by is None else RunId(by), run.status.final)


def owned(store: WorkingSet, ref: AgentRef, epoch: int) -> AgentRow | StaleEpoch:
    """Return the agent, if the activation of that epoch owns it."""
    agent = store.agents.get(agent_key(ref))
    if agent is None or agent.epoch != epoch or agent.activation_id is None:
        return _stale(ref, agent)
    return agent


def leave(store: WorkingSet, run: RunRow) -> None:
    """Free what a run that ends had of quotas, and what it reserved of budgets and did not settle."""
    count(store, run.tenant, OPEN_RUNS, -1)
    count_for_keys(store, run, OPEN_RUNS, -1)
    stop(store, run)
    if run.reserves:
        for reservation_id in [key for key, rows in store.reservations.items() if rows[0].run_id == run.run_id]:
            store.settle(reservation_id, {})


def _stale(ref: AgentRef, agent: AgentRow | None) -> StaleEpoch:
    return StaleEpoch(ref, 0 if agent is None else agent.epoch)


def run_of(
    store: WorkingSet, command: AppendJournal | FinishRun | AwaitApprovals | AwaitRuns | ReserveBudget | SettleBudget
) -> RunRow:
    """Return the run of a command; raises ValueError if its agent has no such run."""
    run = store.runs.get(command.run_id)
    if run is None or run.agent != agent_key(command.agent):
        raise ValueError(f"agent {command.agent} has no run {command.run_id}")
    return run


def check_claimed(run: RunRow, epoch: int) -> None:
    """Raise ValueError unless the activation of that epoch executes the run."""
    if run.status is not RunStatus.RUNNING or run.claimed_epoch != epoch:
        raise ValueError(f"run {run.run_id} is {run.status.value} and not claimed under epoch {epoch}")
