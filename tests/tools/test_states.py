import pickle
from datetime import UTC, datetime

import pytest

from owlclaw_ray import AgentRef, OwlClaw
from owlclaw_ray.errors import ConfigurationError, NotFoundError
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.json_result import NotJsonError

TRADER = AgentRef.parse("trader")
OTHER = AgentRef.parse("trader:B")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def app(clock):
    return OwlClaw("demo", monotonic=clock.monotonic)


def test_sync_and_async_providers_give_json(app):
    @app.state("a")
    def a():
        return {"at": datetime(2026, 1, 1, tzinfo=UTC)}

    @app.state("b")
    async def b():
        return [1, "二"]

    assert app.registry.states() == ("a", "b")
    assert app.registry.query("a", TRADER) == {"at": "2026-01-01T00:00:00+00:00"}
    assert app.registry.query("b", TRADER) == [1, "二"]


async def test_an_answer_is_kept_for_its_time_to_live(app, clock):
    asked = []
    app.state("kept", ttl=10)(lambda: asked.append("kept") or len(asked))
    app.state("fresh")(lambda: asked.append("fresh") or len(asked))
    assert [app.registry.query("kept", each) for each in (TRADER, OTHER)] == [1, 1]
    await clock.advance(9.9)
    assert app.registry.query("kept", TRADER) == 1
    await clock.advance(0.1)
    assert app.registry.query("kept", TRADER) == 2
    assert [app.registry.query("fresh", TRADER) for _ in range(2)] == [3, 4]


def test_a_provider_that_takes_the_agent_is_kept_for_each_agent(app):
    app.state("mine", ttl=10)(lambda agent: agent.agent_id)
    assert app.registry.query("mine", TRADER) == "trader"
    assert app.registry.query("mine", OTHER) == "trader:B"


def test_a_failed_query_is_not_kept(app):
    answers = iter([ValueError("down"), "up"])

    @app.state("flaky", ttl=10)
    def flaky():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(ValueError, match="down"):
        app.registry.query("flaky", TRADER)
    assert app.registry.query("flaky", TRADER) == "up"


def test_the_cache_is_bounded(app, clock):
    app.state("mine", ttl=10)(lambda agent: agent.key)
    for number in range(1_500):
        app.registry.query("mine", AgentRef.parse(f"trader:{number}"))
    assert len(app.registry.state_providers._cache) <= 1_024
    assert app.registry.query("mine", AgentRef.parse("trader:1499")) == "1499"


def test_an_unknown_state_is_not_found_and_the_known_ones_are_named(app):
    app.state("load")(lambda: 1)
    with pytest.raises(NotFoundError, match="there is no state 'laod'; there are: load") as caught:
        app.registry.query("laod", TRADER)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_state_that_is_not_json_is_an_error_that_names_the_type(app):
    app.state("odd")(lambda: {"x": object()})
    with pytest.raises(NotJsonError, match="object"):
        app.registry.query("odd", TRADER)


@pytest.mark.parametrize(
    ("name", "ttl", "provider", "problem"),
    [
        ("a b", None, lambda: 1, "is no state name"),
        ("taken", None, lambda: 1, "is registered twice"),
        ("x", 0, lambda: 1, "ttl: is 0"),
        ("x", None, lambda a, b: 1, "has parameters a, b"),
    ],
)
def test_wrong_registrations_are_refused(app, name, ttl, provider, problem):
    app.state("taken")(lambda: 1)
    with pytest.raises(ConfigurationError, match=problem):
        app.state(name, ttl=ttl)(provider)
