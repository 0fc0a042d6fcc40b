import json
from datetime import UTC, datetime, timedelta

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.heartbeat import PENDING_EVENTS
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.domain.webhook import Delivery, DeliveryStatus
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.store.queries import RunFilter, ScheduleFilter, WaitingDeliveries
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.internal.events import EventTools
from owlclaw_ray.tools.names import HIDDEN_NAMES
from owlclaw_ray.tools.sources import ToolSources, definitions_of
from owlclaw_ray.tools.states import StateProviders
from tests.tools.builtin.conftest import TRADER, invocation

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class StoreOfTest:
    """Answers the queries that the sources ask."""

    def __init__(self):
        self.runs, self.schedules, self.waiting_deliveries, self.asked = [], [], [], []

    def __call__(self, query):
        self.asked.append(query)
        answers = {RunFilter: self.runs, ScheduleFilter: self.schedules, WaitingDeliveries: self.waiting_deliveries}
        return answers[type(query)]


class World:
    def __init__(self):
        self.store, self.sources = StoreOfTest(), StateProviders(lambda: 0.0, "event source")
        self.rows = []

    def _rows(self, url, query, limit):
        assert (url, query, limit) == ("sqlite:///shop.db", "SELECT 1", 100)
        return self.rows

    def ask(self, *kinds, agent=TRADER, environ=None):
        tools = EventTools(
            sources=self.sources,
            read=self.store,
            rows=self._rows,
            environ={"SHOP": "sqlite:///shop.db"} if environ is None else environ,
            clock=ManualClock(NOW),
        )
        arguments = json.dumps({"sources": kinds, "query": "SELECT 1", "url_variable": "SHOP"})
        executor = LocalExecutor(ToolSources((tools,)), ManualClock(NOW))
        return executor.run_one(invocation(PENDING_EVENTS, arguments=arguments, agent=agent)).result.content


@pytest.fixture
def world():
    return World()


def schedule(name, kind, due):
    return Schedule(name, TRADER, kind, "look", NOW, due)


def delivered(name, payload):
    return Delivery(
        f"whd_{name}",
        TRADER.tenant,
        "shop",
        "rcp_1",
        NOW,
        DeliveryStatus.WAITING,
        agent=TRADER,
        event={"focus": "看", "payload": payload},
    )


def test_where_nothing_waits_nothing_is_pending(world):
    world.sources.add("orders", lambda: 0, None)

    found = world.ask("inbox", "queue", "schedules", "database", "events")

    assert found == {"events": [], "problems": []}


def test_each_source_says_what_waits(world):
    world.rows = [{"id": 7}]
    world.store.runs = [
        Run(f"run_{number}", number, TRADER, Trigger(TriggerKind.API, focus="look"), RunStatus.QUEUED, NOW)
        for number in (2, 1)
    ]
    late, beat, later = (
        schedule("sch_1", ScheduleKind.INTERVAL, NOW - timedelta(minutes=1)),
        schedule("sch_2", ScheduleKind.HEARTBEAT, NOW - timedelta(minutes=1)),
        schedule("sch_3", ScheduleKind.ONCE, NOW + timedelta(minutes=1)),
    )
    world.store.schedules = [late, beat, later]
    world.sources.add("orders", lambda agent: {"of": agent.agent_id}, None)

    async def stock():
        return ["tea"]

    world.sources.add("stock", stock, None)

    world.store.waiting_deliveries = [delivered("1", {"order": 17})]

    found = world.ask("inbox", "queue", "schedules", "database", "events")

    mail = {
        "delivery_id": "whd_1",
        "source": "shop",
        "received_at": NOW.isoformat(),
        "focus": "看",
        "payload": {"order": 17},
    }
    assert found["events"] == [
        {"source": "inbox", "pending": [mail]},
        {
            "source": "queue",
            "pending": [{"run_id": f"run_{number}", "trigger": "api", "focus": "look"} for number in (1, 2)],
        },
        {
            "source": "schedules",
            "pending": [{"schedule_id": "sch_1", "focus": "look", "due_at": "2026-03-01T11:59:00+00:00"}],
        },
        {"source": "database", "pending": [{"id": 7}]},
        {"source": "events.orders", "pending": {"of": "trader"}},
        {"source": "events.stock", "pending": ["tea"]},
    ]
    deliveries, runs, schedules = world.store.asked
    assert deliveries == WaitingDeliveries(TRADER, 100)
    assert runs.agent == schedules.agent == TRADER
    assert isinstance(schedules, ScheduleFilter)


def test_a_source_that_fails_is_a_problem_and_the_others_are_asked(world):
    def broken():
        raise OSError("gone")

    world.sources.add("broken", broken, None)
    world.sources.add("orders", lambda: 3, None)
    world.sources.add("strange", object, None)

    found = world.ask("events", "database", environ={})

    assert found["events"] == [{"source": "events.orders", "pending": 3}]
    problems = {each["source"]: each["message"] for each in found["problems"]}
    assert problems["events.broken"] == "OSError: gone"
    assert "SHOP is not set" in problems["database"]
    assert "events.strange" in problems


def test_only_what_is_asked_for_is_asked(world):
    world.sources.add("orders", lambda: 1, None)

    assert world.ask("queue") == {"events": [], "problems": []}
    assert [type(query) for query in world.store.asked] == [RunFilter]


def test_the_question_has_a_name_that_no_other_tool_can_take():
    assert {each.name for each in definitions_of([EventTools])} == HIDDEN_NAMES


@pytest.mark.parametrize(("name", "words"), [("a b", "is no event source name"), ("orders", "is registered twice")])
def test_an_event_source_that_cannot_be_is_refused(world, name, words):
    world.sources.add("orders", lambda: 1, None)
    with pytest.raises(ConfigurationError, match=words):
        world.sources.add(name, lambda: 1, None)


def test_agents_of_one_definition_are_asked_for_one_by_one(world):
    world.sources.add("orders", lambda agent: agent.key, None)

    assert world.ask("events", agent=AgentRef.parse("trader:AAPL"))["events"][0]["pending"] == "AAPL"


def test_much_of_a_source_comes_whole_and_too_much_is_its_problem(world):
    world.sources.add("large", lambda: "x" * 100_000, None)
    world.sources.add("too_large", lambda: "x" * 300_000, None)

    found = world.ask("events")

    assert [(each["source"], len(each["pending"])) for each in found["events"]] == [("events.large", 100_000)]
    assert "says 300002 bytes" in found["problems"][0]["message"]


def test_of_what_is_in_the_inbox_the_oldest_is_said_as_much_as_may_be(world):
    world.store.waiting_deliveries = [delivered(str(number), "x" * 60_000) for number in range(9)]

    [inbox] = world.ask("inbox")["events"]

    assert [each["delivery_id"] for each in inbox["pending"]] == ["whd_0", "whd_1", "whd_2", "whd_3"]
