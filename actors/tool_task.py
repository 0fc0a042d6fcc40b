"""run_tools: the one Ray remote function for all tools.

Stateless: all that a call needs travels with it. This module imports nothing heavy, because agent actors import it to submit tasks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

import ray
from msgspec.structs import replace
from ray import ObjectRef
from ray.exceptions import RayError, RayTaskError

from actors.attempt_markers import AttemptId, AttemptMarkers, FiledAttempts, RevokesAttempts
from actors.environment import IDLE_WORKER_SECONDS
from actors.plan import ToolSlots, WorkerPlan
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.tool import Effect, ToolClass, ToolError, ToolResult
from owlclaw_ray.domain.tool_call import Confirm, Ownership, ToolInvocation, ToolOutcome, nothing_to_confirm
from owlclaw_ray.errors import ConfigurationError, RuntimeUnavailableError
from owlclaw_ray.ids import IdSource, RandomIds
from owlclaw_ray.kernel.batcher import MESSAGE, Batcher, Bound
from owlclaw_ray.kernel.borrowed_places import BorrowedPlaces
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.kernel.fair_order import equal_weights
from owlclaw_ray.kernel.packing import pack, unpack
from owlclaw_ray.kernel.place_lender import PlaceOwner, PoolName, PoolSize

logger = logging.getLogger(__name__)

_TASKS_AT_ONCE = 2
_MAX_CALLS_PER_TASK = 64
_WARM_HOLD = 0.2
"""Seconds that a process which was made ready is kept from the next task, so that this gets another one."""
_WARM_PAUSE = 0.05
"""Seconds in which a task gets an idle process, so that it does not wait any more when the next one comes."""
_SCALE_UP_DELAY = 0.2
"""Seconds that calls hold all workers before one more is made: what is over sooner leaves its worker to the next call."""

MAX_STARTS = 10
"""Workers that may die around a call before it begins: after that it counts as what workers cannot begin."""

_SLOTS = {
    ToolClass.ALONE: "tool_slots",
    ToolClass.QUICK: "quick_slots",
    ToolClass.MEMORY: "memory_slots",
    ToolClass.STATE: "state_slots",
}
"""The resource that a task takes one of while it runs. Each class has its own, so that none is delayed by slow calls of another."""

SLOT_POOLS = {kind: PoolName(slot) for kind, slot in _SLOTS.items()}
"""What the slots of each class are called where they are shared out."""

Slots: TypeAlias = Callable[[ToolClass, PlaceOwner], AbstractAsyncContextManager[None]]
"""Holds a slot of the class for the block, after waiting for it. Cancelling the wait gives up the turn."""


@ray.remote(num_cpus=0, max_retries=0)
def run_tools(packed_calls: bytes) -> bytes:
    """Execute the calls in order, each within its own time limit; one outcome a call.

    They come as (a WorkerPlan, invocations, the attempt's id): None for calls whose beginning is not noted.
    """
    from actors.tool_worker import execute

    plan, invocations, attempt = unpack(packed_calls)
    return pack(execute(plan, invocations, attempt))


@ray.remote(num_cpus=0, max_retries=0)
def use_memory(packed_call: bytes) -> bytes:
    """Call a method of the worker's LanceMemory: (a WorkerPlan, the method's name, its arguments)."""
    from actors.tool_worker import use_memory as use

    plan, method, arguments = unpack(packed_call)
    return pack(use(plan, method, arguments))


@ray.remote(num_cpus=0, max_retries=0)
def warm_worker(plan: WorkerPlan, hold: float) -> None:
    """Make a worker ready, and keep its slot for `hold` seconds so that a second warm-up gets another process."""
    from actors.tool_worker import warm

    warm(plan)
    time.sleep(hold)


_RUN = {kind: run_tools.options(resources={slot: 1}) for kind, slot in _SLOTS.items()}
_USE_MEMORY = use_memory.options(resources={_SLOTS[ToolClass.MEMORY]: 1})


def slot_resources(slots: ToolSlots) -> dict[str, float]:
    """Return the custom resources of a node with that many slots."""
    return {_SLOTS[kind]: number for kind, number in _numbers(slots).items()}


def _numbers(slots: ToolSlots) -> dict[ToolClass, int]:
    return {
        ToolClass.ALONE: slots.alone,
        ToolClass.QUICK: slots.quick,
        ToolClass.MEMORY: slots.memory,
        ToolClass.STATE: slots.state,
    }


def slot_pools(slots: ToolSlots) -> dict[PoolName, PoolSize]:
    """Return the places for calls of a node with that many slots: one agent has half of them at most.

    Quick calls share tasks: there are places for those with the tasks, and for those that are next to fill one.
    """
    sizes = {SLOT_POOLS[kind]: PoolSize(number, max(1, number // 2)) for kind, number in _numbers(slots).items()}
    return sizes | {SLOT_POOLS[ToolClass.QUICK]: PoolSize((slots.quick + 1) * _MAX_CALLS_PER_TASK)}


def offered_slots(resources: Mapping[str, float], planned: ToolSlots) -> ToolSlots:
    """Return the slots of a node that offers these resources; as planned, where it does not say."""
    numbers = {kind: int(resources.get(_SLOTS[kind], number)) for kind, number in _numbers(planned).items()}
    return ToolSlots(
        numbers[ToolClass.ALONE], numbers[ToolClass.QUICK], numbers[ToolClass.MEMORY], numbers[ToolClass.STATE]
    )


async def warm_workers(plan: WorkerPlan, number: int) -> None:
    """Return when so many processes have imported what calls need.

    They are asked for one after another. Ray (2.60) starts a process for a task that finds none, and one for each task that waits, this one
    included: what is more than the number ends after IDLE_WORKER_SECONDS.
    """
    warming = []
    for _ in range(number):
        warming.append(warm_worker.remote(plan, _WARM_HOLD))
        await asyncio.sleep(_WARM_PAUSE)
    await asyncio.gather(*warming, return_exceptions=True)


class WorkerDiedError(Exception):
    """The process that was to run the calls is gone: each of them happened, or not."""


class ToolTasks(Protocol):
    """Where the tasks run that carry tool calls."""

    async def run(self, tool_class: ToolClass, packed_calls: bytes) -> bytes:
        """Return what `run_tools` returns. Cancelling the wait kills the task.

        Raises WorkerDiedError, or RayTaskError for what `run_tools` raises.
        """
        ...

    def warm(self, plan: WorkerPlan) -> None:
        """Have one more worker made ready, if none is idle; return at once."""
        ...


class RayTasks:
    """Implements `ToolTasks` with Ray."""

    async def run(self, tool_class: ToolClass, packed_calls: bytes) -> bytes:
        """See ToolTasks.run."""
        return await _outcome(_RUN[tool_class].remote(packed_calls))

    def warm(self, plan: WorkerPlan) -> None:
        """See ToolTasks.warm."""
        warm_worker.remote(plan, 0.0)


async def _outcome(task: ObjectRef[bytes]) -> bytes:
    """Return what a task returns; cancelling the wait kills it. Raises WorkerDiedError, or RayTaskError for what it raises."""
    try:
        return await task
    except asyncio.CancelledError:
        ray.cancel(task, force=True)
        raise
    except RayTaskError:
        raise
    except RayError as error:
        raise WorkerDiedError(type(error).__name__) from error


class SpareWorker:
    """Has a worker made ahead when calls keep all of them busy, so that the next call finds one.

    Only the calls of this process count. Workers that were made so end when they were idle for long, and are then made again.
    """

    def __init__(self, warm: Callable[[], None], clock: Clock, *, few: int, most: int) -> None:
        """`few` workers are always there."""
        self._warm, self._clock, self._few, self._most = warm, clock, few, most
        self._there, self._busy, self._rested_at = few, 0, clock.monotonic()

    @contextmanager
    def one_busy(self) -> Iterator[None]:
        """Count a call that holds a worker, for the block."""
        if not self._busy and self._clock.monotonic() - self._rested_at > IDLE_WORKER_SECONDS:
            self._there = self._few
        self._busy += 1
        watch = asyncio.create_task(self._check_scale_up())
        try:
            yield
        finally:
            watch.cancel()
            self._busy -= 1
            self._rested_at = self._clock.monotonic()

    async def _check_scale_up(self) -> None:
        await self._clock.sleep(_SCALE_UP_DELAY)
        if self._there <= self._busy and self._there < self._most:
            self._there += 1
            self._warm()


def _own_slots(numbers: ToolSlots) -> Slots:
    places = BorrowedPlaces(slot_pools(numbers), equal_weights)
    places.use_own()
    return lambda kind, owner: places.place(SLOT_POOLS[kind], owner)


class MemoryCalls:
    """Calls of LanceMemory in tool workers, of callers who are in no run.

    Each waits for one of `slots`, as calls of tools do: tenants get them by weight and their agents in turns.
    """

    def __init__(
        self,
        plan: WorkerPlan,
        slots: Slots,
        clock: Clock,
        task: Callable[[bytes], Awaitable[bytes]] = lambda packed_call: _outcome(_USE_MEMORY.remote(packed_call)),
    ) -> None:
        """`task` carries a call, as `use_memory` takes it."""
        self._plan, self._slots, self._clock, self._task = plan, slots, clock, task

    async def call(self, agent: AgentRef, method: str, arguments: Sequence[object], seconds: float) -> object:
        """Return what a method of LanceMemory returns about the agent, and raise what it raises.

        Raises RuntimeUnavailableError if the worker dies, or has not answered after so many seconds, the wait for a slot
        included, and is then killed: the call may or may not have happened.
        """
        try:
            async with deadline(self._clock, seconds), self._slots(ToolClass.MEMORY, (agent.tenant, agent.agent_id)):
                return unpack(await self._task(pack((self._plan, method, (agent, *arguments)))))
        except RayTaskError as error:
            raise error.cause from None
        except TimeoutError:
            raise RuntimeUnavailableError(f"{method} of a memory: no answer within {seconds:g} s") from None
        except WorkerDiedError as error:
            raise RuntimeUnavailableError(f"{method}: {error}") from error


class TaskToolRunner:
    """Implements `ToolRunner`: quick calls that are ready together share a task, every other call has its own.

    Each waits for one of `slots`, which tenants get by weight and their agents in turns. Time limits count from when a call begins
    to run; how long it waits for that is the run's concern.
    """

    def __init__(
        self,
        plan: WorkerPlan,
        clock: Clock,
        numbers: ToolSlots,
        *,
        slots: Slots | None = None,
        warm_workers: int = 1,
        tasks: ToolTasks | None = None,
        ids: IdSource | None = None,
        attempts: RevokesAttempts | None = None,
    ) -> None:
        """Attempts are files in the plan's data folder, unless others are given; slots, of which there are `numbers`, this runner's own."""
        self._plan, self._tasks, self._ids = plan, tasks or RayTasks(), ids or RandomIds()
        self._attempts = attempts or FiledAttempts(AttemptMarkers(Path(plan.data_dir), clock))
        self._slots = slots or _own_slots(numbers)
        warm, most = partial(self._tasks.warm, plan), sum(_numbers(numbers).values())
        self._spare = SpareWorker(warm, clock, few=warm_workers, most=most)
        self._quick: Batcher[ToolInvocation, ToolOutcome] = Batcher(
            self._run_quick, most=Bound(_MAX_CALLS_PER_TASK, MESSAGE.size), at_once=_TASKS_AT_ONCE, recalls=True
        )

    async def run(self, invocation: ToolInvocation, confirm: Confirm = nothing_to_confirm, /) -> ToolOutcome:
        """See ToolRunner.run."""
        agent = invocation.agent
        async with self._slots(invocation.tool_class, (agent.tenant, agent.agent_id)):
            if invocation.tool_class is ToolClass.QUICK:
                return await self._quick(replace(invocation, owned=await confirm()))
            with self._spare.one_busy():
                return await self._alone(invocation, confirm)

    async def _run_quick(self, invocations: Sequence[ToolInvocation]) -> Sequence[ToolOutcome]:
        try:
            return await self._task(invocations, None)
        except WorkerDiedError as error:
            logger.warning("a tool worker died with %d quick calls; each is run again: %s", len(invocations), error)
            return await asyncio.gather(*(self._alone(each, partial(_as_known, each)) for each in invocations))

    async def _alone(self, invocation: ToolInvocation, confirm: Confirm) -> ToolOutcome:
        """Run the call in a task of its own: until it begins in one, and once more if it can bear that.

        Where marks cost something, a call that can bear it is first run without one, and counts as begun if that is lost.
        """
        lost_before = False
        marked = self._attempts.for_all or invocation.effect is Effect.ONCE or invocation.tool_class is ToolClass.QUICK
        for _ in range(MAX_STARTS):
            confirmed = replace(invocation, owned=await confirm())
            answer = await (self._attempt(confirmed) if marked else self._unmarked(confirmed))
            if isinstance(answer, ToolOutcome):
                return answer
            marked = True
            if answer is None:
                continue
            if lost_before or answer >= invocation.timeout or invocation.effect is Effect.ONCE:
                return _lost(invocation, answer)
            lost_before = True
        message = f"{invocation.tool} did not run: {MAX_STARTS} tool workers died before it began."
        return ToolOutcome(
            ToolResult(invocation.call_id, error=ToolError("execution_failed", message, retryable=True)), 0
        )

    async def _unmarked(self, invocation: ToolInvocation) -> ToolOutcome | float:
        """Return the call's outcome; if its worker died, 0: it may have begun just then."""
        try:
            return (await self._task([invocation], None))[0]
        except WorkerDiedError as error:
            logger.warning("the worker of %s died; the call is run again: %s", invocation.tool, error)
            return 0.0

    async def _attempt(self, invocation: ToolInvocation) -> ToolOutcome | float | None:
        """Return the call's outcome; if its worker died, how many seconds ago it began there, or None if it did not."""
        attempt = AttemptId(self._ids.make("try"))
        began: float | None = 0.0
        try:
            return (await self._task([invocation], attempt))[0]
        except WorkerDiedError as error:
            began = await self._attempts.revoke(attempt)
            logger.warning(
                "the worker of %s died %s: %s",
                invocation.tool,
                "before it began" if began is None else f"{began:.1f} s after it began",
                error,
            )
            return began
        finally:
            if began is not None:
                self._attempts.forget(attempt)

    async def _task(self, invocations: Sequence[ToolInvocation], attempt: AttemptId | None) -> list[ToolOutcome]:
        try:
            packed = await self._tasks.run(invocations[0].tool_class, pack((self._plan, invocations, attempt)))
        except RayTaskError as error:
            return [_failed(each, error.cause) for each in invocations]
        outcomes: list[ToolOutcome] = unpack(packed)
        return outcomes


async def _as_known(invocation: ToolInvocation) -> Ownership | None:
    """Return what was known of who has the run when the call was sent: the worker asks if that is long ago."""
    return invocation.owned


def _lost(invocation: ToolInvocation, elapsed: float) -> ToolOutcome:
    """Return the outcome of a call whose worker died so many seconds after it began there."""
    may_have_acted = " It may or may not have acted: check before you repeat it."
    if elapsed >= invocation.timeout:
        message = f"{invocation.tool} did not stop at its limit of {invocation.timeout:g} s and was killed."
        type_ = "timeout"
    else:
        message = f"the process of {invocation.tool} died."
        type_ = "uncertain" if invocation.effect is Effect.ONCE else "execution_failed"
    if invocation.effect is Effect.ONCE:
        message += may_have_acted
    error = ToolError(type_, message, retryable=invocation.effect is not Effect.ONCE)
    return ToolOutcome(ToolResult(invocation.call_id, error=error), round(elapsed * 1_000))


def _failed(invocation: ToolInvocation, cause: BaseException) -> ToolOutcome:
    """Return the outcome of a call whose worker could not start, or failed around it."""
    if isinstance(cause, ConfigurationError):
        error = ToolError("execution_failed", f"the tool worker cannot start: {cause}")
    elif invocation.effect is Effect.ONCE:
        message = (
            f"the tool worker failed: {type(cause).__name__}. It may or may not have acted: check before you repeat it."
        )
        error = ToolError("uncertain", message)
    else:
        error = ToolError("execution_failed", f"the tool worker failed: {type(cause).__name__}: {cause}")
    return ToolOutcome(ToolResult(invocation.call_id, error=error), 0)
