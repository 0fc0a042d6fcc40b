"""What is asked of the system while it suffers: a seed gives the same triggers, in the same order, every time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

import orjson

CROWD, SOLO = "crowd", "solo"
"""Agent definitions: shared and dedicated."""
_CROWD_AGENTS = 40
SOLO_AGENTS = 4
"""How many dedicated agents there are."""
_SOLO_SHARE = 0.15
_LATENCIES = (0.0, 0.02, 0.1, 0.5, 1.5)
_MILLISECONDS = (0, 1, 5, 40, 150)
_CANCEL_WITHIN = 4.0
_MAX_DELAY = 3
_BULKY_SHARE, _BULKY_BYTES = 0.02, 1_000_000
_ASIDE = 1_000_000
"""Orders that a strike submits are numbered from here."""
_TOOLS = {
    "chaos.look": 6,
    "chaos.put": 6,
    "chaos.pay": 6,
    "log_decision": 6,
    "query_state": 2,
    "recall": 0.2,
    "remember": 0.2,
    "schedule_once": 0.4,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the triggers of a session are like, beside its seed."""

    agents: int = _CROWD_AGENTS
    """Of the shared ones."""
    slowness: float = 1.0
    """By this the time is multiplied that the model takes."""
    longest: float = 0.0
    """Seconds: a model call takes any time up to it. 0: one of a few times, most of them short."""
    solo_share: float = _SOLO_SHARE
    """Of the triggers: those for the dedicated agents, of which there are four."""
    left_out: frozenset[str] = frozenset()
    """Tools that no model asks for."""


USUAL = Shape()


class Manner(Enum):
    """How the client behaves."""

    PLAIN = "plain"
    """It submits until it gets a 202."""
    REPEAT = "repeat"
    """It submits the same again after the 202."""
    HANG_UP = "hang_up"
    """It hangs up before the first answer, then submits the same again."""
    CANCEL = "cancel"
    """It cancels the run a while after the 202."""


_MANNERS = {Manner.PLAIN: 86, Manner.REPEAT: 5, Manner.HANG_UP: 5, Manner.CANCEL: 4}


@dataclass(frozen=True, slots=True)
class Order:
    """One trigger and how it is submitted."""

    number: int
    key: str
    """The Idempotency-Key."""
    agent: str
    payload: dict[str, Any]
    manner: Manner
    cancel_after: float
    padding: int = 0
    """So many bytes are added to the payload."""

    def body(self) -> bytes:
        """Return the body of its request."""
        payload = {**self.payload, "padding": "x" * self.padding} if self.padding else self.payload
        return orjson.dumps({"payload": payload})


def watched_order(strike: int, index: int, seconds: float) -> Order:
    """Return an order, of a strike, whose run takes so many seconds."""
    number = _ASIDE + 1_000 * strike + index
    payload = {"number": number, "turns": [{"latency": seconds, "calls": [["log_decision", {"reasoning": "watched"}]]}]}
    return Order(number, f"chaos-watched-{number}", f"{CROWD}:watched-{index}", payload, Manner.PLAIN, 0.0)


def orders(seed: int, runs: int, shape: Shape = USUAL) -> Iterator[Order]:
    """Yield the triggers of a session in the order of their submission."""
    for number in range(runs):
        random = Random(f"{seed} order {number}")  # noqa: S311 - it must come out the same again
        yield _order(seed, number, random, shape)


def _order(seed: int, number: int, random: Random, shape: Shape) -> Order:
    solo = random.random() < shape.solo_share
    agent = f"{SOLO}:{random.randrange(SOLO_AGENTS)}" if solo else f"{CROWD}:{random.randrange(shape.agents)}"
    turns = [_turn(number, index, random, shape) for index in range(random.randint(1, 4))]
    [manner] = random.choices(list(_MANNERS), weights=list(_MANNERS.values()))
    payload = {"number": number, "turns": turns}
    cancel_after = random.uniform(0, _CANCEL_WITHIN)
    padding = _BULKY_BYTES if random.random() < _BULKY_SHARE else 0
    return Order(number, f"chaos-{seed}-{number}", agent, payload, manner, cancel_after, padding)


def _turn(number: int, index: int, random: Random, shape: Shape) -> dict[str, Any]:
    known = {name: weight for name, weight in _TOOLS.items() if name not in shape.left_out}
    tools = random.choices(list(known), weights=list(known.values()), k=random.randint(1, 3))
    latency = random.uniform(0, shape.longest) if shape.longest else random.choice(_LATENCIES)
    return {
        "latency": round(latency * shape.slowness, 3),
        "calls": [[tool, _arguments(tool, f"{number}.{index}.{place}", random)] for place, tool in enumerate(tools)],
    }


def _arguments(tool: str, mark: str, random: Random) -> dict[str, Any]:
    match tool:
        case "log_decision":
            return {"reasoning": f"decision {mark}"}
        case "query_state":
            return {"state_name": "meter"}
        case "recall":
            return {"query": f"fact {mark}"}
        case "remember":
            return {"content": f"fact {mark} of this session"}
        case "schedule_once":
            return {"delay_seconds": random.randint(1, _MAX_DELAY), "focus": f"again {mark}"}
        case _:
            return {"milliseconds": random.choice(_MILLISECONDS)}
