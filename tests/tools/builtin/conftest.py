from datetime import UTC, datetime

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.schedule import ScheduleStatus
from owlclaw_ray.domain.tool import Effect, ToolClass
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import RunId, ToolCallId, derived_id
from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.store.commands import ScheduleCancelled, ScheduleCreated, TooManySchedules
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.builtin import BuiltInTools

TRADER = AgentRef.parse("trader")


class MemorySchedules:
    """Schedules in a dict, with the contract of the port."""

    def __init__(self):
        self.stored = {}

    def create(self, schedule, limit):
        known = self.stored.get(schedule.schedule_id)
        if known is not None:
            return ScheduleCreated(known)
        active = [
            one for one in self.stored.values() if one.agent == schedule.agent and one.status is ScheduleStatus.ACTIVE
        ]
        if len(active) >= limit:
            return TooManySchedules(limit)
        self.stored[schedule.schedule_id] = schedule
        return ScheduleCreated(schedule)

    def cancel(self, agent, schedule_id, caller_run):
        known = self.stored.get(schedule_id)
        if known is None or known.agent != agent:
            return ScheduleCancelled(
                cancelled=False, schedule_id=schedule_id, message="there is no such schedule of yours"
            )
        del self.stored[schedule_id]
        return ScheduleCancelled(cancelled=True, schedule_id=schedule_id, message="it starts no more runs")


class DictStates:
    """States from functions by name."""

    def __init__(self):
        self.providers = {"market.open": lambda agent: True, "who": lambda agent: {"agent": agent.agent_id}}

    def query(self, name, agent):
        if name not in self.providers:
            raise NotFoundError("state", f"{name} (known: {', '.join(sorted(self.providers))})")
        return self.providers[name](agent)


def invocation(tool, number=1, agent=TRADER, **changes):
    call_id = ToolCallId(f"call_{number}")
    fields = {
        "call_id": call_id,
        "tool": tool,
        "arguments": "{}",
        "agent": agent,
        "run_id": RunId("run_1"),
        "trigger": TriggerKind.API,
        "effect": Effect.IDEMPOTENT,
        "tool_class": ToolClass.QUICK,
        "timeout": 30.0,
        "idempotency_key": derived_id("key", "run_1", call_id),
    }
    return ToolInvocation(**(fields | changes))


@pytest.fixture
def clock():
    return ManualClock(datetime(2026, 3, 1, 12, tzinfo=UTC))


@pytest.fixture
def schedules():
    return MemorySchedules()


@pytest.fixture
def states():
    return DictStates()


@pytest.fixture
def memory(tmp_path, clock):
    return LanceMemory(tmp_path, FixedEmbedder(None), clock)


@pytest.fixture
def tools(schedules, memory, states, clock):
    return BuiltInTools(schedules=schedules, memory=memory, states=states, clock=clock)


@pytest.fixture
def call(tools):
    """Call a tool and return its content; the call must succeed."""

    def succeed(tool, number=1, agent=TRADER, **arguments):
        outcome = tools.call(tool, arguments, invocation(tool, number, agent))
        assert outcome.result.error is None, outcome.result.error
        return outcome.result.content

    return succeed


@pytest.fixture
def fail(tools):
    """Call a tool and return its error; the call must fail."""

    def refuse(tool, **arguments):
        outcome = tools.call(tool, arguments, invocation(tool))
        assert outcome.result.error is not None
        assert outcome.records == ()
        return outcome.result.error

    return refuse
