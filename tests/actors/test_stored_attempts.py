"""What becomes of tool calls whose workers die, where the store says which of them had begun."""

from __future__ import annotations

import asyncio

import pytest

from actors.attempt_markers import AttemptRevokedError, StoredAttempts, StoredBeginnings
from actors.plan import ToolSlots, WorkerPlan
from actors.tool_task import MAX_STARTS, TaskToolRunner, WorkerDiedError
from owlclaw_ray.domain.tool import Effect, ToolClass, ToolResult
from owlclaw_ray.domain.tool_call import ToolOutcome
from owlclaw_ray.errors import RuntimeUnavailableError, StoreUnavailableError
from owlclaw_ray.kernel.packing import pack, unpack
from owlclaw_ray.store.commands import AttemptBegun, AttemptRevoked, BeginAttempt, ForgetAttempts, RevokeAttempt
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds
from owlclaw_ray.testing.store_file import create_store
from tests.actors.test_tool_task import call


class WatchedStore:
    """A store that says what it was asked, and can be away for a while."""

    def __init__(self, store):
        self.store, self.asked, self.failures = store, [], 0

    async def apply(self, commands):
        self.asked += commands
        if self.failures:
            self.failures -= 1
            raise StoreUnavailableError("it is away")
        return await self.store.apply(commands)


@pytest.fixture
async def store(tmp_path):
    path = tmp_path / "owlclaw.db"
    await asyncio.to_thread(create_store, path)
    opened = await open_store(f"sqlite:///{path}", writer="keeper-1")
    yield WatchedStore(opened)
    await opened.close()


class Tasks:
    """Tool tasks whose workers die so often, after so many of them began; then they succeed."""

    def __init__(self, store, *deaths):
        self.store, self.deaths, self.attempts = store, list(deaths), []

    async def run(self, tool_class, packed_calls):
        _, invocations, attempt = unpack(packed_calls)
        self.attempts.append(attempt)
        begins = self.deaths.pop(0) if self.deaths else None
        if attempt is not None and begins is not False:
            assert isinstance((await self.store.apply([BeginAttempt(attempt)]))[0], AttemptBegun)
        if begins is not None:
            raise WorkerDiedError("WorkerCrashedError")
        return pack([ToolOutcome(ToolResult(each.call_id, "done"), 1) for each in invocations])

    def warm(self, plan):
        pass


async def result_of(store, tasks, invocation, clock=None):
    clock = clock or ManualClock()
    runner = TaskToolRunner(
        WorkerPlan("", "", "", "none", "trial"),
        clock,
        ToolSlots(4),
        tasks=tasks,
        ids=SequentialIds(),
        attempts=StoredAttempts(store, clock),
    )
    return (await runner.run(invocation)).result


@pytest.mark.parametrize("effect", [each for each in Effect if each is not Effect.ONCE])
async def test_a_call_that_may_be_repeated_asks_the_store_for_nothing(store, effect):
    tasks = Tasks(store)

    result = await result_of(store, tasks, call(effect))

    assert (result.content, store.asked, tasks.attempts) == ("done", [], [None])


async def test_a_call_that_may_be_repeated_runs_once_more_when_its_worker_died_and_no_third_time(store):
    again, lost = Tasks(store, True), Tasks(store, True, True)

    assert (await result_of(store, again, call(Effect.PURE))).content == "done"
    assert (await result_of(store, lost, call(Effect.PURE))).error.type == "execution_failed"
    assert again.attempts == lost.attempts == [None, "try_000001"]


async def test_a_call_that_must_not_be_repeated_runs_again_as_long_as_it_never_began(store):
    tasks = Tasks(store, False, False)

    result = await result_of(store, tasks, call(Effect.ONCE))

    assert (result.content, len(tasks.attempts)) == ("done", 3)
    for attempt in tasks.attempts[:2]:
        assert await store.store.apply([BeginAttempt(attempt)]) == [AttemptRevoked()]


async def test_a_call_that_must_not_be_repeated_and_began_is_uncertain(store):
    tasks = Tasks(store, True)

    result = await result_of(store, tasks, call(Effect.ONCE))

    assert (result.error.type, len(tasks.attempts)) == ("uncertain", 1)


async def test_a_quick_call_whose_worker_died_is_marked_when_it_runs_again(store):
    tasks = Tasks(store, True, *[False] * (MAX_STARTS - 1))

    result = await result_of(store, tasks, call(Effect.PURE, ToolClass.QUICK))

    assert result.content == "done"
    assert tasks.attempts[0] is None
    assert None not in tasks.attempts[1:]


async def test_whether_a_lost_call_began_is_asked_until_the_store_answers(store):
    clock, tasks = ManualClock(), Tasks(store, False)
    store.failures = 3
    answer = asyncio.create_task(result_of(store, tasks, call(Effect.ONCE), clock))

    while not answer.done():
        await clock.advance(1)

    assert (await answer).content == "done"
    assert sum(isinstance(each, RevokeAttempt) for each in store.asked) == 4


async def test_attempts_that_are_over_are_forgotten_together_and_a_revoked_one_is_not(store):
    clock = ManualClock()
    attempts = StoredAttempts(store, clock)
    for each in ("try_1", "try_2"):
        attempts.forget(each)

    await clock.advance(1)
    while not store.asked:
        await asyncio.sleep(0)

    assert store.asked == [ForgetAttempts(("try_1", "try_2"))]
    tasks = Tasks(store, False)
    await result_of(store, tasks, call(Effect.ONCE), clock)
    await clock.advance(1)
    while not isinstance(store.asked[-1], ForgetAttempts):
        await asyncio.sleep(0)
    assert store.asked[-1] == ForgetAttempts((tasks.attempts[1],))


def test_a_worker_asks_again_while_the_keeper_does_not_answer_and_runs_nothing_that_was_revoked():
    answers = [RuntimeUnavailableError("it starts"), [AttemptBegun(0.0)], [AttemptRevoked()]]

    def commit(commands):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    beginnings = StoredBeginnings(commit, lambda _: None)
    beginnings.begin("try_1")

    with pytest.raises(AttemptRevokedError):
        beginnings.begin("try_2")


def test_a_worker_gives_up_when_the_keeper_stays_away():
    def commit(commands):
        raise RuntimeUnavailableError("it is gone")

    with pytest.raises(RuntimeUnavailableError):
        StoredBeginnings(commit, lambda _: None).begin("try_1")
