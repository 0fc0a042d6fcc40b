"""Who decides which tools a run sees."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.budget import BudgetUse
from owlclaw_ray.domain.lineage import Lineage
from owlclaw_ray.store.commands import BudgetClaim


class VisibilityFacts(Struct, frozen=True):
    """What evaluators judge by."""

    agent: AgentRef
    now: datetime
    state: AgentState
    budget_use: Callable[[Sequence[BudgetClaim]], Awaitable[Sequence[BudgetUse]]]
    """Reads from the store, in one, how much of these accounts is used."""
    lineage: Lineage | None = None
    """Of a run that another run started."""


class VisibilityEvaluator(Protocol):
    """Judges some tools of each run of one definition.

    All evaluators of a run are asked at the same time, each within a time limit. One that raises, or is late, hides every tool
    that it judges in that run. It runs in the event loop of the agent's host: it must not block, and must do no I/O of its own.
    """

    @property
    def name(self) -> str:
        """Return what the ledger calls it."""
        ...

    def judged(self, facts: VisibilityFacts) -> Collection[str]:
        """Return the tools that it judges in this run; it is not asked if there are none. Must be cheap, and not raise."""
        ...

    async def hide(self, facts: VisibilityFacts) -> Mapping[str, str]:
        """Return those of the judged tools that the run must not use, each with the reason."""
        ...


@runtime_checkable
class EnforcedEvaluator(VisibilityEvaluator, Protocol):
    """A VisibilityEvaluator whose reasons hold for every call too: it is asked again whenever one is to be executed."""

    def refusal(self, tool: str, facts: VisibilityFacts) -> str:
        """Return why the run must not call the tool now, as `hide` would say it; empty if it may. Must be cheap."""
        ...
