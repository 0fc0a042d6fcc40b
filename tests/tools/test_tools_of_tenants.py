"""Tools of the application, of files and of the machine that are for some tenants alone."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from owlclaw_ray import OwlClaw
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.settings import load_settings
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.sources import ToolSources
from tests.tools.builtin.conftest import invocation
from tests.worlds import Model, says

ACME, BETA = map(TenantId, ("acme", "beta"))
TOOL = {
    "name": "text.count",
    "description": "Count words.",
    "input_schema": {"type": "object", "properties": {}},
    "permission": "readonly",
    "tenants": ["acme"],
    "command": "true",
}


@pytest.fixture
def app():
    app = OwlClaw("shop")
    app.tool("price", tenants=["acme"])(lambda: 1)
    app.handler("order", tenants=["acme", "gamma"])(lambda: 2)
    app.tool("open")(lambda: 3)
    return app


async def test_agents_of_other_tenants_are_shown_none_of_them(app, tmp_path):
    agent = tmp_path / "agents/clerk"
    agent.mkdir(parents=True)
    (agent / "SOUL.md").write_text("You look things up.")
    (agent / "IDENTITY.md").write_text("## My Capabilities\n- look\n")
    (tmp_path / "work").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/count.json").write_text(json.dumps(TOOL))
    (tmp_path / "owlclaw.yaml").write_text("tools: {code: {enabled: true, project: work, tenants: [acme]}}\n")
    model = Model(lambda _request: says("done"))
    async with in_process_runtime(
        agents_dir=tmp_path / "agents",
        data_dir=tmp_path / "data",
        app=app,
        models=[model],
        host_tools=load_settings(tmp_path, {}).host_tools,
    ) as runtime:
        for tenant in (ACME, BETA):
            await runtime.outcome(await runtime.submit(AgentRef.parse("clerk", tenant), Trigger(TriggerKind.API)))

    acme, beta = [{each["function"]["name"] for each in json.loads(one.tools)} for one in model.requests]
    code = {f"code__{name}" for name in ("read_file", "list_dir", "search", "write_file", "edit_file", "run_command")}
    assert acme - beta == {"shop__price", "shop__order", "text__count"} | code
    assert beta - acme == set()
    assert "shop__open" in beta


def test_a_worker_answers_a_call_of_another_tenant_as_one_of_no_tool(app):
    clock = ManualClock()
    executor = LocalExecutor(ToolSources(app.sources()), clock)

    def call(tool, tenant):
        return executor.run_one(invocation(tool, agent=AgentRef.parse("clerk", tenant))).result

    assert call("shop.price", ACME).content == 1
    unknown = call("shop.nothing", BETA).error
    assert call("shop.price", BETA).error == replace(unknown, message=unknown.message.replace("nothing", "price"))


@pytest.mark.parametrize(
    ("tenants", "said"),
    [
        ("acme", "is the text 'acme'"),
        ([], "names no tenant"),
        (["acme", "Beta"], "has 'Beta', which is no id of a tenant"),
    ],
)
def test_what_names_no_tenants_is_refused(tenants, said):
    with pytest.raises(ConfigurationError, match=said) as caught:
        OwlClaw("shop").tool("price", tenants=tenants)(lambda: 1)
    assert "tool 'shop.price': tenants" in str(caught.value)
