"""Messages between actors, on Ray: what becomes of them when a task that sent them is cancelled."""

from __future__ import annotations

import asyncio

import pytest
import ray
from ray.exceptions import TaskCancelledError

from actors.remote import calls
from actors.remote_actor import RemoteActor
from owlclaw_ray.errors import RuntimeUnavailableError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("trial")]


class Part(RemoteActor):
    """Answers when it is told to."""

    def __init__(self) -> None:
        self._asked, self._open = asyncio.Event(), asyncio.Event()

    async def question(self) -> str:
        self._asked.set()
        await self._open.wait()
        return "answered"

    async def cancelled(self) -> str:
        raise TaskCancelledError

    async def wait_until_asked(self) -> None:
        await self._asked.wait()

    async def open(self) -> None:
        self._open.set()


class Asker:
    """Asks the part once for all who ask at the same time, as the server does."""

    def __init__(self, part) -> None:
        self._part, self._shared, self._waiting = calls(part), None, 0
        self._two = asyncio.Event()

    async def ask(self) -> str:
        if self._shared is None:
            self._shared = asyncio.create_task(self._part.question())
        self._waiting += 1
        if self._waiting == 2:
            self._two.set()
        return await asyncio.shield(self._shared)

    async def wait_for_two(self) -> None:
        await self._two.wait()

    async def ask_what_is_cancelled(self) -> str:
        try:
            return await self._part.cancelled()
        except RuntimeUnavailableError as error:
            return str(error)


@pytest.fixture
def part():
    return ray.remote(Part).options(num_cpus=0, max_concurrency=10).remote()


@pytest.fixture
def asker(part):
    return ray.remote(Asker).options(num_cpus=0, max_concurrency=10).remote(part)


def test_what_a_cancelled_request_asked_for_is_answered_to_the_others_who_wait_for_it(part, asker):
    first = asker.ask.remote()
    ray.get(part.wait_until_asked.remote())
    second = asker.ask.remote()
    ray.get(asker.wait_for_two.remote())

    ray.cancel(first)
    with pytest.raises(TaskCancelledError):
        ray.get(first)
    ray.get(part.open.remote())

    assert ray.get(second) == "answered"


def test_a_call_that_ray_cancels_is_one_that_may_have_happened(asker):
    assert ray.get(asker.ask_what_is_cancelled.remote()) == "cancelled: TaskCancelledError"
