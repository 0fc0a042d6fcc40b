"""SubmitRun on the working set: what its busy policy makes of the trigger."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import minute_of
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.quota import (
    NO_QUOTAS,
    OPEN_RUNS,
    STARTS_A_MINUTE,
    SUSPENDED,
    KeyQuota,
    key_starts_account,
    starts_account,
)
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import BusyPolicy, Trigger
from owlclaw_ray.ids import DEFAULT_TENANT, RecordId, RunId, derived_id
from owlclaw_ray.store.commands import (
    AgentBusy,
    IdempotencyClaim,
    IdempotencyConflict,
    QueueFull,
    QuotaReached,
    RunAccepted,
    SubmitRun,
)
from owlclaw_ray.store.sql.approvals import withdraw
from owlclaw_ray.store.sql.codec import (
    agent_key,
    agent_of,
    dump,
    dump_trigger,
    from_micros,
    load_trigger,
    optional_micros,
    tenant_key,
    to_micros,
)
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.focus_index import term_rows
from owlclaw_ray.store.sql.queue_order import rank_of
from owlclaw_ray.store.sql.quotas import count, count_for_keys, keep, key_reached, no_room_for, reached
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.working_set import AgentRow, KeyRow, RowChange, RunRow, WorkingSet, counting_for

Submitted: TypeAlias = RunAccepted | IdempotencyConflict | AgentBusy | QueueFull | QuotaReached

_MERGED_FOR = timedelta(days=1)
"""How long a merged trigger is known by its id, should it be submitted again because the answer was lost."""


def need_submission(needs: RowNeeds, command: SubmitRun) -> None:
    """Note what a submission needs, alone or as a part of another command."""
    key = needs.agent(command.agent, command.at)
    needs.runs.add(command.run_id)
    needs.submissions += 1
    needs.counts.add(key)
    if command.agent.tenant != DEFAULT_TENANT:
        needs.starts.setdefault(command.agent.tenant, set()).add(minute_of(command.at))
    if command.quota is not None:
        needs.key_quotas[command.quota.key_id] = command.quota
        needs.counting_keys.setdefault(command.quota.key_id, set()).add(minute_of(command.at))
    for key_id in command.counting_keys:
        needs.counting_keys.setdefault(key_id, set()).add(minute_of(command.at))
    if command.idempotency is not None:
        needs.keys.add(_claim_key(command.agent, command.idempotency))
    if command.queue_limit is not None:
        needs.counted.add(key)
        needs.queue_limit = max(needs.queue_limit, command.queue_limit)
    match command.busy:
        case BusyPolicy.REJECT | BusyPolicy.INTERRUPT:
            needs.looks.add(key)
        case BusyPolicy.COALESCE:
            needs.merges.add(key)
            needs.merge_keys.add(_merge_key(command.trigger))
            needs.keys.add(_trigger_key(command.run_id))
        case BusyPolicy.ENQUEUE:
            pass


@applies(SubmitRun, needs=need_submission)
def submit_run(store: WorkingSet, command: SubmitRun) -> Submitted:
    """Queue the run, merge or refuse it, unless its id or its Idempotency-Key is known."""
    answered = _answered_before(store, command)
    if answered is not None:
        return answered
    agent = store.agents[agent_key(command.agent)]
    coalesces = command.busy is BusyPolicy.COALESCE
    key = _merge_key(command.trigger) if coalesces else None
    if key is not None:
        joined = store.mergeable.get((agent.agent, key))
        if joined is not None and joined.status is RunStatus.QUEUED:
            if command.agent.tenant in store.suspended:
                return QuotaReached(SUSPENDED, 0)
            return _merge(store, joined, command)
    if command.busy is BusyPolicy.REJECT and (agent.running is not None or agent.queue):
        return AgentBusy(RunId((agent.running or agent.queue[0]).run_id))
    limit = command.queue_limit
    if limit is not None and agent.queued is not None and agent.queued >= limit:
        return QueueFull(limit)
    refused = _reached(store, command)
    if refused is not None:
        return refused
    return _enqueue(store, agent, command, key)


def _reached(store: WorkingSet, command: SubmitRun) -> QuotaReached | None:
    """Return the quota that one more run would exceed."""
    tenant = command.agent.tenant
    if tenant in store.suspended:
        return QuotaReached(SUSPENDED, 0)
    if not _counts(store, command):
        return None
    quotas, of_keys, minute = store.quotas.get(tenant, NO_QUOTAS), _key_quotas(store, command), minute_of(command.at)
    held = no_room_for(store, agent_key(command.agent)) or reached(store, tenant, OPEN_RUNS)
    if held is not None:
        return held
    starts = quotas.starts_a_minute
    if starts is not None and store.accounts[starts_account(tenant, minute)].used >= starts:
        return QuotaReached(STARTS_A_MINUTE, starts, minute.ends_at)
    for of_key in of_keys:
        if full := key_reached(store, tenant, of_key, OPEN_RUNS):
            return full
        limit = of_key.starts_a_minute
        if limit is not None and store.accounts[key_starts_account(of_key.key_id, minute)].used >= limit:
            return QuotaReached(STARTS_A_MINUTE, limit, minute.ends_at, of_key=True)
    return None


def _counts(store: WorkingSet, command: SubmitRun) -> bool:
    """Return whether the run counts for any quota: most do for none."""
    return (
        command.quota is not None
        or not store.key_quotas.keys().isdisjoint(command.counting_keys)
        or store.quotas.get(command.agent.tenant, NO_QUOTAS) != NO_QUOTAS
    )


def _key_quotas(store: WorkingSet, command: SubmitRun) -> list[KeyQuota]:
    """Return the quotas of the keys for which the run counts."""
    found = {key_id: store.key_quotas[key_id] for key_id in command.counting_keys if key_id in store.key_quotas}
    if command.quota is not None:
        found[command.quota.key_id] = command.quota
    return [*found.values()]


def _count(store: WorkingSet, run: RunRow, command: SubmitRun) -> None:
    """Count a new run for the quotas that there are."""
    if not _counts(store, command):
        return
    tenant, minute = command.agent.tenant, minute_of(command.at)
    quotas, of_keys = store.quotas.get(tenant, NO_QUOTAS), _key_quotas(store, command)
    store.reserved_at = max(to_micros(command.at), store.reserved_at)
    keep(store, agent_key(command.agent))
    count(store, tenant, OPEN_RUNS, 1)
    if quotas.starts_a_minute is not None:
        store.charge({starts_account(tenant, minute): 1})
    for of_key in of_keys:
        if of_key.starts_a_minute is not None:
            store.charge({key_starts_account(of_key.key_id, minute): 1})
    run.counts_for = counting_for(each.key_id for each in of_keys if each.lasts)
    count_for_keys(store, run, OPEN_RUNS, 1)


def _claim_key(agent: AgentRef, claim: IdempotencyClaim) -> str:
    """Return the key of the agent's claim: who may trigger other agents of the tenant alone takes no key of it."""
    return tenant_key(agent.tenant, f"{agent.agent_id} {claim.key}")


def _answered_before(store: WorkingSet, command: SubmitRun) -> RunAccepted | IdempotencyConflict | None:
    known = store.runs.get(command.run_id)
    if known is not None:
        if known.agent != agent_key(command.agent):
            raise ValueError(f"run id {command.run_id} belongs to another agent")
        return _accepted(store, known, command)
    at = to_micros(command.at)
    if command.busy is BusyPolicy.COALESCE:
        merged = store.keys.get(_trigger_key(command.run_id))
        if merged is not None and merged.expires_at > at:
            return RunAccepted(RunId(merged.run_id), merged.seq, agent_of(merged.agent), merged=True)
    claim = command.idempotency
    earlier = None if claim is None else store.keys.get(_claim_key(command.agent, claim))
    if claim is None or earlier is None or earlier.expires_at <= at:
        return None
    if earlier.body_hash != claim.body_hash:
        return IdempotencyConflict(claim.key)
    interrupted = _interrupted(store, earlier.agent, earlier.run_id, command)
    return RunAccepted(
        RunId(earlier.run_id), earlier.seq, agent_of(earlier.agent), duplicate=True, interrupted=interrupted
    )


def _accepted(store: WorkingSet, run: RunRow, command: SubmitRun, *, follows: bool = False) -> RunAccepted:
    interrupted = _interrupted(store, run.agent, run.run_id, command)
    return RunAccepted(command.run_id, run.seq, command.agent, interrupted=interrupted, follows=follows)


def _interrupted(store: WorkingSet, agent: str, by: str, command: SubmitRun) -> RunId | None:
    """Return the run that is still to end in favour of that one: whoever submits it again tells its host again."""
    known = store.agents.get(agent)
    running = None if known is None else known.running
    if command.busy is BusyPolicy.INTERRUPT and running is not None and running.interrupted_by == by:
        return RunId(running.run_id)
    return None


def _enqueue(store: WorkingSet, agent: AgentRow, command: SubmitRun, key: str | None) -> RunAccepted:
    at, trigger = to_micros(command.at), command.trigger
    if trigger.lineage is not None:
        # Whatever triggers an agent from now on, it never does more than the agent that asked for this run lets it.
        agent.lineage = dump(trigger.lineage)
        store.changed_agent(agent)
    run = RunRow(store.free_seqs.popleft(), command.run_id, agent.agent, at, RunStatus.QUEUED, recorded_calls=0)
    (run.trigger, run.payload), run.merge_key = dump_trigger(trigger), key
    run.rank, run.deadline = rank_of(command.busy, command.priority), optional_micros(command.deadline)
    follows = command.queue_limit is not None and bool(agent.queued) and command.busy is not BusyPolicy.INTERRUPT
    store.add_run(run)
    if trigger.focus:
        terms = term_rows(command.agent.tenant, run.seq, trigger.kind, trigger.focus)
        store.changes[RowChange.FOCUS_TERM].update((each, each) for each in terms)
    if key is not None:
        store.mergeable[agent.agent, key] = run
    store.note(run, EntryKind.RUN_QUEUED, at, {"trigger": trigger.kind.value, "focus": trigger.focus})
    _keep_key(store, run, command)
    _count(store, run, command)
    store.call_back(run, command.callback_urls, at)
    if command.busy is BusyPolicy.INTERRUPT:
        _interrupt(store, agent, run, command)
    return _accepted(store, run, command, follows=follows)


def _interrupt(store: WorkingSet, agent: AgentRow, run: RunRow, command: SubmitRun) -> None:
    running = agent.running
    if running is not None and not running.cancel_requested:
        running.cancel_requested, running.interrupted_by = True, run.run_id
        store.changed_run(running)
        if running.status is RunStatus.WAITING:
            withdraw(store, running, to_micros(command.at))
        _tell_ledger(store, run, command, {"what": "interrupted", "run_id": running.run_id})


def _merge(store: WorkingSet, run: RunRow, command: SubmitRun) -> RunAccepted:
    assert run.trigger is not None
    before = load_trigger(run.trigger, run.payload)
    trigger = replace(
        command.trigger,
        merged=before.merged + command.trigger.merged,
        submitters=tuple(dict.fromkeys((*before.submitters, *command.trigger.submitters))),
    )
    run.trigger, run.payload = dump_trigger(trigger)
    deadline = optional_micros(command.deadline)
    run.deadline = None if run.deadline is None or deadline is None else max(run.deadline, deadline)
    store.move_up(run, rank_of(command.busy, command.priority))
    store.merged_run(run)
    told = {"trigger_id": command.run_id, "merged": trigger.merged}
    store.note(run, EntryKind.TRIGGER_MERGED, to_micros(command.at), {**told, "superseded": before.payload})
    _tell_ledger(store, run, command, {"what": "merged", **told})
    expires_at = to_micros(command.at + _MERGED_FOR)
    store.note_key(_trigger_key(command.run_id), KeyRow("", run.run_id, expires_at, run.seq, run.agent))
    _keep_key(store, run, command)
    store.call_back(run, command.callback_urls, to_micros(command.at))
    return RunAccepted(RunId(run.run_id), run.seq, command.agent, merged=True)


def _keep_key(store: WorkingSet, run: RunRow, command: SubmitRun) -> None:
    claim = command.idempotency
    if claim is not None:
        row = KeyRow(claim.body_hash, run.run_id, to_micros(claim.expires_at), run.seq, run.agent)
        store.note_key(_claim_key(command.agent, claim), row)


def _tell_ledger(store: WorkingSet, run: RunRow, command: SubmitRun, data: JsonObject) -> None:
    record_id, run_id = RecordId(derived_id("rec", command.run_id, "trigger")), RunId(run.run_id)
    agent, at = command.agent, from_micros(to_micros(command.at))
    store.record((LedgerRecord(record_id, agent.tenant, agent.agent_id, run_id, LedgerKind.TRIGGER, at, data),))


def _merge_key(trigger: Trigger) -> str:
    """Return what is equal for triggers of one agent that may merge."""
    return derived_id("merge", trigger.kind.value, trigger.focus)


def _trigger_key(run_id: str) -> str:
    """Return the Idempotency-Key, which no client can use, of a trigger that was submitted under this id and merged."""
    return f"merged {run_id}"
