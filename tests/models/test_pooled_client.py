import asyncio

import pytest

from owlclaw_ray.domain.model import ModelReply
from owlclaw_ray.errors import ModelUnavailableError, RuntimeUnavailableError
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.models.model_gateway import ModelGateway
from owlclaw_ray.models.pooled_client import PooledClient, PoolGrowth
from owlclaw_ray.models.reply_box import ReplyBox
from owlclaw_ray.testing.clock import ManualClock
from tests.model_requests import model_request

LOOK = PoolGrowth().look


class Process:
    """One process: a client whose calls take as long as the test says, and a reading of CPU."""

    def __init__(self, name, clock):
        self.name, self.clock = name, clock
        self.share = 0.0
        self.used, self.read_at = 0.0, 0.0
        self.calls, self.stopped = [], []
        self.open = asyncio.Event()

    def serves(self, model):
        return model == "m"

    async def load(self):
        pass

    async def complete(self, request, model):
        self.calls.append(request.request_id)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.stopped.append(request.request_id)
            raise
        return ModelReply(self.name, (), model)

    def cpu_seconds(self):
        now = self.clock.monotonic()
        self.used += self.share * (now - self.read_at)
        self.read_at = now
        return self.used


class Helper:
    """A process that is reached through its box, until it dies."""

    def __init__(self, process):
        self.process = process
        self.box = ReplyBox("box", lambda call, _: process.complete(call.request, call.model), process.clock)
        self.death = asyncio.Event()

    async def post(self, calls, withdrawn):
        self.check()
        return await self.box.post(calls, withdrawn)

    async def receive(self, seconds, calls=(), withdrawn=()):
        self.check()
        dying = asyncio.create_task(self.death.wait())
        receiving = asyncio.create_task(self.box.receive(seconds, calls, withdrawn))
        await asyncio.wait({dying, receiving}, return_when=asyncio.FIRST_COMPLETED)
        self.check()
        dying.cancel()
        return receiving.result()

    async def cpu_seconds(self):
        self.check()
        return self.process.cpu_seconds()

    def check(self):
        if self.death.is_set():
            raise RuntimeUnavailableError("dead")


class Source:
    """Makes helpers, after some seconds, as many as it can."""

    def __init__(self, clock, limit=10):
        self.clock, self.limit = clock, limit
        self.asked = []
        self.helpers, self.ended = [], []

    async def spawn(self):
        self.asked.append(self.clock.monotonic())
        await self.clock.sleep(5)
        if len(self.helpers) == self.limit:
            raise RuntimeUnavailableError("no room")
        process = Process(f"helper {len(self.helpers)}", self.clock)
        self.helpers.append(Helper(process))
        return self.helpers[-1]

    async def end(self, helper):
        self.ended.append(helper)


def request(number=0):
    return model_request("m", question=str(number))


class Pool:
    """A pooled client with everything around it."""

    def __init__(self, most=3, limit=10):
        self.clock = ManualClock()
        self.here = Process("here", self.clock)
        self.source = Source(self.clock, limit)
        self.client = PooledClient(
            self.here,
            self.source,
            most=most,
            growth=PoolGrowth(),
            cpu_seconds=self.here.cpu_seconds,
            clock=self.clock,
        )

    @property
    def helpers(self):
        return self.source.helpers

    async def ask(self, number):
        """Begin that many calls."""
        tasks = [asyncio.create_task(self.client.complete(request(each), "m")) for each in range(number)]
        await self.clock.settle()
        return tasks

    async def answer(self):
        """Let all calls end, present ones and those to come."""
        for process in (self.here, *(helper.process for helper in self.helpers)):
            process.open.set()
        await self.clock.settle()

    async def grown(self, helpers=1):
        """Have that many helpers made, while a call more than there are processes waits in this one."""
        self.here.share = 1.0
        tasks = await self.ask(helpers + 1)
        for _ in range(helpers):
            for helper in self.helpers:
                helper.process.share = 1.0
            await self.clock.advance(LOOK + 5)
        assert len(self.helpers) == helpers
        return tasks


@pytest.fixture
async def pool():
    return Pool()


def counts(pool):
    return [len(process.calls) for process in (pool.here, *(helper.process for helper in pool.helpers))]


async def test_calls_stay_in_this_process_while_it_is_not_busy(pool):
    pool.here.share = 0.7
    await pool.ask(50)

    await pool.clock.advance(100)

    assert pool.source.asked == []
    assert counts(pool) == [50]


async def test_a_busy_process_without_calls_that_wait_needs_no_helper(pool):
    pool.here.share = 1.0
    await pool.ask(1)

    await pool.clock.advance(100)

    assert pool.source.asked == []


async def test_a_busy_process_with_calls_that_wait_gets_a_helper_that_shares_the_load(pool):
    await pool.grown()

    await pool.ask(8)

    assert pool.source.asked == [LOOK]
    assert counts(pool) == [5, 5]


async def test_helpers_are_made_one_at_a_time_and_only_while_all_are_busy(pool):
    pool.here.share = 1.0
    await pool.ask(20)
    await pool.clock.advance(LOOK + 5)
    pool.helpers[0].process.share = 0.4

    await pool.clock.advance(100)
    assert pool.source.asked == [LOOK]

    pool.helpers[0].process.share = 1.0
    await pool.clock.advance(2 * LOOK)
    assert len(pool.source.asked) == 2


async def test_there_are_never_more_processes_than_the_limit():
    pool = Pool(most=3)
    pool.here.share = 1.0
    await pool.ask(20)

    for _ in range(20):
        await pool.clock.advance(10)
        for helper in pool.helpers:
            helper.process.share = 1.0

    assert len(pool.source.asked) == 2


@pytest.mark.parametrize("most", [0, 1])
async def test_a_pool_of_one_never_looks_at_anything(most):
    pool = Pool(most=most)
    pool.here.share = 1.0
    await pool.ask(20)

    await pool.clock.advance(100)

    assert (pool.source.asked, pool.clock.sleepers) == ([], 0)


async def test_a_helper_that_cannot_be_made_is_not_asked_for_again_at_once():
    pool = Pool(limit=0)
    pool.here.share = 1.0
    await pool.ask(20)

    await pool.clock.advance(60)

    first, second = pool.source.asked
    assert second - first >= 30


async def test_the_calls_of_a_helper_that_dies_are_made_elsewhere_at_once(pool):
    await pool.grown()
    tasks = await pool.ask(4)
    before = counts(pool)

    pool.helpers[0].death.set()
    await pool.clock.settle()

    assert before == [3, 3]
    assert counts(pool)[0] == 6
    assert pool.source.ended == pool.helpers
    await pool.answer()
    assert {task.result().text for task in tasks} == {"here"}


async def test_the_death_of_a_helper_is_no_failed_attempt_of_the_model(pool):
    models = ModelGateway([pool.client], clock=pool.clock, retry=RetryPolicy(attempts=1), jitter=lambda: 0.0)
    await pool.grown()
    asked = asyncio.create_task(models.complete(request()))
    await pool.clock.settle()

    pool.helpers[0].death.set()
    await pool.clock.settle()
    await pool.answer()

    assert asked.result().failed_attempts == ()


async def test_a_call_that_takes_three_processes_with_it_is_not_given_to_a_fourth():
    pool = Pool(most=5)
    await pool.grown(4)
    await pool.ask(3)
    fatal = asyncio.create_task(pool.client.complete(request("fatal"), "m"))
    await pool.clock.settle()

    for _ in range(3):
        living = [helper for helper in pool.helpers if not helper.death.is_set()]
        next(helper for helper in living if "req_fatal" in helper.process.calls).death.set()
        await pool.clock.settle()

    assert isinstance(fatal.exception(), ModelUnavailableError)


async def test_a_helper_that_dies_without_calls_is_noticed_too(pool):
    await pool.grown()

    pool.helpers[0].death.set()
    await pool.clock.advance(2 * LOOK)

    assert pool.source.ended == [pool.helpers[0]]
    assert len(pool.source.asked) == 2


async def test_cancelling_a_call_stops_it_where_it_is_made(pool):
    await pool.grown()
    [task] = await pool.ask(1)
    assert pool.helpers[0].process.calls == ["req_0"]

    task.cancel()
    await pool.clock.settle()

    assert pool.helpers[0].process.stopped == ["req_0"]


async def test_a_helper_that_is_not_needed_for_a_minute_is_ended(pool):
    tasks = await pool.grown(2)
    pool.here.share = 0.3
    for helper in pool.helpers:
        helper.process.share = 0.0

    await pool.clock.advance(60)
    assert pool.source.ended == []
    await pool.clock.advance(5 * LOOK)

    assert pool.source.ended == [pool.helpers[1], pool.helpers[0]]
    assert not any(task.done() for task in tasks)


async def test_a_short_lull_ends_no_helper(pool):
    await pool.grown()
    for _ in range(5):
        pool.here.share = pool.helpers[0].process.share = 0.0
        await pool.clock.advance(45)
        pool.here.share = pool.helpers[0].process.share = 0.6
        await pool.clock.advance(10)

    assert pool.source.ended == []


async def test_a_helper_that_is_not_needed_any_more_ends_with_its_last_call(pool):
    await pool.grown()
    await pool.ask(3)
    assert counts(pool) == [3, 2]
    pool.here.share = pool.helpers[0].process.share = 0.1

    await pool.clock.advance(100)
    await pool.ask(2)
    assert counts(pool) == [5, 2]
    assert pool.source.ended == []
    await pool.answer()

    assert pool.source.ended == pool.helpers


async def test_without_calls_and_helpers_nothing_runs(pool):
    await pool.ask(2)
    await pool.answer()

    await pool.clock.advance(LOOK)

    assert pool.clock.sleepers == 0
