"""Which tools a run may see and call: the evaluators of its definition are asked when it begins, some again before each call.

Fail-closed: an evaluator that raises or is late hides every tool that it judges.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from typing_extensions import override

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.budget import BudgetUse
from owlclaw_ray.domain.governance import Hidden, Visibility
from owlclaw_ray.domain.lineage import Lineage
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.containment import contained
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.store.commands import BudgetClaim

LONGEST = 5.0
"""Seconds after which an evaluator is late."""

logger = logging.getLogger(__name__)


class VisibilityFacts(Struct, frozen=True):
    """What evaluators judge by."""

    agent: AgentRef
    now: datetime
    state: AgentState
    budget_use: Callable[[Sequence[BudgetClaim]], Awaitable[Sequence[BudgetUse]]]
    """Reads from the store, in one query, how much of these accounts is used."""
    lineage: Lineage | None = None
    """Of a run that another run started."""


class VisibilityEvaluator(ABC):
    """Judges some tools of each run of one definition.

    All evaluators of a run are asked at the same time, each within a time limit. They run in the event loop of the agent's host: they
    must not block, and must do no I/O of their own.
    """

    name: str
    """What the ledger calls it."""

    @abstractmethod
    def judged(self, facts: VisibilityFacts) -> Collection[str]:
        """Return the tools that it judges in this run; it is not asked if there are none. Must be cheap, and not raise."""

    @abstractmethod
    async def hide(self, facts: VisibilityFacts) -> Mapping[str, str]:
        """Return those of the judged tools that the run must not use, each with the reason."""


class EnforcedEvaluator(VisibilityEvaluator):
    """Its reasons hold for every call too: it is asked again whenever one is to be executed."""

    @abstractmethod
    def refusal(self, tool: str, facts: VisibilityFacts) -> str:
        """Return why the run must not call the tool now; empty if it may. Must be cheap."""

    @override
    async def hide(self, facts: VisibilityFacts) -> Mapping[str, str]:
        return {tool: why for tool in self.judged(facts) if (why := self.refusal(tool, facts))}


class EvaluatorSet:
    """The evaluators of one definition."""

    def __init__(self, evaluators: Sequence[VisibilityEvaluator], clock: Clock) -> None:
        self._evaluators, self._clock = tuple(evaluators), clock
        self._enforced = [each for each in self._evaluators if isinstance(each, EnforcedEvaluator)]

    async def decide(self, tools: Sequence[str], facts: VisibilityFacts) -> Visibility:
        """Return which of these tools a run may use. Each hidden one has one reason: the first evaluator's that hides it."""
        asked = [(each, judged) for each in self._evaluators if (judged := each.judged(facts))]
        if not asked:
            return Visibility(tuple(tools))
        answers = await asyncio.gather(*(self._ask(each, judged, facts) for each, judged in asked))
        reasons: dict[str, tuple[str, str]] = {}
        for (evaluator, _), answer in zip(asked, answers, strict=True):
            for tool, reason in answer.items():
                reasons.setdefault(tool, (evaluator.name, reason))
        groups: dict[tuple[str, str], list[str]] = {}
        for tool in tools:
            if tool in reasons:
                groups.setdefault(reasons[tool], []).append(tool)
        visible = tuple(tool for tool in tools if tool not in reasons)
        return Visibility(visible, tuple(Hidden(tuple(names), *why) for why, names in groups.items()))

    def refusal(self, tool: str, facts: VisibilityFacts) -> tuple[str, str] | None:
        """Return which evaluator keeps a run from calling the tool now, and why; None if none does."""
        for each in self._enforced:
            try:
                why = each.refusal(tool, facts)
            except Exception as error:
                logger.exception("the evaluator %s of %s failed", each.name, facts.agent)
                why = _failure(each, error)
            if why:
                return each.name, why
        return None

    async def _ask(
        self, evaluator: VisibilityEvaluator, judged: Collection[str], facts: VisibilityFacts
    ) -> Mapping[str, str]:
        try:
            async with deadline(self._clock, LONGEST):
                return dict(await contained(evaluator.hide(facts)))
        except TimeoutError:
            why = f"the evaluator {evaluator.name} did not decide within {LONGEST:g} s"
        except Exception as error:
            logger.exception("the evaluator %s of %s failed", evaluator.name, facts.agent)
            why = _failure(evaluator, error)
        return dict.fromkeys(judged, why)


def _failure(evaluator: VisibilityEvaluator, error: Exception) -> str:
    return f"the evaluator {evaluator.name} failed: {type(error).__name__}: {error}"
