"""Servers that are for some tenants alone: what the agents of all others are shown of them, and told when they call them."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from msgspec.structs import replace

from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.definitions.folder import DefinitionFolder
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import DefinitionError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.store.queries import JournalOfRun, LedgerFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.mcp.adapter import McpTools
from owlclaw_ray.tools.mcp.api import McpCall, McpCatalog, McpProblem, McpState
from owlclaw_ray.tools.mcp.options import Annotations, Command, McpOptions, McpServerOptions
from owlclaw_ray.tools.mcp.server_tools import offering_of
from owlclaw_ray.tools.sources import ToolSources
from serve.api import build_api
from tests.serve.double import MemoryRuntime
from tests.tools.builtin.conftest import invocation
from tests.tools.mcp.account_server import account_server
from tests.tools.mcp.conftest import PATH, plain, pool_of
from tests.tools.mcp.test_adapter import FILES, SCHEMA, Servers
from tests.worlds import Model, asks, says

ACME, BETA = map(TenantId, ("acme", "beta"))
OWN = plain("own", tenants=frozenset({ACME}), annotations=Annotations.TRUST)
SICK = McpServerOptions("sick", Command(("/nowhere/server",)), tenants=frozenset({ACME}))


def decide(request):
    """Call a tool that reads and one that writes of the server, one that nobody has, and then one that everybody has."""
    if request.trigger.focus == "quiet" or any(each.call_id for each in request.messages):
        return says("done")
    return asks(("mcp__own__echo", '{"text": "a"}'), *((f"mcp__{name}__told", "{}") for name in ("own", "none", "all")))


@pytest.fixture
def agents_dir(tmp_path):
    agent = tmp_path / "agents/clerk"
    agent.mkdir(parents=True)
    (agent / "SOUL.md").write_text("You look things up.")
    (agent / "IDENTITY.md").write_text("## My Capabilities\n- look\n")
    (agent / "agent.yaml").write_text("tools: {deny: [mcp.*.die]}\npermissions: {allow: ['mcp.*']}\n")
    return tmp_path / "agents"


async def test_a_run_of_another_tenant_sees_nothing_of_the_server_and_is_answered_as_if_nobody_had_it(
    agents_dir, tmp_path
):
    model = Model(decide)
    async with in_process_runtime(
        agents_dir=agents_dir,
        data_dir=tmp_path / "data",
        models=[model],
        mcp=McpOptions((OWN, SICK, plain("all")), backoff=0.01, backoff_limit=0.02),
        environ={"PATH": PATH},
    ) as runtime:

        async def run(tenant, focus):
            accepted = await runtime.submit(AgentRef.parse("clerk", tenant), Trigger(TriggerKind.API, focus=focus))
            ended = await runtime.outcome(accepted)
            return await runtime.ledger(LedgerFilter(tenant=tenant, run_id=ended.run_id)), ended

        def calls_of(ledger):
            return [each.record.data for each in ledger if each.record.kind is LedgerKind.TOOL_CALL]

        while not all(each.state in {McpState.UP, McpState.DOWN} for each in await runtime.mcp_servers()):
            await asyncio.sleep(0)
        (acme, _), (beta, _) = [await run(tenant, "calls") for tenant in (ACME, BETA)]
        shown, unshown = model.requests[0].tools, model.requests[-1].tools
        quiet, ended = await run(BETA, "quiet")
        journal = await runtime.store.read(JournalOfRun(BETA, ended.run_id))
        views = {each.name: each.tenants for each in await runtime.mcp_servers()}

    echoed, told, nobodys, everybodys = calls_of(acme)
    assert echoed["content"] == "a"
    assert ["error" in each for each in (told, nobodys, everybodys)] == [False, True, False]
    assert b"mcp__own__echo" in shown
    assert b"mcp__all__echo" in shown

    *foreign, unknown, everybodys = calls_of(beta)
    assert [each["error"]["type"] for each in (nobodys, *foreign, unknown)] == ["tool_not_available"] * 4
    assert [each["error"]["message"].replace(each["tool"], "") for each in foreign] == [
        unknown["error"]["message"].replace(unknown["tool"], "")
    ] * 2
    assert "mcp__own" not in unknown["error"]["message"]
    # A write that is refused holds later ones up; one that does not exist does not.
    assert "error" not in everybodys
    for name in ("own", "sick"):
        assert f"mcp__{name}".encode() not in unshown
        assert f"mcp.{name}" not in repr((quiet, journal, ended))
        assert f"mcp__{name}" not in repr((quiet, journal, ended))
    assert "mcp.all.echo" in repr(journal)
    assert "mcp.all.die" in repr(quiet), "what is withheld is in the ledger"
    assert views == {"own": (ACME,), "sick": (ACME,), "all": ()}


async def test_the_pool_calls_a_server_for_its_tenants_alone_and_tells_others_what_it_tells_of_none():
    async with pool_of(OWN, SICK) as pool:
        await pool.up("own")
        await pool.seen("sick", lambda view: view.state is McpState.DOWN)
        own, sick, none = [
            await pool.call(McpCall(server, "echo", {"text": "a"}, 10.0, tenant=BETA))
            for server in ("own", "sick", "none")
        ]
        before = (await pool.view("own")).calls
        allowed = await pool.call(McpCall("own", "echo", {"text": "a"}, 10.0, tenant=ACME))

    assert isinstance(none, McpProblem)
    assert own == replace(none, message=none.message.replace("none", "own"))
    assert sick == replace(none, message=none.message.replace("none", "sick"))
    assert before == 0
    assert allowed["content"][0]["text"] == "a"


async def test_no_secret_of_another_tenant_is_asked_for_and_nothing_is_sent_in_its_name():
    asked = []

    async def secret(tenant, _name):
        asked.append(tenant)
        return f"{tenant}-token"

    with account_server() as server:
        async with pool_of(replace(server.options(), tenants=frozenset({ACME})), secret=secret) as pool:
            await pool.up("crm")
            answers = [await pool.call(McpCall("crm", "whoami", {"me": "x"}, 10.0, tenant=who)) for who in (BETA, ACME)]

    assert [isinstance(each, McpProblem) for each in answers] == [True, False]
    assert asked == [ACME]
    assert [who for _, who in server.calls] == ["Bearer acme-token"]


async def test_servers_of_different_tenants_share_no_process_though_they_are_configured_alike():
    servers = [
        plain(name, tenants=frozenset(tenants))
        for name, tenants in (("one", {ACME}), ("two", {ACME}), ("three", {BETA}), ("four", ()))
    ]
    async with pool_of(*servers) as pool:
        for server in servers:
            await pool.up(server.name)
        one, two, *others = [pool.pid(server.name) for server in servers]

    assert one == two
    assert len({one, *others}) == 3


@pytest.mark.parametrize("where", ["clerk/agent.yaml", "@acme/tenant.yaml", "@acme/clerk/agent.yaml"])
def test_only_owlclaw_yaml_names_servers(agents_dir, where):
    shutil.copytree(agents_dir / "clerk", agents_dir / "@acme/clerk")
    (agents_dir / where).write_text("mcp: {servers: {own: {url: 'http://169.254.169.254/mcp'}}}\n")

    with pytest.raises(DefinitionError, match="mcp: there is no such key"):
        DefinitionFolder(agents_dir, Defaults()).load("acme/clerk" if "@" in where else "clerk")


async def test_no_request_names_a_server():
    document = build_api(MemoryRuntime(SystemClock()), clock=SystemClock(), body_limit_bytes=10_000).openapi()
    about = {path: list(methods) for path, methods in document["paths"].items() if "mcp" in path}
    bodies = {
        name: each.get("properties", {})
        for name, each in document["components"]["schemas"].items()
        if "Request" in name
    }

    assert about == {"/v1/mcp": ["get"]}
    assert bodies
    assert not [(name, key) for name, keys in bodies.items() for key in keys if key in {"mcp", "command", "servers"}]


def test_a_worker_answers_another_tenant_s_call_as_one_of_a_server_that_is_not_there():
    clock = ManualClock()
    server = replace(FILES, tenants=frozenset({ACME}))
    servers = Servers()
    offered = offering_of(server, [{"name": "read", "inputSchema": SCHEMA}]).definitions
    servers.offered = McpCatalog("1", {"files": offered}, settled=True)
    executor = LocalExecutor(ToolSources((), live=McpTools(servers, None, clock.monotonic)), clock)

    def call(tool, tenant):
        agent = AgentRef.parse("clerk", tenant)
        return executor.run_one(invocation(tool, arguments='{"path": "a"}', agent=agent)).result

    assert call("mcp.files.read", ACME).content == "hello"
    unknown = call("mcp.none.read", BETA).error
    for tool in ("mcp.files.read", "mcp.files.gone"):
        assert call(tool, BETA).error == replace(unknown, message=unknown.message.replace("none", "files"))
    assert call("mcp.files.gone", ACME).error.type == "tool_not_available"
    assert [each.tenant for each in servers.calls] == [ACME]
