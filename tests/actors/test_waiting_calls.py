"""How many calls of a cluster wait; the actors are stand-ins, for Ray has no part in it."""

from __future__ import annotations

import threading

import pytest

from actors import waiting_calls
from actors.nodes import Node
from actors.remote import GATEWAY, ROOT
from actors.waiting_calls import WaitingCalls
from owlclaw_ray.domain.queue_length import Queue
from owlclaw_ray.models.provider_slots import SlotCounts
from tests.actors.steered import SteeredActors

NODES = tuple(Node(each, each, frozenset()) for each in ("node-a", "node-b"))
MODELS, TOOLS = Queue.WAITING_MODEL_CALLS, Queue.WAITING_TOOL_CALLS


class Parts(SteeredActors):
    def answer(self, part, method):
        return {
            (GATEWAY, "slots"): (SlotCounts("openai", 48, 40, 7), SlotCounts("local", 4, 0, 1)),
            (ROOT, "waiting_calls"): {"tool_slots": 12, "quick_slots": 0, "memory_slots": 3},
        }[part, method]


@pytest.fixture
def parts(monkeypatch):
    made = Parts()
    monkeypatch.setattr(waiting_calls, "NamedActor", made.named_actor)
    monkeypatch.setattr(waiting_calls, "living_nodes", lambda: NODES)
    return made


async def test_the_calls_of_all_providers_slots_and_nodes_count(parts):
    assert await WaitingCalls("owlclaw").lengths() == {MODELS: 16, TOOLS: 30}


@pytest.mark.parametrize("how", ["stuck", "dead"])
@pytest.mark.parametrize(("part", "known"), [(GATEWAY, {TOOLS: 30}), (ROOT, {MODELS: 16})])
async def test_of_a_kind_nothing_is_known_unless_every_node_answers(parts, monkeypatch, how, part, known):
    monkeypatch.setattr(waiting_calls, "_ANSWER_SECONDS", 0.05)
    getattr(parts, how).add((part, "node-a"))

    assert await WaitingCalls("owlclaw").lengths() == known


async def test_nothing_is_known_while_ray_does_not_say_which_nodes_there_are(parts, monkeypatch):
    def away():
        raise RuntimeError("the control store is away")

    monkeypatch.setattr(waiting_calls, "living_nodes", away)

    assert await WaitingCalls("owlclaw").lengths() == {}


async def test_nothing_is_known_while_ray_takes_too_long_to_say_it(parts, monkeypatch):
    answers = threading.Event()
    monkeypatch.setattr(waiting_calls, "_ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(waiting_calls, "living_nodes", answers.wait)

    assert await WaitingCalls("owlclaw").lengths() == {}
    answers.set()
