"""Who is asked to wake and cancel, and what becomes of it while the Directory is away; the actors are stand-ins: Ray has no part in it."""

from __future__ import annotations

import pytest

from actors import runtime
from actors.remote import DIRECTORY
from actors.runtime import DirectoryDispatcher
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.testing.clock import ManualClock
from tests.actors.steered import SteeredActors

AGENT = AgentRef.parse("trader")
IDLE = 60.0
AWAY = (DIRECTORY, "")


class Directory(SteeredActors):
    def answer(self, part, method, *arguments):
        return {"wake": {AGENT: "host_1"}, "handle": "its actor", "cancel": True}[method]


class Host:
    def __init__(self, actor, woken):
        self._actor, self._woken = actor, woken

    async def wake(self, agents):
        self._woken.append((self._actor, "wake", agents))
        return ()


@pytest.fixture
def directory(monkeypatch):
    made = Directory()
    made.dead = {AWAY}
    monkeypatch.setattr(runtime, "NamedActor", made.named_actor)
    return made


@pytest.fixture
def woken(directory, monkeypatch):
    """The wakes that the agent's host got, from a dispatcher that knows where it is."""
    directory.dead.clear()
    found = []

    monkeypatch.setattr(runtime, "calls", lambda actor: Host(actor, found))
    return found


async def test_a_cancellation_that_reaches_nobody_is_tried_again_until_it_gets_through_and_holds_up_no_caller(
    directory,
):
    clock = ManualClock()
    dispatcher = DirectoryDispatcher("owlclaw", clock, IDLE)

    await dispatcher.cancel(AGENT, "run_1")
    await clock.advance(1)
    await clock.settle()
    assert directory.asked == [("cancel", AGENT, "run_1")] * 2

    directory.dead.clear()
    for _ in range(5):
        await clock.advance(1)
        await clock.settle()
    assert len(directory.asked) == 3


async def test_a_cancellation_is_given_up_when_nobody_comes_back(directory):
    clock = ManualClock()
    dispatcher = DirectoryDispatcher("owlclaw", clock, IDLE)

    await dispatcher.cancel(AGENT, "run_1")
    for _ in range(60):
        await clock.advance(1)
        await clock.settle()

    assert len(directory.asked) == 31


async def test_an_agent_that_was_just_woken_is_woken_at_its_host(directory, woken):
    clock = ManualClock()
    dispatcher = DirectoryDispatcher("owlclaw", clock, IDLE)
    await dispatcher.wake([AGENT])

    for _ in range(3):
        await clock.advance(IDLE / 2)
        await dispatcher.wake([AGENT])

    assert directory.asked == [("wake", (AGENT,)), ("handle", "host_1")]
    assert woken == [("its actor", "wake", (AGENT,))] * 3


async def test_the_host_of_an_agent_that_was_idle_is_not_asked_for_what_it_has_let_go(directory, woken):
    clock = ManualClock()
    dispatcher = DirectoryDispatcher("owlclaw", clock, IDLE)
    await dispatcher.wake([AGENT])

    await clock.advance(IDLE)
    await dispatcher.wake([AGENT])
    assert directory.asked == [("wake", (AGENT,)), ("handle", "host_1"), ("wake", (AGENT,))]
    assert woken == []

    await dispatcher.wake([AGENT])
    assert len(woken) == 1


async def test_an_agent_that_was_idle_is_woken_at_its_host_while_the_directory_is_away(directory, woken):
    clock = ManualClock()
    dispatcher = DirectoryDispatcher("owlclaw", clock, IDLE)
    await dispatcher.wake([AGENT])
    await clock.advance(IDLE)
    directory.dead.add(AWAY)

    await dispatcher.wake([AGENT])

    assert woken == [("its actor", "wake", (AGENT,))]
