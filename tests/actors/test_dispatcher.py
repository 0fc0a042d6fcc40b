"""What becomes of signals while the Directory is away; the actors are stand-ins, for Ray has no part in it."""

from __future__ import annotations

import asyncio

import pytest

from actors import runtime
from actors.runtime import DirectoryDispatcher
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.testing.clock import ManualClock

AGENT = AgentRef.parse("trader")


class Directory:
    def __init__(self):
        self.away, self.asked = True, []

    async def ask(self, method, *arguments):
        self.asked.append((method, *arguments))
        if self.away:
            raise RuntimeUnavailableError("the directory is not there yet")


@pytest.fixture
def directory(monkeypatch):
    made = Directory()
    monkeypatch.setattr(runtime, "Named", lambda *_: made)
    return made


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_cancellation_that_reaches_nobody_is_tried_again_until_it_gets_through_and_holds_up_no_caller(
    directory,
):
    clock = ManualClock()
    dispatcher = DirectoryDispatcher("owlclaw", clock)

    await dispatcher.cancel(AGENT, "run_1")
    await clock.advance(1)
    await settle()
    assert directory.asked == [("cancel", AGENT, "run_1")] * 2

    directory.away = False
    for _ in range(5):
        await clock.advance(1)
        await settle()
    assert len(directory.asked) == 3


async def test_a_cancellation_is_given_up_when_nobody_comes_back(directory):
    clock = ManualClock()
    dispatcher = DirectoryDispatcher("owlclaw", clock)

    await dispatcher.cancel(AGENT, "run_1")
    for _ in range(60):
        await clock.advance(1)
        await settle()

    assert len(directory.asked) == 31
