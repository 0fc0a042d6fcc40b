"""Every tool of a runtime has one name and one source, wherever it comes from."""

import asyncio
import json

import pytest

from owlclaw_ray import AgentRef, OwlClaw, ToolError, ToolResult
from owlclaw_ray.domain.tool import Effect, Permission, ToolClass, ToolDefinition
from owlclaw_ray.domain.tool_call import ToolInvocation, ToolOutcome
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.ids import RunId, ToolCallId
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.composition import declared_tools
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.names import BUILT_IN_NAMES, INTERNAL_NAMES
from owlclaw_ray.tools.schema import _metaschema_fault
from owlclaw_ray.tools.sources import ToolSources

NOTHING = {"type": "object", "properties": {}}


class Adapter:
    """A source with tools of these names, which do what `answer` does."""

    def __init__(self, *names, source="a test", schema=NOTHING, answer=lambda invocation: invocation.tool):
        self.source, self._names, self._schema, self.run = source, names, schema, answer

    def definitions(self):
        return tuple(ToolDefinition(name, "", self._schema, Permission.READONLY, Effect.PURE) for name in self._names)


def problems_of(act):
    with pytest.raises(ConfigurationError) as caught:
        act()
    return [str(problem) for problem in caught.value.problems]


def run(adapter, tool="a.b", arguments=None, timeout=5.0):
    invocation = ToolInvocation(
        call_id=ToolCallId("call_1"),
        tool=tool,
        arguments=json.dumps(arguments or {}),
        agent=AgentRef.parse("trader"),
        run_id=RunId("run_1"),
        trigger=TriggerKind.API,
        effect=Effect.PURE,
        tool_class=ToolClass.ALONE,
        timeout=timeout,
        idempotency_key="key",
    )
    return LocalExecutor(ToolSources([adapter]), ManualClock()).run_one(invocation).result


@pytest.fixture
def app():
    return OwlClaw("shop")


def test_a_schema_is_checked_once_however_many_sources_come_after_it(app):
    app.add_tools(Adapter("a.b", schema={**NOTHING, "description": "of a test alone"}))
    checked = _metaschema_fault.cache_info().misses
    app.add_tools(Adapter("c.d", schema={**NOTHING, "description": "of a test alone"}))

    assert _metaschema_fault.cache_info().misses == checked


def test_an_adapter_that_an_application_adds_is_one_of_its_sources(app):
    """tool-registry: complex tools implement ToolAdapter."""
    app.tool("look")(lambda: None)
    app.add_tools(Adapter("weather.now"))
    assert [each.name for each in declared_tools(app.sources())][10:] == ["shop.look", "weather.now"]


def test_a_duplicate_is_an_error_at_registration_that_names_both_sources(app):
    """tool-registry: a duplicate canonical name is an error at registration, never an override or a suffix."""
    app.add_tools(Adapter("weather.now", source="the weather station"))
    (problem,) = problems_of(lambda: app.add_tools(Adapter("weather.now", "weather.later", source="the radio")))
    assert problem == (
        "tool 'weather.now': is registered twice, by the weather station and by the radio (give one of them another name)"
    )
    assert [each.name for each in declared_tools(app.sources())][10:] == ["weather.now"]


def test_a_tool_that_the_application_registers_after_an_adapter_of_that_name_is_found_when_they_come_together(app):
    app.add_tools(Adapter("shop.look", source="the cellar"))
    app.tool("look")(lambda: None)
    (problem,) = problems_of(lambda: declared_tools(app.sources()))
    assert "by the application 'shop' and by the cellar" in problem


def test_names_that_providers_cannot_tell_apart_are_duplicates(app):
    """tool-registry: mangled names are reversible, and so collisions are checked."""
    app.add_tools(Adapter("a.b", source="one"))
    (problem,) = problems_of(lambda: app.add_tools(Adapter("a__b", source="two")))
    assert problem.startswith("tool 'a__b': of two cannot be told from 'a.b' of one: both are 'a__b'")


def test_the_names_of_built_in_tools_are_taken(app):
    app.add_tools(Adapter("remember", source="a notebook"))
    (problem,) = problems_of(lambda: declared_tools(app.sources()))
    assert "by the built-in tools and by a notebook" in problem


@pytest.mark.parametrize(
    ("adapter", "told"),
    [
        (Adapter("plain"), "has a name without a dot"),
        (Adapter("a b.c"), "a name that model providers reject"),
        (Adapter("a.b", schema={"type": "object", "properties": {"x": {"oneOf": []}}}), "input_schema: properties.x"),
        (Adapter("a.b", schema={"type": "string"}), "is not 'object'"),
    ],
)
def test_bad_names_and_schemas_of_adapters_are_refused(app, adapter, told):
    """tool-registry: the registry checks names and schemas when tools are registered."""
    assert told in " ".join(problems_of(lambda: app.add_tools(adapter)))
    assert len(app.sources()) == 1


@pytest.mark.parametrize(
    "answer",
    [
        lambda invocation: {"x": 1},
        lambda invocation: ToolResult(ToolCallId("another"), {"x": 1}),
        lambda invocation: ToolOutcome(ToolResult(invocation.call_id, {"x": 1}), 0),
    ],
)
def test_an_adapter_may_return_an_outcome_a_result_or_json(answer):
    """tool-registry: simple tools return plain values, and the core wraps them as results paired by tool_call_id."""
    assert run(Adapter("a.b", answer=answer)) == ToolResult(ToolCallId("call_1"), {"x": 1})


def test_an_adapter_may_be_asynchronous():
    async def answer(invocation):
        await asyncio.sleep(0)
        return invocation.tool

    assert run(Adapter("a.b", answer=answer)).content == "a.b"


def test_an_asynchronous_adapter_is_stopped_at_the_deadline():
    async def answer(invocation):
        await asyncio.Event().wait()

    assert run(Adapter("a.b", answer=answer), timeout=0.05).error.type == "timeout"


def test_a_failure_that_the_model_can_act_on_is_the_results_error_as_it_is():
    """tool-registry: the failure of a tool is wrapped as a tool result that the model deals with."""

    def answer(invocation):
        raise ToolFailureError("path_conflict", "it exists", details={"path": "x"})

    assert run(Adapter("a.b", answer=answer)).error == ToolError("path_conflict", "it exists", details={"path": "x"})


def test_names_of_the_runtimes_own_tools_are_nobody_elses(app):
    taken = problems_of(lambda: declared_tools((app.registry, Adapter("internal.read_artifact"))))
    invented = problems_of(lambda: app.add_tools(Adapter("internal.sudo")))

    assert "is registered twice, by the artifact tools and by a test" in taken[0]
    assert "of a test has a name of the runtime's own tools" in invented[0]
    assert {each.name for each in declared_tools(())} == BUILT_IN_NAMES | INTERNAL_NAMES
