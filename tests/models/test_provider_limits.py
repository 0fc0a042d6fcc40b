"""What models take as tools, and what becomes of runs whose model does not take them."""

from datetime import UTC, datetime

import pytest

from owlclaw_ray import OwlClaw
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.provider import ProviderLimits
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.tool import Effect, Permission, ToolDefinition
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.models.provider_limits import KNOWN_LIMITS, problem_with
from owlclaw_ray.runs import catalog
from owlclaw_ray.runs.catalog import ToolCatalog
from owlclaw_ray.store.queries import LedgerFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.builtin import BuiltInTools
from tests.worlds import Model, asks, says

NAMES = (
    "openai/gpt-4o",
    "gpt-4o",
    "o3-mini",
    "azure/mine",
    "anthropic/claude-sonnet-4-5",
    "claude-sonnet-4-5",
    "gemini/gemini-2.5-pro",
)


def tool(name="shop.pay", description="Pay.", **properties):
    schema = {"type": "object", "properties": properties}
    return ToolDefinition(name, description, schema, Permission.WRITE, Effect.ONCE)


def judged(model, *tools, limits=KNOWN_LIMITS):
    return problem_with(model, tools, limits)


@pytest.mark.parametrize("model", [*NAMES, "scripted:echo", "mistral/mistral-large-latest", "ollama_chat/llama3"])
def test_the_built_in_tools_suit_every_model(model):
    assert judged(model, *BuiltInTools.definitions(), tool(number={"type": "integer", "exclusiveMinimum": 0})) == ""


@pytest.mark.parametrize(
    ("model", "most"),
    [("openai/gpt-4o", 128), ("gpt-5-mini", 128), ("azure/mine", 128), ("gemini/gemini-2.5-pro", 512)],
)
def test_a_model_takes_so_many_tools_and_no_more(model, most):
    tools = [tool(f"shop.tool_{number}") for number in range(most + 1)]

    assert judged(model, *tools[:most]) == ""
    assert judged(model, *tools).startswith(f"{model} takes at most {most} tools, and the agent sees {most + 1}: ")
    assert judged("anthropic/claude-sonnet-4-5", *tools) == ""


def test_a_model_without_tools_is_for_agents_without_tools():
    assert judged("perplexity/sonar") == ""
    assert "perplexity/sonar takes no tools, and the agent sees 1" in judged("perplexity/sonar", tool())


@pytest.mark.parametrize("name", ["客户", "filter[id]", "$top", "x" * 65])
def test_anthropic_refuses_names_of_parameters(name):
    message = judged("claude-sonnet-4-5", tool("shop.look"), tool(**{name: {"type": "string"}}))

    assert (
        f"claude-sonnet-4-5 cannot take the tool shop.pay: properties.{name} has a name that does not match" in message
    )
    inside = tool(order={"type": "object", "properties": {name: {"type": "string"}}})
    assert judged("claude-sonnet-4-5", inside) == ""
    assert judged("openai/gpt-4o", tool(**{name: {"type": "string"}})) == ""


def test_azure_refuses_long_descriptions():
    long = tool(description="x" * 1_025)

    assert "azure/mine cannot take the tool shop.pay: its description has 1025 characters" in judged("azure/mine", long)
    assert judged("openai/gpt-4o", long) == judged("azure/mine", tool(description="x" * 1_024)) == ""


def test_an_enum_without_a_type_is_misread_for_gemini():
    untyped = tool(lines={"type": "array", "items": {"enum": ["a", "b"]}})

    assert "shop.pay: properties.lines.items.enum has no type beside it" in judged("gemini/gemini-2.5-pro", untyped)
    assert judged("gemini/gemini-2.5-pro", tool(mode={"type": "string", "enum": ["a"]})) == ""


def test_a_setting_refuses_keywords_and_names_every_place_of_the_first_and_counts_the_tools():
    limits = (ProviderLimits(("openai/local-*",), refused=("pattern",), name_characters=9),)
    fussy = tool("a.b", code={"type": "object", "additionalProperties": {"type": "string", "pattern": "^a"}})

    message = judged("openai/local-7b", tool("a.c"), fussy, tool("shop.much_longer"), limits=limits)

    assert message.startswith(
        "openai/local-7b cannot take the tool a.b (and 1 more tool): properties.code.additionalProperties.pattern "
        "is the keyword pattern, which it refuses: change it, hide tools from the agent (tools.deny in agent.yaml)"
    )
    assert "its name has 17 characters (a dot counts as two), 9 may be" in judged(
        "openai/local-7b", tool("shop.much_longer"), limits=limits
    )


def test_the_first_entry_that_names_a_model_holds_alone():
    many = [tool(f"shop.tool_{number}") for number in range(200)]
    lifted = (ProviderLimits(("openai/gpt-*",)), *KNOWN_LIMITS)

    assert judged("openai/gpt-4o", *many, limits=lifted) == ""
    assert judged("openai/o3", *many, limits=lifted)


def test_a_pair_of_model_and_tools_is_judged_once(monkeypatch):
    asked = []
    monkeypatch.setattr(catalog, "problem_with", lambda *question: asked.append(question) or "no")
    tools = ToolCatalog([tool("a.b"), tool("a.c")])

    for _ in range(50):
        assert tools.problem("m", tools.select(["a.b", "a.c"], DEFAULT_TENANT)) == "no"
        assert tools.problem("m", tools.select(["a.b"], DEFAULT_TENANT)) == "no"

    assert len(asked) == 2


def application(number=130):
    app = OwlClaw("shop")
    for each in range(number):
        app.tool(f"tool_{each}")(lambda: "done")
    return app


async def ledger_warnings(runtime, run):
    found = await runtime.ledger(LedgerFilter(DEFAULT_TENANT, run_id=run.run_id, kind=LedgerKind.WARNING))
    return [each.record.data for each in found]


async def test_a_run_whose_model_cannot_take_its_tools_fails_before_the_model_is_asked(agents, tmp_path):
    """tool-registry: a schema is compared with provider and model before the run asks for the first time; if it is not supported
    the run fails at once.
    """
    model = Model(lambda _: says("done"))
    agents.define(model="openai/gpt-4o", fallback=["anthropic/claude-sonnet-4-5"])

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", app=application(), models=[model]
    ) as runtime:
        run = await runtime.trigger("watch")
        records = await runtime.ledger(LedgerFilter(DEFAULT_TENANT, run_id=run.run_id))

    assert run.status is RunStatus.FAILED
    assert (run.result.error.type, run.result.error.retryable) == ("tools_unsupported", False)
    assert run.result.error.message.startswith("openai/gpt-4o takes at most 128 tools, and the agent sees 140")
    assert model.requests == []
    assert [each.record.kind for each in records] == [LedgerKind.VISIBILITY, LedgerKind.RUN]


async def test_what_governance_hides_does_not_count(agents, tmp_path):
    model = Model(lambda _: says("done"))
    hours = {"tools": ["shop.tool_1*"], "from": "00:00", "to": "00:01"}
    agents.define(model="openai/gpt-4o", governance={"hours": [hours]})
    clock = ManualClock(datetime(2026, 11, 22, 10, tzinfo=UTC))

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", app=application(), models=[model], clock=clock
    ) as runtime:
        run = await runtime.trigger("watch")

    assert run.status is RunStatus.COMPLETED


async def test_a_fallback_that_cannot_take_the_tools_is_left_out_with_a_warning(agents, tmp_path):
    model = Model(lambda request: says("done") if len(request.messages) > 1 else asks(("shop__tool_1", "{}")))
    agents.define(model="anthropic/claude-sonnet-4-5", fallback=["openai/gpt-4o", "mistral/mistral-small"])

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", app=application(), models=[model]
    ) as runtime:
        run = await runtime.trigger("watch")
        [warning] = await ledger_warnings(runtime, run)

    assert run.status is RunStatus.COMPLETED
    assert [request.model.chain for request in model.requests] == 2 * [
        ("anthropic/claude-sonnet-4-5", "mistral/mistral-small")
    ]
    assert warning["what"] == "fallback left out"
    assert "openai/gpt-4o takes at most 128 tools" in warning["why"]


async def test_a_cheaper_model_that_cannot_take_the_tools_is_left_out_with_a_warning(agents, tmp_path):
    model = Model(lambda request: says("done") if len(request.messages) > 5 else asks(("shop__tool_1", "{}")))
    budget = {"name": "own", "unit": "calls", "limit": 10, "scope": "run", "alerts": [10], "cheaper": "openai/gpt-4o"}
    agents.define(model="anthropic/claude-sonnet-4-5", governance={"budgets": [budget]})

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", app=application(), models=[model]
    ) as runtime:
        run = await runtime.trigger("watch")
        warnings = await ledger_warnings(runtime, run)

    assert run.status is RunStatus.COMPLETED
    assert {request.model.chain for request in model.requests} == {("anthropic/claude-sonnet-4-5",)}
    [warning] = [each for each in warnings if each["what"] == "cheaper model left out"]
    assert "openai/gpt-4o takes at most 128 tools" in warning["why"]


async def test_a_setting_lifts_what_is_known(agents, tmp_path):
    model = Model(lambda _: says("done"))
    agents.define(model="openai/local")

    async with in_process_runtime(
        agents_dir=agents.folder,
        data_dir=tmp_path / "data",
        app=application(),
        models=[model],
        model_limits=[ProviderLimits(("openai/local",))],
    ) as runtime:
        run = await runtime.trigger("watch")

    assert run.status is RunStatus.COMPLETED
