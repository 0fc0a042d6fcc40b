"""What `owlclaw up` and `owlclaw doctor` say of tools and rules that work, and do not do what their author meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from owlclaw_ray.app_loader import application
from owlclaw_ray.definitions.folder import DefinitionFolder
from owlclaw_ray.settings import load_settings
from owlclaw_ray.tools.composition import declared_tools
from serve.preflight import prepare
from serve.tool_advice import KnownNames, tool_advice

APP = '''from owlclaw_ray import OwlClaw

app = OwlClaw("desk")


@app.tool(tags=["network"])
def price(article: str) -> int:
    """Say what an article costs."""
    return 1


@app.handler
def refund(order: str) -> str:
    """Give the money back."""
    return order


@app.state
def orders() -> int:
    return 1
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    clerk = tmp_path / "agents" / "clerk"
    clerk.mkdir(parents=True)
    (clerk / "SOUL.md").write_text("A clerk.")
    (clerk / "IDENTITY.md").write_text("## My Capabilities\n- Give refunds\n")
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "owlclaw.yaml").write_text("app: app:app\n")
    return tmp_path


def agent_file(project: Path, text: str) -> None:
    (project / "agents" / "clerk" / "agent.yaml").write_text(text)


def said(project: Path) -> list[str]:
    return [str(problem) for problem in prepare(project, {}).advice]


def test_a_rule_of_an_agent_that_no_tool_is_under_is_said_with_its_line_and_the_nearest_name(project: Path):
    agent_file(project, "model: scripted:echo\npermissions:\n  allow: [desk.price]\n  deny: [desk.refnd]\n")

    [problem] = said(project)

    assert problem == (
        "clerk/agent.yaml:4: permissions.deny[0]: is 'desk.refnd', which matches no tool: the rule does nothing "
        "(did you mean desk.refund?)"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("permissions: {ask: [refund]}", "did you mean desk.refund?"),
        ("permissions: {allow: [remembr]}", "did you mean remember?"),
        ("permissions: {deny: ['tag:netwrok']}", "did you mean tag:network?"),
        ("tools: {allow: ['dsk.*', desk.price]}", "tools.allow[0]: is 'dsk.*', which matches no tool"),
        ("tools: {deny: [desk.pric]}", "did you mean desk.price?"),
        ("tools: {limits: {desk.prize: {calls: 1}}}", "did you mean desk.price?"),
        (
            "tools: {states: {deny: [ordres]}}",
            "is 'ordres', which matches no state: the rule does nothing (did you mean orders?)",
        ),
        ("permissions: {deny: ['code.*']}", "such tools are off: turn them on (tools.code.enabled in owlclaw.yaml)"),
        ("permissions: {deny: [mcp.files.write]}", "owlclaw.yaml has no MCP server 'files'"),
    ],
)
def test_each_kind_of_rule_is_looked_at(project: Path, text: str, expected: str):
    agent_file(project, text)

    [problem] = said(project)

    assert expected in problem


def test_a_rule_of_the_settings_is_said_once_for_all_agents(project: Path):
    (project / "owlclaw.yaml").write_text("app: app:app\npermissions:\n  ask:\n    - desk.refnd\n")

    [problem] = said(project)

    assert problem.startswith("owlclaw.yaml:4: permissions.ask[0]: is 'desk.refnd'")


def test_rules_that_do_something_are_not_said(project: Path):
    agent_file(
        project,
        "permissions: {allow: [desk.price, 'desk.*', remember, 'tag:dangerous', 'tag:network'], deny: ['permission:write']}\n"
        "tools: {allow: ['*'], deny: [desk.refund, 'schedule_*'], states: {allow: ['ord*']}}\n",
    )

    assert said(project) == []


def test_rules_about_a_server_that_is_not_up_are_not_said(project: Path):
    (project / "owlclaw.yaml").write_text("app: app:app\nmcp: {servers: {files: {command: sh}}}\n")
    agent_file(project, "permissions: {deny: [mcp.files.write, 'mcp.*', '*.delete', 'tag:disk', mcp.file.read]}")

    [problem] = said(project)

    assert "is 'mcp.file.read'" in problem
    assert "owlclaw.yaml has no MCP server 'file'" in problem


def test_rules_about_a_server_that_is_up_are_said(project: Path):
    (project / "owlclaw.yaml").write_text("app: app:app\nmcp: {servers: {files: {command: sh}}}\n")
    agent_file(project, "permissions: {ask: [mcp.files.write], deny: [mcp.files.wriet]}")
    settings = load_settings(project, {})
    app = application(settings.app, project)
    known = KnownNames.of(app, declared_tools(app.sources()), settings, {"files": ["mcp.files.write"]})
    definitions = [DefinitionFolder(settings.agents_dir, settings.defaults).load("clerk")]

    [problem] = tool_advice(app, known, settings, definitions)

    assert problem.fix == "did you mean mcp.files.write?"


def test_rules_of_a_tenant_s_definition_about_what_is_for_others_are_said(project: Path):
    (project / "owlclaw.yaml").write_text(
        "app: app:app\nmcp: {servers: {crm: {command: sh, tenants: [acme]}, wiki: {command: sh, tenants: [acme]}}}\n"
    )
    text = APP.replace("@app.handler\n", '@app.handler(tenants=["acme"])\n')
    (project / "app.py").write_text(text)
    rules = "permissions: {allow: [mcp.crm.find, 'mcp.wiki.*', desk.price], deny: [desk.refund]}\n"
    for tenant in ("acme", "beta"):
        own = project / "agents" / f"@{tenant}" / "clerk"
        own.mkdir(parents=True)
        for name in ("SOUL.md", "IDENTITY.md"):
            (own / name).write_text((project / "agents/clerk" / name).read_text())
        (own / "agent.yaml").write_text(rules)
    agent_file(project, rules)
    settings = load_settings(project, {})
    app = application(settings.app, project)
    known = KnownNames.of(app, declared_tools(app.sources()), settings, {"crm": ["mcp.crm.find"]})
    folder = DefinitionFolder(settings.agents_dir, settings.defaults)

    def said_of(name: str) -> list[str]:
        return [str(each) for each in tool_advice(app, known, settings, [folder.load(name)])]

    assert said_of("clerk") == said_of("acme/clerk") == []
    found = said_of("beta/clerk")
    assert len(found) == 3
    assert "'mcp.crm.find', which matches no tool" in found[0]
    assert "mcp.servers.crm.tenants of owlclaw.yaml does not name its tenant" in found[0]
    assert "'mcp.wiki.*', which matches no tool" in found[1]
    assert "'desk.refund', which matches no tool" in found[2]
    assert "did you mean" not in "".join(found)


def test_a_tool_without_a_docstring_is_said_with_its_line(project: Path):
    silent = "@app.tool\ndef weight(article: str) -> int:\n    return 1\n"
    described = "app.tool('height', description='How high it is.')(lambda: 1)\n"
    (project / "app.py").write_text(f"{APP}\n\n{silent}\n\n{described}")

    [problem] = said(project)

    assert problem.startswith(f"tool 'desk.weight' ({project / 'app.py'}:23): has no docstring")
    assert "first paragraph says what it does" in problem


SCRIPT = """rules:
  - when: {focus: prices}
    turns:
      - tool_calls:
          - {name: desk.price, arguments: {article: tea}}
          - {name: my_app.refund, arguments: {order: "17"}}
      - tool_calls: [{name: "desk__prise"}, {name: "{{ payload.tool }}"}, {name: remember, arguments: {content: x}}]
    then:
      tool_calls: [{name: remembr}]
  - then: {tool_calls: [{name: code.python}]}
"""


def test_each_call_of_a_script_whose_tool_does_not_exist_is_said_with_its_line_and_the_nearest_name(project: Path):
    agent_file(project, "model: scripted:script.yaml\n")
    (project / "agents" / "clerk" / "script.yaml").write_text(SCRIPT)

    assert said(project) == [
        (
            "clerk/script.yaml:6: rules[0].turns[0].tool_calls[1].name: calls 'my_app.refund', a tool that does not exist "
            "(did you mean desk.refund?)"
        ),
        (
            "clerk/script.yaml:7: rules[0].turns[1].tool_calls[0].name: calls 'desk.prise', a tool that does not exist "
            "(did you mean desk.price?)"
        ),
        (
            "clerk/script.yaml:9: rules[0].then.tool_calls[0].name: calls 'remembr', a tool that does not exist "
            "(did you mean remember?)"
        ),
        (
            "clerk/script.yaml:10: rules[1].then.tool_calls[0].name: calls 'code.python', a tool that does not exist "
            "(such tools are off: turn them on (tools.code.enabled in owlclaw.yaml), or name another tool)"
        ),
    ]


def test_names_of_tools_in_identity_that_do_not_exist_are_said_with_their_line_and_other_dotted_words_are_not(
    project: Path,
):
    (project / "agents" / "clerk" / "IDENTITY.md").write_text(
        "# Clerk\n\n## My Capabilities\n- Prices with desk.prize, money back with my_app.refund_all or `desk.refund`.\n"
        "- All of desk.*, e.g. for a.b@example.com; see desk.md, https://desk.price.example and docs/desk.refnd/x\n"
    )

    assert said(project) == [
        "clerk/IDENTITY.md:4: names 'desk.prize', a tool that does not exist (did you mean desk.price?)",
        (
            "clerk/IDENTITY.md:4: names 'my_app.refund_all', a tool that does not exist "
            "(tools here: desk.price, desk.refund)"
        ),
    ]


def test_tools_of_a_server_that_is_not_up_are_not_said_in_scripts_and_identity(project: Path):
    (project / "owlclaw.yaml").write_text("app: app:app\nmcp: {servers: {files: {command: sh}}}\n")
    agent_file(project, "model: scripted:script.yaml\n")
    clerk = project / "agents" / "clerk"
    (clerk / "script.yaml").write_text("rules: [{then: {tool_calls: [{name: mcp.files.read}, {name: mcp.file.read}]}}]")
    (clerk / "IDENTITY.md").write_text("## My Capabilities\n- mcp.files.read\n")

    [problem] = said(project)

    assert "calls 'mcp.file.read'" in problem
    assert "owlclaw.yaml has no MCP server 'file': add it (mcp.servers), or name another tool" in problem
