"""Tool calls as agents make them, timed inside an actor that the root owns, beside empty Ray tasks from the same actor.

`python -m benchmarks.tool_calls <cluster> <folder> <rounds> <seconds>`; see `benchmarks.attached`.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from msgspec.structs import replace

from benchmarks import attached
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool import ToolDefinition
from owlclaw_ray.domain.tool_call import ToolInvocation, ToolOutcome, ToolRunner
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import RunId, ToolCallId

APPLICATION = '''
import time

from owlclaw_ray import OwlClaw

app = OwlClaw("bench")


@app.state("price")
def price() -> dict[str, float]:
    """Return a state that costs nothing to look up."""
    return {"price": 7.0}


@app.tool("work")
def work(seconds: float) -> str:
    """Return after so many seconds, or at once."""
    if seconds:
        time.sleep(seconds)
    return "done"
'''
TOOLS = ("log_decision", "query_state", "remember", "recall", "schedule_once", "schedule_cron", "cancel_schedule")
WORK = "bench.work"
EMPTY = "empty task"
CALLERS = 50
ONE_IN = 50
"""Calls of which one runs into its time limit: 2 %."""
LIMIT_SECONDS = 0.5
_TOO_LONG = 60.0
_WARM_UP = 20
_SCHEDULES_EACH = 20
"""Schedules that one agent makes before the next agent's turn: a hundred would be too many."""

Call = Callable[[], Awaitable[object]]


class FailedCallError(Exception):
    """A tool answered with an error where it should not."""


@dataclass
class Calls:
    """Makes invocations of the tools, each with ids of its own, and checks their outcomes."""

    runner: ToolRunner
    definitions: Mapping[str, ToolDefinition]
    made: int = 0

    async def call(self, tool: str, arguments: JsonObject, agent: str = "bench:tools") -> ToolOutcome:
        """Return the outcome of a call that must succeed. Raises FailedCallError."""
        outcome = await self.runner.run(self.invocation(tool, arguments, agent))
        if outcome.result.error is not None:
            raise FailedCallError(f"{tool}: {outcome.result.error}")
        return outcome

    def invocation(self, tool: str, arguments: JsonObject, agent: str = "bench:tools") -> ToolInvocation:
        """Return one more call, as the run loop would make it."""
        self.made += 1
        definition = self.definitions[tool]
        call_id = ToolCallId(f"call_bench_{self.made}")
        return ToolInvocation(
            call_id=call_id,
            tool=tool,
            arguments=orjson.dumps(arguments).decode(),
            agent=AgentRef.parse(agent),
            run_id=RunId(f"run_bench_{self.made}"),
            trigger=TriggerKind.API,
            effect=definition.effect,
            tool_class=definition.tool_class,
            timeout=30.0,
            idempotency_key=call_id,
        )


def arguments_of(tool: str, number: int) -> JsonObject:
    """Return what the `number`-th call of a tool is asked; a cancellation still lacks the schedule's id."""
    arguments: dict[str, JsonObject] = {
        "log_decision": {"reasoning": "Nothing needs to be done.", "decision_type": "no_action"},
        "query_state": {"state_name": "price"},
        "remember": {
            "content": f"Order {number} of customer {number * 7919 % 1000} came to {number * 31 % 977} crowns."
        },
        "recall": {"query": f"customer {number * 7919 % 1000}", "limit": 5},
        "schedule_once": {"delay_seconds": 86_400, "focus": "look again"},
        "schedule_cron": {"cron_expression": "0 9 * * *", "focus": "look again"},
        "cancel_schedule": {},
    }
    return arguments[tool]


class ToolCaller:
    """An actor that does what an agent actor does with tools, and nothing else."""

    def __init__(self, folder: str) -> None:
        import ray

        from actors.tool_task import TaskToolRunner
        from owlclaw_ray.app_loader import load_app
        from owlclaw_ray.kernel.system_clock import SystemClock
        from owlclaw_ray.settings import load_settings
        from owlclaw_ray.tools.composition import declared_tools
        from serve.runtime_plan import plan_of

        plan = plan_of(load_settings(Path(folder), {}))
        definitions = declared_tools(load_app(plan.worker.app_path, Path(folder)).sources())
        self._calls = Calls(
            TaskToolRunner(plan.worker, SystemClock(), plan.slots), {each.name: each for each in definitions}
        )
        options: dict[str, Any] = {"num_cpus": 0, "resources": {"tool_slots": 1}, "max_retries": 0}
        self._empty = ray.remote(**options)(_nothing)
        self._nap = ray.remote(**options)(_nap)

    async def latencies(self, rounds: int) -> dict[str, list[float]]:
        """Return the seconds of each call of each tool and of an empty task, one at a time, taking turns."""
        seconds: dict[str, list[float]] = {EMPTY: [], **{tool: [] for tool in TOOLS}}
        for number in range(_WARM_UP + rounds):
            for what, taken in seconds.items():
                call = await self._prepared(what, number)
                started = time.perf_counter()
                await call()
                if number >= _WARM_UP:
                    taken.append(time.perf_counter() - started)
        return seconds

    async def throughput(self, what: str, seconds: float) -> dict[str, object]:
        """Return how many calls 50 callers complete a second, and how long each took."""
        ends, taken = time.perf_counter() + seconds, list[float]()
        numbers = itertools.count()

        async def keep_calling() -> None:
            while time.perf_counter() < ends:
                call = self._one_of_many(what, next(numbers))
                started = time.perf_counter()
                await call()
                taken.append(time.perf_counter() - started)

        began = time.perf_counter()
        await asyncio.gather(*(keep_calling() for _ in range(CALLERS)))
        return {"per_second": len(taken) / (time.perf_counter() - began), "seconds": taken}

    async def _prepared(self, what: str, number: int) -> Call:
        if what == EMPTY:
            return self._empty_task
        agent = f"bench:{what}{number // _SCHEDULES_EACH}" if "schedule" in what else "bench:tools"
        arguments = arguments_of(what, number)
        if what == "cancel_schedule":
            made = await self._calls.call("schedule_once", arguments_of("schedule_once", number), agent)
            arguments = {"schedule_id": made.result.content["schedule_id"]}
        return lambda: self._calls.call(what, arguments, agent)

    def _one_of_many(self, what: str, number: int) -> Call:
        late = number % ONE_IN == ONE_IN - 1
        match what:
            case "empty task":
                return self._empty_task
            case "empty task, 2 % time-outs":
                return lambda: self._task(self._nap, LIMIT_SECONDS if late else 0.0)
            case "work, 2 % time-outs":
                return lambda: self._work(late=late)
            case "work":
                return lambda: self._work(late=False)
            case _:
                return lambda: self._calls.call(what, arguments_of(what, number))

    async def _work(self, *, late: bool) -> None:
        invocation = self._calls.invocation(WORK, {"seconds": _TOO_LONG if late else 0.0})
        outcome = await self._calls.runner.run(replace(invocation, timeout=LIMIT_SECONDS))
        type_ = outcome.result.error.type if outcome.result.error else ""
        if type_ != ("timeout" if late else ""):
            raise FailedCallError(f"{WORK}: {outcome.result}")

    async def _empty_task(self) -> None:
        await self._task(self._empty)

    async def _task(self, function: Any, *arguments: object) -> None:
        await function.remote(*arguments)


def _nap(seconds: float) -> None:
    time.sleep(seconds)


def _nothing() -> None:
    return None


def main(address: str, folder: str, rounds: int, seconds: float) -> None:
    """Measure everything, the empty tasks before and after the tools."""
    import ray

    attached.attach(address)
    caller = attached.child_of_root(ToolCaller, folder)
    latencies = ray.get(caller.latencies.remote(rounds))
    attached.tell(f"{rounds} rounds of calls one at a time")
    many: dict[str, list[object]] = {}
    cases = (EMPTY, "log_decision", "query_state", "work", f"{EMPTY}, 2 % time-outs", "work, 2 % time-outs")
    for turn in range(2):
        for case in cases:
            measured = ray.get(caller.throughput.remote(case, seconds / 2))
            many.setdefault(case, []).append(measured)
            attached.tell(f"{CALLERS} callers, {case}: {measured['per_second']:.0f}/s ({turn + 1} of 2)")
    attached.found({"latencies": latencies, "many": many})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
