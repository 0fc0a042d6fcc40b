"""Commands for tests of a store, with everything filled in that a test does not care about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.domain.run import RunResult, RunStatus, Usage
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import ActivationId, RunId
from owlclaw_ray.store.api import CommandStore
from owlclaw_ray.store.commands import (
    ActivateAgent,
    ClaimRun,
    Command,
    FinishRun,
    IdempotencyClaim,
    Outcome,
    RunClaimed,
    SubmitRun,
)

NOW = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
AGENT = AgentRef.parse("trader:AAPL")
OTHER = AgentRef.parse("trader:MSFT")


def submission(
    run_id: str, agent: AgentRef = AGENT, payload: JsonValue = None, key: str = "", body: str = "b"
) -> SubmitRun:
    """Return the submission of a run; with a `key`, under an Idempotency-Key that is good for a day."""
    claim = IdempotencyClaim(key, body, NOW + timedelta(days=1)) if key else None
    return SubmitRun(RunId(run_id), agent, Trigger(TriggerKind.API, payload, "看看行情"), NOW, claim)


def activation(activation_id: str, agent: AgentRef = AGENT) -> ActivateAgent:
    """Return the activation of an agent."""
    return ActivateAgent(agent, ActivationId(activation_id), NOW)


def entries(first: int, *kinds: EntryKind) -> tuple[JournalEntry, ...]:
    """Return entries of these kinds, numbered from `first`."""
    return tuple(JournalEntry(first + at, kind, NOW, {"at": at}) for at, kind in enumerate(kinds))


def ending(
    run_id: str, first: int = 3, *, epoch: int = 1, agent: AgentRef = AGENT, claim_next: bool = True
) -> FinishRun:
    """Return the end of a run whose journal has `first` - 1 entries."""
    result = RunResult(RunStatus.COMPLETED, turns=1, final_text="好", usage=Usage(10, 5, 0, 0.25))
    state = AgentState(("did it",), 1)
    facts = entries(first, EntryKind.RUN_FINISHED)
    return FinishRun(RunId(run_id), agent, epoch, facts, result, state, NOW, claim_next=claim_next)


async def one(store: CommandStore, command: Command) -> Outcome:
    """Apply a command alone."""
    return (await store.apply([command]))[0]


async def claimed(store: CommandStore, epoch: int = 1, agent: AgentRef = AGENT) -> RunClaimed:
    """Claim the agent's next run, which there must be."""
    outcome = await one(store, ClaimRun(agent, epoch, NOW))
    assert isinstance(outcome, RunClaimed), outcome
    return outcome
