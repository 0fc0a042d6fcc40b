"""What becomes of tool calls whose workers die, over tasks that a test steers."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import asynccontextmanager, nullcontext

import pytest
from msgspec.structs import replace

from actors.attempt_markers import AttemptMarkers, AttemptRevokedError, FiledAttempts
from actors.environment import IDLE_WORKER_SECONDS
from actors.plan import ToolSlots, WorkerPlan
from actors.tool_task import MAX_STARTS, TaskToolRunner, WorkerDiedError
from actors.tool_worker import execute
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.tool import Effect, ToolClass, ToolResult
from owlclaw_ray.domain.tool_call import Ownership, ToolInvocation, ToolOutcome
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.errors import StaleEpochError
from owlclaw_ray.kernel.packing import pack, unpack
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds

LIMIT = 30.0
AGENTS = [AgentRef.parse("watch:1"), AgentRef.parse("watch:2")]


def call(effect, tool_class=ToolClass.ALONE, number=1):
    return ToolInvocation(
        call_id=f"call_{number}",
        tool="trial.act",
        arguments="{}",
        agent=AgentRef.parse("watch"),
        run_id="run_1",
        trigger=TriggerKind.API,
        effect=effect,
        tool_class=tool_class,
        timeout=LIMIT,
        idempotency_key=f"run_1-{number}",
    )


class SteeredTasks:
    """Tool tasks that each do the next thing on a list; the last one for ever."""

    def __init__(self, folder, *deeds):
        self.clock = ManualClock()
        self.attempt_markers = AttemptMarkers(folder, self.clock)
        self.deeds = list(deeds)
        self.attempts = []
        self.owned = []
        self.warmed = 0

    async def run(self, tool_class, packed_calls):
        _, invocations, attempt = unpack(packed_calls)
        self.attempts.append(attempt)
        self.owned.append([each.owned and each.owned.at for each in invocations])
        deed = self.deeds.pop(0) if len(self.deeds) > 1 else self.deeds[0]
        return await deed(self, invocations, attempt)

    def warm(self, plan):
        self.warmed += 1

    def begin(self, attempt):
        if attempt is not None:
            self.attempt_markers.begin(attempt)
            now = self.clock.now().timestamp()
            os.utime(self.attempt_markers._folder / attempt, (now, now))


async def succeed(tasks, invocations, attempt):
    tasks.begin(attempt)
    return pack([ToolOutcome(ToolResult(each.call_id, "done"), 1) for each in invocations])


async def succeed_soon(tasks, invocations, attempt):
    await tasks.clock.sleep(0.1)
    return await succeed(tasks, invocations, attempt)


async def die_waiting_for_a_slot(tasks, invocations, attempt):
    await tasks.clock.advance(10 * LIMIT)
    raise WorkerDiedError("LocalRayletDiedError")


async def die_at_once(tasks, invocations, attempt):
    await tasks.clock.advance(10 * LIMIT)
    tasks.begin(attempt)
    await tasks.clock.advance(1)
    raise WorkerDiedError("WorkerCrashedError")


async def be_killed_at_the_limit(tasks, invocations, attempt):
    tasks.begin(attempt)
    await tasks.clock.advance(LIMIT + 2)
    raise WorkerDiedError("WorkerCrashedError")


async def die_where_nothing_can_be_noted(tasks, invocations, attempt):
    raise WorkerDiedError("WorkerCrashedError")


async def lose_the_answer(tasks, invocations, attempt):
    await succeed(tasks, invocations, attempt)
    raise WorkerDiedError("WorkerCrashedError")


async def never_end(tasks, invocations, attempt):
    tasks.begin(attempt)
    await asyncio.Event().wait()


async def outcome_of(tasks, folder, invocation):
    runner = TaskToolRunner(
        WorkerPlan("", "", str(folder), "none", "trial"), tasks.clock, ToolSlots(4), tasks=tasks, ids=SequentialIds()
    )
    return (await runner.run(invocation)).result


async def emptied(folder):
    """Return once the folder has nothing in it: a thread removes the files."""
    while list(folder.iterdir()):
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("effect", list(Effect))
async def test_a_call_that_never_began_runs_again_however_long_it_waited_and_whatever_its_effect(tmp_path, effect):
    tasks = SteeredTasks(tmp_path, die_waiting_for_a_slot, die_waiting_for_a_slot, succeed)

    result = await outcome_of(tasks, tmp_path, call(effect))

    assert (result.content, result.error) == ("done", None)
    assert len(tasks.attempts) == 3


async def test_a_worker_that_comes_back_from_the_dead_does_not_run_a_call_that_was_given_to_another(tmp_path):
    tasks = SteeredTasks(tmp_path, die_waiting_for_a_slot, succeed)

    await outcome_of(tasks, tmp_path, call(Effect.ONCE))

    with pytest.raises(AttemptRevokedError):
        tasks.begin(tasks.attempts[0])


async def test_a_call_that_no_worker_begins_fails_and_may_be_repeated(tmp_path):
    tasks = SteeredTasks(tmp_path, die_waiting_for_a_slot)

    result = await outcome_of(tasks, tmp_path, call(Effect.ONCE))

    assert (result.error.type, result.error.retryable) == ("execution_failed", True)
    assert "did not run" in result.error.message
    assert len(tasks.attempts) == MAX_STARTS


@pytest.mark.parametrize("deed", [die_at_once, lose_the_answer])
async def test_a_once_call_whose_worker_dies_after_its_beginning_is_uncertain(tmp_path, deed):
    tasks = SteeredTasks(tmp_path, deed, succeed)

    result = await outcome_of(tasks, tmp_path, call(Effect.ONCE))

    assert (result.error.type, result.error.retryable) == ("uncertain", False)
    assert len(tasks.attempts) == 1


async def test_the_wait_for_a_slot_is_no_part_of_a_calls_time_limit(tmp_path):
    tasks = SteeredTasks(tmp_path, die_at_once, succeed)

    result = await outcome_of(tasks, tmp_path, call(Effect.IDEMPOTENT))

    assert result.content == "done"


class Owner:
    """What a host is told when it asks whether a run is still its own."""

    def __init__(self, *, lost):
        self.lost, self.asked = lost, 0

    async def confirm(self):
        self.asked += 1
        if self.lost:
            raise StaleEpochError("run_1: another has it")
        return Ownership(1, float(self.asked), "here")


@pytest.mark.parametrize("kind", [ToolClass.ALONE, ToolClass.QUICK])
@pytest.mark.parametrize(("lost", "begun"), [(False, 1), (True, 0)])
async def test_a_call_that_has_got_its_slot_begins_only_if_its_run_is_still_the_hosts(tmp_path, kind, lost, begun):
    tasks, ownership = SteeredTasks(tmp_path, succeed), Owner(lost=False)

    @asynccontextmanager
    async def slot(kind, owner):
        ownership.lost = lost  # while it waits
        yield

    plan = WorkerPlan("", "", str(tmp_path), "none", "trial")
    runner = TaskToolRunner(plan, tasks.clock, ToolSlots(4), slots=slot, tasks=tasks, ids=SequentialIds())

    with nullcontext() if begun else pytest.raises(StaleEpochError):
        await runner.run(call(Effect.IDEMPOTENT, kind), ownership.confirm)

    assert (ownership.asked, len(tasks.attempts)) == (1, begun)


async def test_a_call_whose_worker_died_long_after_it_was_given_to_it_does_not_begin_elsewhere_if_its_run_was_taken_over(
    tmp_path,
):
    ownership = Owner(lost=False)

    async def die_while_it_is_taken_over(tasks, invocations, attempt):
        ownership.lost = True
        await die_waiting_for_a_slot(tasks, invocations, attempt)

    tasks = SteeredTasks(tmp_path, die_while_it_is_taken_over, succeed)
    plan = WorkerPlan("", "", str(tmp_path), "none", "trial")
    runner = TaskToolRunner(plan, tasks.clock, ToolSlots(4), tasks=tasks, ids=SequentialIds())

    with pytest.raises(StaleEpochError):
        await runner.run(call(Effect.IDEMPOTENT), ownership.confirm)

    assert len(tasks.attempts) == 1


async def test_a_worker_is_told_when_the_host_was_last_known_to_have_the_run(tmp_path):
    owner, plan = Owner(lost=False), WorkerPlan("", "", str(tmp_path), "none", "trial")
    tasks, quick = [SteeredTasks(tmp_path, die_waiting_for_a_slot, succeed) for _ in range(2)]
    ids = SequentialIds()
    runner, quick_runner = [
        TaskToolRunner(plan, each.clock, ToolSlots(4), tasks=each, ids=ids) for each in (tasks, quick)
    ]

    await runner.run(call(Effect.IDEMPOTENT), owner.confirm)
    await quick_runner.run(call(Effect.IDEMPOTENT, ToolClass.QUICK), owner.confirm)
    await runner.run(call(Effect.IDEMPOTENT))

    assert tasks.owned == [[1.0], [2.0], [None]]
    assert quick.owned == [[3.0], [3.0]]


async def test_a_call_runs_again_once_after_its_beginning(tmp_path):
    tasks = SteeredTasks(tmp_path, die_at_once, die_waiting_for_a_slot, die_at_once, succeed)

    result = await outcome_of(tasks, tmp_path, call(Effect.PURE))

    assert result.error.type == "execution_failed"
    assert len(tasks.attempts) == 3


@pytest.mark.parametrize("effect", list(Effect))
async def test_a_call_that_was_killed_at_its_limit_is_a_timeout(tmp_path, effect):
    tasks = SteeredTasks(tmp_path, die_waiting_for_a_slot, be_killed_at_the_limit, succeed)

    result = await outcome_of(tasks, tmp_path, call(effect))

    assert result.error.type == "timeout"
    assert len(tasks.attempts) == 2


async def test_quick_calls_whose_worker_died_are_run_again_one_by_one(tmp_path):
    tasks = SteeredTasks(tmp_path, die_waiting_for_a_slot, succeed)
    plan = WorkerPlan("", "", str(tmp_path), "none", "trial")
    runner = TaskToolRunner(plan, tasks.clock, ToolSlots(4), tasks=tasks, ids=SequentialIds())

    outcomes = await asyncio.gather(
        *(runner.run(call(Effect.IDEMPOTENT, ToolClass.QUICK, number)) for number in range(3))
    )

    assert [each.result.content for each in outcomes] == ["done"] * 3
    assert tasks.attempts[0] is None
    assert len(set(tasks.attempts)) == 4


@pytest.mark.parametrize("kind", [ToolClass.QUICK, ToolClass.MEMORY, ToolClass.STATE])
async def test_calls_of_one_class_hold_no_place_of_another(tmp_path, kind):
    tasks = SteeredTasks(tmp_path, never_end, never_end, succeed)
    plan = WorkerPlan("", "", str(tmp_path), "none", "trial")
    runner = TaskToolRunner(plan, tasks.clock, ToolSlots(2), tasks=tasks, ids=SequentialIds())
    slow = [asyncio.create_task(runner.run(replace(call(Effect.ONCE), agent=agent))) for agent in AGENTS]
    late = asyncio.create_task(runner.run(call(Effect.ONCE)))
    while len(tasks.attempts) < 2:
        await asyncio.sleep(0)

    async with asyncio.timeout(60):
        outcome = await runner.run(call(Effect.PURE, kind))

    assert outcome.result.content == "done"
    assert not late.done()
    await end([*slow, late])


async def test_a_quick_call_does_not_wait_behind_thousands_of_another_tenant(tmp_path):
    tasks = SteeredTasks(tmp_path, succeed_soon)
    plan = WorkerPlan("", "", str(tmp_path), "none", "trial")
    runner = TaskToolRunner(plan, tasks.clock, ToolSlots(4), tasks=tasks, ids=SequentialIds())
    crowd = [replace(call(Effect.PURE, ToolClass.QUICK, number), agent=AGENTS[0]) for number in range(5_000)]
    flood = [asyncio.create_task(runner.run(each)) for each in crowd]
    await tasks.clock.settle()
    modest = replace(call(Effect.PURE, ToolClass.QUICK, 9_999), agent=AgentRef("modest", "watch"))

    late = asyncio.create_task(runner.run(modest))
    await tasks.clock.settle()
    await tasks.clock.advance(0.3)

    assert late.done()
    await end([late, *flood])


async def a_moment(tasks):
    """Pass for those who wait by the clock, once all that can be done now is done."""
    await tasks.clock.settle()
    await tasks.clock.advance(1)
    await tasks.clock.settle()


def spared(tasks, folder):
    plan = WorkerPlan("", "", str(folder), "none", "trial")
    return TaskToolRunner(plan, tasks.clock, ToolSlots(8), tasks=tasks, ids=SequentialIds(), warm_workers=2)


async def test_a_worker_is_made_ahead_when_calls_keep_all_that_there_are(tmp_path):
    tasks = SteeredTasks(tmp_path, never_end)
    runner, calls, warmed = spared(tasks, tmp_path), [], []
    for number in range(4):
        calls.append(asyncio.create_task(runner.run(call(Effect.ONCE, number=number))))
        await a_moment(tasks)
        warmed.append(tasks.warmed)

    assert warmed == [0, 1, 2, 3]
    await end(calls)


async def test_calls_that_end_soon_have_no_worker_made(tmp_path):
    tasks = SteeredTasks(tmp_path, succeed_soon)
    runner = spared(tasks, tmp_path)
    calls = [asyncio.create_task(runner.run(call(Effect.ONCE, number=number))) for number in range(4)]

    await tasks.clock.settle()
    await tasks.clock.advance(0.1)
    await asyncio.gather(*calls)
    await a_moment(tasks)

    assert tasks.warmed == 0


async def test_workers_that_ended_after_a_long_rest_are_made_again(tmp_path):
    tasks = SteeredTasks(tmp_path, never_end)
    runner, warmed = spared(tasks, tmp_path), []
    for rest in (1, IDLE_WORKER_SECONDS + 1, 0):
        calls = [asyncio.create_task(runner.run(call(Effect.ONCE, number=number))) for number in range(2)]
        await a_moment(tasks)
        warmed.append(tasks.warmed)
        await end(calls)
        await tasks.clock.advance(rest)

    assert warmed == [1, 1, 2]


async def end(tasks):
    for each in tasks:
        each.cancel()
    await asyncio.wait(tasks)


async def test_calls_that_are_over_leave_no_file_behind(tmp_path):
    tasks = SteeredTasks(tmp_path, succeed, die_at_once, succeed, never_end)
    for effect in (Effect.ONCE, Effect.PURE):
        await outcome_of(tasks, tmp_path, call(effect))
        await emptied(tasks.attempt_markers._folder)
    endless = asyncio.create_task(outcome_of(tasks, tmp_path, call(Effect.ONCE)))
    while len(tasks.attempts) < 4:
        await asyncio.sleep(0)

    endless.cancel()
    await asyncio.wait([endless])

    await emptied(tasks.attempt_markers._folder)


async def test_files_of_attempts_whose_hosts_died_are_removed_in_the_end(tmp_path):
    tasks = SteeredTasks(tmp_path, succeed)
    tasks.begin("try_1")
    await tasks.clock.advance(31 * 86_400)
    tasks.begin("try_2")

    tasks.attempt_markers.clear()

    assert [path.name for path in tasks.attempt_markers._folder.iterdir()] == ["try_2"]


async def test_a_call_counts_as_begun_where_the_disk_does_not_tell(tmp_path):
    (tmp_path / "attempts").write_text("no folder")
    tasks = SteeredTasks(tmp_path, die_where_nothing_can_be_noted, succeed)

    result = await outcome_of(tasks, tmp_path, call(Effect.ONCE))

    assert result.error.type == "uncertain"


def test_a_worker_that_cannot_note_the_beginning_of_a_call_does_not_run_it(tmp_path):
    (tmp_path / "attempts").write_text("no folder")
    plan = WorkerPlan("", str(tmp_path), str(tmp_path), "none", "trial")

    [outcome] = execute(plan, [call(Effect.ONCE)], "try_1")

    assert outcome.result.error.message.startswith("trial.act did not run")
    assert outcome.result.error.retryable


class HungFiles(AttemptMarkers):
    """The files of attempts on a file system that hangs for who is done with one."""

    def __init__(self, folder, clock):
        super().__init__(folder, clock)
        self.answers = threading.Event()

    def forget(self, attempt):
        self.answers.wait()
        super().forget(attempt)


async def test_a_call_is_answered_while_the_file_of_its_attempt_cannot_be_removed(tmp_path):
    tasks = SteeredTasks(tmp_path, succeed)
    hung = HungFiles(tmp_path, tasks.clock)
    plan, attempts = WorkerPlan("", "", str(tmp_path), "none", "trial"), FiledAttempts(hung)
    runner = TaskToolRunner(plan, tasks.clock, ToolSlots(4), tasks=tasks, attempts=attempts)

    outcomes = [await runner.run(call(Effect.ONCE, number=number)) for number in range(20)]

    assert [each.result.content for each in outcomes] == ["done"] * 20
    assert len(list((tmp_path / "attempts").iterdir())) == 20
    hung.answers.set()
    await emptied(tmp_path / "attempts")
