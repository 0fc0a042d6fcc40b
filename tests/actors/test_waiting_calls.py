"""How many model calls of a cluster wait; the actors are stand-ins, for Ray has no part in it."""

from __future__ import annotations

import threading

import pytest

from actors import waiting_calls
from actors.nodes import Node
from actors.remote import GATEWAY
from actors.waiting_calls import WaitingCalls
from owlclaw_ray.models.provider_slots import SlotCounts
from tests.actors.steered import SteeredActors

NODES = tuple(Node(each, each, frozenset()) for each in ("node-a", "node-b"))


class Gateways(SteeredActors):
    def answer(self, part, method):
        assert (part, method) == (GATEWAY, "slots")
        return SlotCounts("openai", 48, 40, 7), SlotCounts("local", 4, 0, 1)


@pytest.fixture
def gateways(monkeypatch):
    made = Gateways()
    monkeypatch.setattr(waiting_calls, "NamedActor", made.named_actor)
    monkeypatch.setattr(waiting_calls, "living_nodes", lambda: NODES)
    return made


async def test_the_calls_of_all_providers_and_nodes_count(gateways):
    assert await WaitingCalls("owlclaw").count() == 16


@pytest.mark.parametrize("how", ["stuck", "dead"])
async def test_nothing_is_known_unless_every_gateway_answers(gateways, monkeypatch, how):
    monkeypatch.setattr(waiting_calls, "_ANSWER_SECONDS", 0.01)
    getattr(gateways, how).add((GATEWAY, "node-a"))

    assert await WaitingCalls("owlclaw").count() is None


async def test_nothing_is_known_while_ray_does_not_say_which_nodes_there_are(gateways, monkeypatch):
    def away():
        raise RuntimeError("the control store is away")

    monkeypatch.setattr(waiting_calls, "living_nodes", away)

    assert await WaitingCalls("owlclaw").count() is None


async def test_nothing_is_known_while_ray_takes_too_long_to_say_it(gateways, monkeypatch):
    answers = threading.Event()
    monkeypatch.setattr(waiting_calls, "_ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(waiting_calls, "living_nodes", answers.wait)

    assert await WaitingCalls("owlclaw").count() is None
    answers.set()
