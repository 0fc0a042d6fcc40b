"""Asking all evaluators of a run which tools it may use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

from owlclaw_ray.domain.governance import Hidden, Visibility
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.containment import contained
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.policy.evaluators import EnforcedEvaluator, VisibilityEvaluator, VisibilityFacts

LONGEST = 5.0
"""Seconds that an evaluator has."""

logger = logging.getLogger(__name__)


class EvaluatorSet:
    """The evaluators of one definition. Fail-closed: who gives no answer hides what he judges."""

    def __init__(self, evaluators: Sequence[VisibilityEvaluator], clock: Clock) -> None:
        self._evaluators, self._clock = tuple(evaluators), clock
        self._firm = [each for each in self._evaluators if isinstance(each, EnforcedEvaluator)]

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
        for each in self._firm:
            try:
                why = each.refusal(tool, facts)
            except Exception as error:
                logger.exception("the evaluator %s of %s failed", each.name, facts.agent)
                why = _failed(each, error)
            if why:
                return each.name, why
        return None

    async def _ask(
        self, evaluator: VisibilityEvaluator, judged: Collection[str], facts: VisibilityFacts
    ) -> Mapping[str, str]:
        try:
            async with deadline(self._clock, LONGEST):
                hidden = dict(await contained(evaluator.hide(facts)))
        except TimeoutError:
            why = f"the evaluator {evaluator.name} did not decide within {LONGEST:g} s"
        except Exception as error:
            why = _failed(evaluator, error)
            logger.exception("the evaluator %s of %s failed", evaluator.name, facts.agent)
        else:
            return hidden
        return dict.fromkeys(judged, why)


def _failed(evaluator: VisibilityEvaluator, error: Exception) -> str:
    return f"the evaluator {evaluator.name} failed: {type(error).__name__}: {error}"
