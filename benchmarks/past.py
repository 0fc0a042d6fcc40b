"""Fills a store with what a long past would have left there: registered agents, queued triggers, finished runs.

Everything goes through the store's own commands, in large batches and without a runtime: making so many real runs would take too long.
The finished runs have the entries and ledger records of a run with two model calls and one tool call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from msgspec.structs import asdict

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.entries import run_finished
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.run import RunResult, RunStatus, Usage
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import ActivationId, RecordId, RunId, derived_id
from owlclaw_ray.store.commands import (
    ActivateAgent,
    AppendJournal,
    ClaimRun,
    Command,
    CommandFailed,
    FinishRun,
    ReleaseAgent,
    StaleEpoch,
    SubmitRun,
)
from owlclaw_ray.store.sql.factory import open_store

_BATCH = 2_000
_AT_ONCE = 500
"""Entries of a command."""
_EPOCH = 1
_TRIGGER = Trigger(TriggerKind.API, {"price": 7})
_STATE = AgentState(("api: completed, 1 tool calls. done",), 1)
_STEP = timedelta(milliseconds=10)


class PastError(Exception):
    """The store refused a command."""


async def queue_runs(store: Path, agents: Sequence[AgentRef], now: datetime) -> None:
    """Register these agents with one queued run each."""
    runs = (SubmitRun(RunId(f"run_queued_{number}"), agent, _TRIGGER, now) for number, agent in enumerate(agents))
    await write(store, runs)


async def finish_runs(store: Path, agents: Sequence[AgentRef], runs: int, now: datetime) -> None:
    """Give these agents so many finished runs together, in turn; the last was just now. The store must not know them yet."""
    await write(store, past_of(agents, runs, now))


def past_of(agents: Sequence[AgentRef], runs: int, now: datetime) -> Iterator[Command]:
    """Yield the commands of that past, which ends at `now`."""
    begin = now - runs * _STEP
    for number, agent in enumerate(agents):
        yield ActivateAgent(agent, ActivationId(f"act_past_{number}"), begin)
    for number in range(runs):
        yield from _run(RunId(f"run_past_{number}"), agents[number % len(agents)], begin + number * _STEP)
    for agent in agents:
        yield ReleaseAgent(agent, _EPOCH, _STATE, now)


def _run(run_id: RunId, agent: AgentRef, at: datetime) -> Iterator[Command]:
    usage = asdict(Usage())
    call: JsonObject = {
        "id": derived_id("call", run_id),
        "name": "log_decision",
        "arguments": '{"reasoning":"Nothing"}',
    }
    reply: JsonObject = {"text": "", "tool_calls": [call], "model": "scripted:tool_once", "scripted": True}
    reply |= {"usage": usage, "duration_ms": 0}
    tool: JsonObject = {"call_id": call["id"], "tool": "log_decision", "arguments": call["arguments"], "duration_ms": 1}
    tool["content"] = {"decision_id": derived_id("dec", run_id), "logged": True, "created_at": at.isoformat()}
    prompt: JsonObject = {
        "system": "",
        "tools": "",
        "user": "Trigger: api. Payload: {price: 7}.",
        "visible": ["log_decision"],
    }
    result = RunResult(RunStatus.COMPLETED, turns=2, tool_calls=1, final_text="done", tools_called=("log_decision",))
    yield SubmitRun(run_id, agent, _TRIGGER, at)
    yield ClaimRun(agent, _EPOCH, at)
    yield AppendJournal(
        run_id,
        agent,
        _EPOCH,
        (
            JournalEntry(3, EntryKind.PROMPT_BUILT, at, prompt),
            JournalEntry(4, EntryKind.MODEL_REPLIED, at, reply),
            JournalEntry(5, EntryKind.TOOL_FINISHED, at, tool),
            JournalEntry(6, EntryKind.MODEL_REPLIED, at, {**reply, "text": "done", "tool_calls": []}),
        ),
        tuple(
            LedgerRecord(RecordId(derived_id("rec", run_id, key)), agent.tenant, agent.agent_id, run_id, kind, at, data)
            for key, kind, data in (
                ("start", LedgerKind.VISIBILITY, {"visible": 1, "tools": prompt["tools"], "hidden": []}),
                ("0", LedgerKind.MODEL_CALL, {"model": "scripted:tool_once", "usage": usage}),
                ("call", LedgerKind.TOOL_CALL, tool),
                ("decision", LedgerKind.DECISION, {"reasoning": "Nothing", "decision_type": "no_action"}),
                ("1", LedgerKind.MODEL_CALL, {"model": "scripted:tool_once", "usage": usage}),
            )
        ),
    )
    end = run_finished(result)
    record = RecordId(derived_id("rec", run_id, "end"))
    yield FinishRun(
        run_id,
        agent,
        _EPOCH,
        (JournalEntry(7, EntryKind.RUN_FINISHED, at, end),),
        result,
        _STATE,
        at,
        (LedgerRecord(record, agent.tenant, agent.agent_id, run_id, LedgerKind.RUN, at, end),),
        claim_next=False,
    )


def long_run(run_id: RunId, agent: AgentRef, entries: int, begin: datetime) -> Iterator[Command]:
    """Yield the commands of a run with so many journal entries, each a second after the one before."""
    yield ActivateAgent(agent, ActivationId(derived_id("act", run_id)), begin)
    yield SubmitRun(run_id, agent, Trigger(TriggerKind.API, {"n": 1}, "read all that there is"), begin)
    yield ClaimRun(agent, _EPOCH, begin)
    told = [*_entries(entries, begin)]
    for at in range(0, len(told), _AT_ONCE):
        yield AppendJournal(run_id, agent, _EPOCH, tuple(told[at : at + _AT_ONCE]))
    result = RunResult(RunStatus.COMPLETED, turns=entries // 2, tool_calls=entries // 2, final_text="done")
    last = JournalEntry(entries, EntryKind.RUN_FINISHED, told[-1].at, run_finished(result))
    yield FinishRun(run_id, agent, _EPOCH, (last,), result, AgentState(), last.at, claim_next=False)
    yield ReleaseAgent(agent, _EPOCH, AgentState(), last.at)


def _entries(number: int, begin: datetime) -> Iterator[JournalEntry]:
    """Yield what follows the first two entries, which the store writes, up to the last one."""
    usage = {"prompt_tokens": 1_200, "completion_tokens": 80, "cached_tokens": 0, "cost": 0.001}
    for seq in range(3, number):
        at = begin + timedelta(seconds=seq)
        call: JsonObject = {"id": f"call_{seq}", "name": "look_up", "arguments": f'{{"order":{seq}}}'}
        if seq % 2:
            text = f"Order {seq} has to be looked at before anything is paid back. " * 4
            reply: JsonObject = {"text": text, "tool_calls": [call], "model": "scripted", "usage": usage}
            yield JournalEntry(seq, EntryKind.MODEL_REPLIED, at, {**reply, "duration_ms": 700})
        else:
            content: JsonObject = {"order": seq, "lines": [{"article": each, "price": 7.5} for each in range(12)]}
            tool: JsonObject = {"call_id": f"call_{seq - 1}", "tool": "look_up", "content": content}
            yield JournalEntry(seq, EntryKind.TOOL_FINISHED, at, {**tool, "arguments": "{}", "duration_ms": 40})


async def write(file: Path, commands: Iterable[Command]) -> None:
    """Have the store do these commands. Raises PastError if it refuses one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    store = await open_store(f"sqlite+aiosqlite:///{file}", writer="past")
    remaining = iter(commands)
    try:
        while batch := list(islice(remaining, _BATCH)):
            for outcome in await store.apply(batch):
                if isinstance(outcome, CommandFailed | StaleEpoch):
                    raise PastError(f"the past could not be written: {outcome}")
    finally:
        await store.close()
