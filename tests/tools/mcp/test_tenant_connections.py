"""Servers that are called with secrets of tenants: what the server gets, from whom."""

from __future__ import annotations

import asyncio

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import NotFoundError, RuntimeUnavailableError, SecretsUnavailableError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.queries import JournalOfRun, LedgerFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.mcp.api import McpCall, McpProblem, McpState, McpTrouble
from owlclaw_ray.tools.mcp.options import McpOptions
from owlclaw_ray.tools.mcp.tenant_connections import IDLE_SECONDS
from tests.tools.mcp.account_server import LISTER, account_server
from tests.tools.mcp.conftest import PATH, pool_of

ACME, BETA, GAMMA = map(TenantId, ("acme", "beta", "gamma"))


class Secrets:
    """The values of tenants, or what is raised in their place."""

    def __init__(self):
        self.values = {ACME: "acme-token-1", BETA: "beta-token-1"}

    async def ask(self, tenant, name):
        await asyncio.sleep(0)
        assert name == "CRM_TOKEN"
        found = self.values.get(tenant, NotFoundError("secret", name))
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def secrets():
    return Secrets()


@pytest.fixture
def server():
    with account_server() as found:
        yield found


async def ask(pool, tenant, tool="whoami"):
    return await pool.call(McpCall("crm", tool, {"me": tenant}, 10.0, tenant=tenant))


def text_of(answer):
    assert not isinstance(answer, McpProblem), answer
    return answer["content"][0]["text"]


@pytest.mark.parametrize("has_sessions", [False, True], ids=["without sessions", "with sessions"])
async def test_calls_of_tenants_at_the_same_time_go_each_with_its_own_credential_connection_and_session(
    server, secrets, has_sessions
):
    server.has_sessions = has_sessions
    async with pool_of(server.options(), secret=secrets.ask) as pool:
        await pool.up("crm")
        tenants = [ACME, BETA] * 20
        answers = await asyncio.gather(*(ask(pool, tenant) for tenant in tenants))
        again = [await ask(pool, tenant) for tenant in tenants]
        view = await pool.view("crm")

    # What a server says of the credential is hidden.
    assert [text_of(each) for each in (*answers, *again)] == [f"{tenant} has Bearer [secret]" for tenant in tenants] * 2
    assert sorted(server.calls) == sorted([(tenant, f"Bearer {tenant}-token-1") for tenant in tenants] * 2)
    by_session, by_connection = {}, {}
    for each in server.asked:
        by_session.setdefault(each.session, set()).add(each.authorization)
        by_connection.setdefault(each.connection, set()).add(each.authorization)
    assert all(len(credentials) == 1 for credentials in by_connection.values())
    by_session.pop("")  # what begins a session
    own = [{LISTER}, {"Bearer acme-token-1"}, {"Bearer beta-token-1"}]
    assert sorted(by_session.values(), key=sorted) == (sorted(own, key=sorted) if has_sessions else [])
    assert begun(server, ACME) == begun(server, BETA) == 1
    assert (view.calls, view.running) == (80, 0)


def begun(server, tenant):
    """How many connections were begun with credentials of the tenant."""
    first = "initialize" if server.has_sessions else "server/discover"
    return sum(each.method == first and tenant in each.authorization for each in server.asked)


async def test_a_tenant_without_the_secret_is_told_so_and_nothing_is_sent(server, secrets):
    async with pool_of(server.options(), secret=secrets.ask) as pool:
        await pool.up("crm")
        before = [each for each in server.asked if each.authorization != LISTER]
        refused = await ask(pool, GAMMA)

    assert refused == McpProblem(
        McpTrouble.NO_SECRET,
        "the MCP server crm is called with the tenant's secret CRM_TOKEN, and there is none of that name: nothing was sent.",
    )
    assert before == [each for each in server.asked if each.authorization != LISTER] == []


@pytest.mark.parametrize(
    ("value", "trouble"),
    [
        (RuntimeUnavailableError("the Keeper is away"), McpTrouble.NOT_SENT),
        (SecretsUnavailableError("no key opens it"), McpTrouble.NO_SECRET),
        ("acme-token\r\nX-Other: 1", McpTrouble.NO_SECRET),
        ("acme-tökén", McpTrouble.NO_SECRET),
    ],
)
async def test_what_cannot_be_known_or_sent_is_not_replaced_by_another_credential(server, secrets, value, trouble):
    secrets.values[ACME] = value
    async with pool_of(server.options(), secret=secrets.ask) as pool:
        await pool.up("crm")
        refused = await ask(pool, ACME)

    assert refused.trouble is trouble
    assert "acme-t" not in refused.message
    assert server.calls == []


async def test_a_new_value_is_used_from_the_next_call_on_while_a_call_under_way_ends_with_the_old_one(server, secrets):
    async with pool_of(server.options(), secret=secrets.ask) as pool:
        await pool.up("crm")
        await ask(pool, ACME)
        waiting = asyncio.create_task(ask(pool, ACME, "wait"))
        while len(server.calls) < 2:
            await asyncio.sleep(0.005)

        secrets.values[ACME] = "acme-token-2"
        await ask(pool, ACME)
        await ask(pool, BETA)
        await ask(pool, ACME)
        server.gate.set()
        assert text_of(await waiting) == ACME
        while pool.held_for_tenants > 2:
            await asyncio.sleep(0.005)

        secrets.values.pop(ACME)
        assert (await ask(pool, ACME)).trouble is McpTrouble.NO_SECRET

    assert [each for _, each in server.calls] == [
        "Bearer acme-token-1",
        "Bearer acme-token-1",
        "Bearer acme-token-2",
        "Bearer beta-token-1",
        "Bearer acme-token-2",
    ]
    assert begun(server, ACME) == 2


async def test_a_credential_that_the_server_refuses_is_named_in_no_message_and_keeps_no_other_tenant_from_it(
    server, secrets, caplog
):
    server.known = {LISTER, "Bearer beta-token-1"}
    async with pool_of(server.options(), secret=secrets.ask) as pool:
        await pool.up("crm")
        refused, let_in = await ask(pool, ACME), await ask(pool, BETA)
        view = await pool.view("crm")

    assert refused.trouble is McpTrouble.NOT_SENT
    assert "is down" in refused.message
    assert "acme-token" not in refused.message + caplog.text
    assert "crm of tenant acme is down" in caplog.text
    assert text_of(let_in).startswith("beta")
    assert (view.state.value, view.problem) == ("up", "")


@pytest.mark.parametrize("credential", [LISTER, "Bearer acme-token-1"], ids=["while it is listed", "in a call"])
async def test_a_server_sends_nobody_on_to_another_address(server, secrets, credential):
    with account_server() as elsewhere:
        server.moved[credential] = f"http://127.0.0.1:{elsewhere.port}/mcp"
        async with pool_of(server.options(), secret=secrets.ask) as pool:
            if credential == LISTER:
                await pool.seen("crm", lambda view: view.state is McpState.DOWN)
            else:
                await pool.up("crm")
                assert (await ask(pool, ACME)).trouble is McpTrouble.NOT_SENT

    assert [each.authorization for each in server.asked if each.authorization == credential]
    assert elsewhere.asked == []


async def test_a_connection_that_nobody_uses_is_ended(server, secrets):
    clock = ManualClock()
    async with pool_of(
        server.options(), secret=secrets.ask, clock=clock, health=10 * IDLE_SECONDS, connect=1e6
    ) as pool:
        await pool.up("crm")
        await ask(pool, ACME)
        await clock.advance(IDLE_SECONDS - 1)
        await ask(pool, ACME)
        await clock.advance(IDLE_SECONDS - 1)
        assert (pool.held_for_tenants, begun(server, ACME)) == (1, 1)

        await clock.advance(1)
        while pool.held_for_tenants:
            await asyncio.sleep(0.005)
        await ask(pool, ACME)

    assert (pool.held_for_tenants, begun(server, ACME)) == (0, 2)


SCRIPT = """
rules:
  - turns:
      - tool_calls:
          - {name: mcp.crm.whoami, arguments: {me: clerk}}
      - text: done
"""


async def test_agents_of_tenants_call_in_their_runs_with_their_own_account_as_far_as_their_tenant_may(server, tmp_path):
    agent = tmp_path / "agents/clerk"
    agent.mkdir(parents=True)
    (agent / "SOUL.md").write_text("You look things up.")
    (agent / "IDENTITY.md").write_text("## My Capabilities\n- look\n")
    (agent / "agent.yaml").write_text("model: scripted:script.yaml\npermissions: {allow: ['mcp.*', 'tag:network']}\n")
    (agent / "script.yaml").write_text(SCRIPT)
    (tmp_path / "agents/@gamma").mkdir()
    (tmp_path / "agents/@gamma/tenant.yaml").write_text("permissions: {deny: [mcp.crm.*]}\n")
    values = {tenant: f"{tenant}-token-1" for tenant in (ACME, BETA, GAMMA)}
    nobody = TenantId("nobody")
    async with in_process_runtime(
        agents_dir=tmp_path / "agents",
        data_dir=tmp_path / "data",
        mcp=McpOptions((server.options(),), backoff=0.01, backoff_limit=0.02),
        environ={"PATH": PATH},
    ) as runtime:
        for tenant, value in values.items():
            await runtime.secrets.set_secret(tenant, "CRM_TOKEN", value, "ada")

        async def run(tenant):
            accepted = await runtime.submit(AgentRef.parse("clerk", tenant), Trigger(TriggerKind.API))
            return await runtime.outcome(accepted)

        runs = await asyncio.gather(*(run(tenant) for tenant in (*values, nobody)))
        calls, kept = {}, []
        for each in runs:
            tenant = each.agent.tenant
            ledger = await runtime.ledger(LedgerFilter(tenant=tenant, run_id=each.run_id))
            (calls[tenant],) = [one.record.data for one in ledger if one.record.kind is LedgerKind.TOOL_CALL]
            kept += [ledger, await runtime.store.read(JournalOfRun(tenant, each.run_id)), each]

    assert sorted(each for _, each in server.calls) == ["Bearer acme-token-1", "Bearer beta-token-1"]
    assert "clerk has Bearer [secret]" in str(calls[ACME]["content"])
    assert calls[GAMMA]["error"]["type"] in {"denied", "tool_not_available", "tool_not_visible"}
    assert calls[nobody]["error"]["type"] == "secret_missing"
    assert not calls[nobody]["error"]["retryable"]
    assert not [value for value in values.values() if value in repr(kept)]
