"""Runs that ended and calls that were made, in a store, for tests of who shows what they came to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.run import RunResult, RunStatus, Usage
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import ActivationId, RandomIds, RunId
from owlclaw_ray.store.api import CommandStore
from owlclaw_ray.store.commands import ActivateAgent, AgentActivated, ClaimRun, FinishRun, RunFinished, SubmitRun


async def ended(
    store: CommandStore,
    agent: AgentRef,
    at: datetime,
    result: RunResult,
    calls: Sequence[tuple[str, int, str]] = (),
) -> None:
    """Have a run of the agent end at that time, two seconds after it began; `calls`: tool, milliseconds, and type of error if it failed."""
    run_id, begun = RunId(RandomIds().make("run")), at - timedelta(seconds=2)
    made = await store.apply(
        [
            ActivateAgent(agent, ActivationId("act_usage"), begun),
            SubmitRun(run_id, agent, Trigger(TriggerKind.API), begun),
        ]
    )
    assert isinstance(made[0], AgentActivated)
    await store.apply([ClaimRun(agent, made[0].epoch, begun)])
    entries = [JournalEntry(seq, EntryKind.TOOL_FINISHED, at, _data(*call)) for seq, call in enumerate(calls, start=3)]
    outcome = (
        await store.apply(
            [FinishRun(run_id, agent, made[0].epoch, tuple(entries), result, AgentState(), at, claim_next=False)]
        )
    )[0]
    assert outcome == RunFinished(None), outcome


def _data(tool: str, took: int, error: str) -> JsonObject:
    said: JsonObject = {"error": {"type": error, "message": "no"}} if error else {"content": 1}
    return {"call_id": "c", "tool": tool, "arguments": "{}", "duration_ms": took, **said}


def result(cost: float = 0.25, status: RunStatus = RunStatus.COMPLETED) -> RunResult:
    """Return an end that used 1,000 tokens for the prompt, 400 of them cached, and 50 for the reply."""
    return RunResult(status, usage=Usage(1_000, 50, 400, cost))
