from __future__ import annotations

import pytest

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.provider import ProviderLimits
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.domain.tool import Effect, Permission, ToolDefinition
from owlclaw_ray.errors import QueueFullError, TooManySchedulesError
from owlclaw_ray.models.provider_limits import problem_with
from serve.cli.ledger_lines import line

PRICE = ToolDefinition("shop.price", "Say the price.", {"type": "object"}, Permission.READONLY, Effect.PURE)
SKILL = Skill("sell", "How to sell.", "sell/SKILL.md", 10, daily_calls=1)
ENDED = {
    "kind": "run",
    "data": {"what": "end", "status": "completed", "turns": 1, "tool_calls": 1, "duration_ms": 7, "error": None},
}


@pytest.mark.parametrize(
    ("number", "nouns", "text"),
    [
        (0, ("tool",), "0 tools"),
        (1, ("tool",), "1 tool"),
        (2, ("tool",), "2 tools"),
        (1, ("memory", "memories"), "1 memory"),
        (12_000, ("memory", "memories"), "12,000 memories"),
    ],
)
def test_one_thing_is_not_many(number: int, nouns: tuple[str, ...], text: str):
    assert counted(number, *nouns) == text


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (str(QueueFullError("clerk", 1)), "queue full: agent 'clerk' has 1 queued run (limits.queued_runs)"),
        (str(TooManySchedulesError("clerk", 1)), "has 1 schedule, active or paused"),
        (" ".join(SKILL.constraints()), "1 call in 24 hours"),
        (problem_with("m", (PRICE, PRICE), [ProviderLimits(("m",), tools=1)]), "at most 1 tool,"),
        (line(ENDED), "1 turn · 1 tool call · 7 ms"),
    ],
)
def test_messages_know_one_from_many(said: str, words: str):
    assert words in said
