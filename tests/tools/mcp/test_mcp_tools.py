"""Runs that use MCP tools, from the trigger to the ledger, with real servers."""

import asyncio

import pytest

from owlclaw_ray.domain.approval import Decision
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.store.queries import LedgerFilter
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.mcp.api import McpState
from owlclaw_ray.tools.mcp.options import Annotations, Command, McpOptions, McpServerOptions
from tests.tools.mcp.conftest import PATH, SDK, plain

SCRIPT = """
rules:
  - turns:
      - tool_calls:
          - {name: mcp.plain.echo, arguments: {text: "hello"}}
          - {name: mcp.demo.picture, arguments: {}}
          - {name: mcp.plain.echo, arguments: {txt: "hello"}}
          - {name: mcp.demo.fail, arguments: {why: "no such shelf"}}
          - {name: mcp.plain.either, arguments: {}}
      - tool_calls:
          - {name: mcp.plain.die, arguments: {}}
      - text: done
"""
GONE = McpServerOptions("gone", Command(("/nowhere/server",)))
DEMO = McpServerOptions("demo", Command(SDK), Annotations.TRUST)


@pytest.fixture
def folder(tmp_path):
    agent = tmp_path / "agents/clerk"
    agent.mkdir(parents=True)
    (agent / "SOUL.md").write_text("You look things up.")
    (agent / "IDENTITY.md").write_text("## My Capabilities\n- look\n")
    (agent / "agent.yaml").write_text(
        "model: scripted:script.yaml\ntools: {deny: [mcp.plain.act]}\npermissions: {allow: ['mcp.*', 'tag:dangerous']}\n"
    )
    (agent / "script.yaml").write_text(SCRIPT)
    return tmp_path


def runtime_with(folder, *servers, approve=None):
    options = McpOptions(servers, backoff=0.01, backoff_limit=0.02)
    return in_process_runtime(
        agents_dir=folder / "agents",
        data_dir=folder / "data",
        mcp=options,
        environ={"PATH": PATH, "TOKEN": "swordfish"},
        approve=approve,
    )


async def records(runtime, run, kind):
    ledger = await runtime.ledger(LedgerFilter(tenant=run.agent.tenant, run_id=run.run_id))
    return [each.record.data for each in ledger if each.record.kind is kind]


async def test_a_run_uses_the_tools_of_mcp_servers(folder):
    """tool-registry: MCP tools are discovered from servers and become the same definitions and results as all tools."""
    secretive = plain(environment=(("KEY", "${TOKEN}"),), annotations=Annotations.TRUST)
    async with runtime_with(folder, secretive, DEMO, GONE) as runtime:
        run = await runtime.trigger("clerk")
        calls = await records(runtime, run, LedgerKind.TOOL_CALL)
        (visible,) = await records(runtime, run, LedgerKind.VISIBILITY)
        ledger = await runtime.ledger(LedgerFilter(tenant=run.agent.tenant))
        while not all(each.state in {McpState.UP, McpState.DOWN} for each in await runtime.mcp_servers()):
            await asyncio.sleep(0)

    assert run.status is RunStatus.COMPLETED
    echo, picture, wrong, failed, either, died = calls
    assert (echo["tool"], echo["content"]) == ("mcp.plain.echo", "hello")
    assert picture["content"][0] == {"type": "text", "text": "a pixel"}
    assert picture["content"][1]["artifact_ref"]["artifact_id"].startswith("art_")
    assert wrong["error"]["type"] == "invalid_arguments"
    assert failed["error"]["message"] == "no such shelf"
    assert either["error"]["type"] == "not_executed"
    assert died["error"]["type"] == "server_unavailable"
    assert died["error"]["retryable"] is True
    assert "mcp.plain.act" in str(visible["hidden"])
    assert "swordfish" not in str(ledger)


async def test_a_server_that_is_down_delays_no_run_and_its_known_tools_say_so(folder):
    (folder / "agents/clerk/script.yaml").write_text(
        "rules: [{turns: [{tool_calls: [{name: mcp.plain.act, arguments: {}}]}, {text: done}]}]"
    )
    (folder / "agents/clerk/agent.yaml").write_text(
        "model: scripted:script.yaml\npermissions: {allow: ['mcp.*', 'tag:dangerous']}\n"
    )
    marker = folder / "up"
    marker.touch()
    own = Command(("/bin/sh", "-c", f'test -e {marker} && exec "$@"', "sh", *plain().endpoint.argv))
    async with runtime_with(folder, McpServerOptions("plain", own), GONE) as runtime:
        first = await runtime.trigger("clerk")
        marker.unlink()
        second = await runtime.trigger("clerk")
        third = await runtime.trigger("clerk")
        errors = [(await records(runtime, run, LedgerKind.TOOL_CALL))[0]["error"] for run in (first, second, third)]

    assert errors[0]["type"] == "uncertain"
    assert errors[1]["type"] in {"uncertain", "server_unavailable"}
    assert errors[2]["type"] == "server_unavailable"
    assert "the MCP server plain is" in errors[2]["message"]


async def test_what_a_server_says_of_itself_spares_nobody_a_question_unless_it_is_trusted(folder):
    """tool-registry: write, dangerous and network tools ask by default; MCP servers are no exception."""
    (folder / "agents/clerk/agent.yaml").write_text("model: scripted:script.yaml\n")
    (folder / "agents/clerk/script.yaml").write_text(
        "rules: [{turns: [{tool_calls: [{name: mcp.plain.echo, arguments: {text: a}}, "
        "{name: mcp.demo.add, arguments: {a: 1}}]}, {text: done}]}]"
    )
    asked = []

    async def approve(request):
        asked.append((request.tool, request.target))
        return Decision.ALLOW_ONCE

    async with runtime_with(folder, plain(), DEMO, approve=approve) as runtime:
        run = await runtime.trigger("clerk")
        calls = await records(runtime, run, LedgerKind.TOOL_CALL)

    assert asked == [("mcp.plain.echo", '{"text":"a"}')]
    assert [call["content"] for call in calls] == ["a", {"result": 2}]
