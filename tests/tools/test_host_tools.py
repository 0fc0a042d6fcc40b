"""Runs that use code tools, declarative tools and the tools of adapters, from the trigger to the ledger."""

import json

import pytest

from owlclaw_ray import OwlClaw
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.model import MessageRole
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.settings import load_settings
from owlclaw_ray.store.queries import LedgerFilter
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.tools.test_sources import Adapter
from tests.worlds import Model, asks, says

TOOL = {
    "name": "text.upper",
    "description": "Upper case.",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "permission": "readonly",
    "command": "./upper.sh",
    "args": ["--", "{{text}}"],
}
SCRIPT = """
rules:
  - turns:
      - tool_calls:
          - {name: code.write_file, arguments: {path: notes.txt, content: "one\\n"}}
          - {name: code.run_command, arguments: {argv: [sh, -c, "yes | head -c 30000"]}}
      - tool_calls:
          - {name: code.read_file, arguments: {path: notes.txt}}
          - {name: text.upper, arguments: {text: quiet}}
          - {name: weather.now, arguments: {}}
          - {name: code.read_file, arguments: {path: ../.owlclaw/owlclaw.db}}
          - {name: weather.later, arguments: {}}
      - text: done
"""


@pytest.fixture
def folder(tmp_path):
    agent = tmp_path / "agents/coder"
    agent.mkdir(parents=True)
    (agent / "SOUL.md").write_text("You write notes.")
    (agent / "IDENTITY.md").write_text("## My Capabilities\n- notes\n")
    (agent / "agent.yaml").write_text(
        "model: scripted:script.yaml\ntools: {deny: [weather.l*, code.edit_file]}\npermissions: {allow: [code.*, 'tag:dangerous']}\n"
    )
    (agent / "script.yaml").write_text(SCRIPT)
    (tmp_path / "work").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/upper.json").write_text(json.dumps(TOOL))
    script = '#!/bin/sh\nprintf \'{"content": "%s"}\' "$(printf %s "$2" | tr a-z A-Z)"\n'
    (tmp_path / "tools/upper.sh").write_text(script)
    (tmp_path / "tools/upper.sh").chmod(0o755)
    (tmp_path / "owlclaw.yaml").write_text("tools: {code: {enabled: true, project: work, read_roots: [.]}}\n")
    return tmp_path


async def test_a_run_uses_tools_of_every_source_within_their_bounds(folder):
    """tool-registry: all sources become the same definitions and results; what is not in the effective set is not available."""
    settings = load_settings(folder, {})
    app = OwlClaw("shop")
    app.add_tools(Adapter("weather.now", "weather.later", answer=lambda call: "sunny"))
    async with in_process_runtime(
        agents_dir=settings.agents_dir,
        data_dir=settings.data_dir,
        app=app,
        host_tools=settings.host_tools,
        environ={"PATH": "/usr/bin:/bin"},
    ) as runtime:
        run = await runtime.trigger("coder")
        ledger = await runtime.ledger(LedgerFilter(tenant=run.agent.tenant, run_id=run.run_id))
        calls = [each.record.data for each in ledger if each.record.kind is LedgerKind.TOOL_CALL]
        (visible,) = [each.record.data for each in ledger if each.record.kind is LedgerKind.VISIBILITY]
        artifact_id = calls[1]["content"]["artifact_ref"]["artifact_id"]
        artifact = await runtime.artifact(run.agent, artifact_id)
        with pytest.raises(NotFoundError):
            await runtime.artifact(type(run.agent).parse("coder:other"), artifact_id)

    assert run.status is RunStatus.COMPLETED
    assert (folder / "work/notes.txt").read_text() == "one\n"
    assert json.loads(artifact.read(0, artifact.size_bytes)) == {"exit_code": 0, "stdout": "y\n" * 15_000, "stderr": ""}
    by_tool = {each["tool"]: each for each in calls[2:]}
    assert by_tool["text.upper"]["content"] == "QUIET"
    assert by_tool["weather.now"]["content"] == "sunny"
    assert by_tool["weather__later"]["error"]["type"] == "tool_not_available"
    read, escape = sorted(
        (each for each in calls if each["tool"] == "code.read_file"), key=lambda each: "error" in each
    )
    assert read["content"]["content"] == "one\n"
    assert (escape["error"]["type"], escape["error"]["details"]["concerns"]) == ("denied", ["own_files"])
    assert visible["hidden"] == [
        {"tools": ["code.edit_file"], "by": "choice", "reason": "the definition denies code.edit_file"},
        {"tools": ["weather.later"], "by": "choice", "reason": "the definition denies weather.l*"},
    ]


async def test_an_agent_reads_on_in_its_large_result_and_another_agent_does_not(agents, tmp_path):
    """tool-registry: what an artifact_ref names can be read."""
    app = OwlClaw("shop")
    app.tool("stock")(lambda: {"rows": [f"row {number}" for number in range(5_000)]})
    found = []

    def decide(request):
        answers = [json.loads(each.content) for each in request.messages if each.role is MessageRole.TOOL]
        match len(answers), request.agent_id:
            case 0, "watch":
                return asks(("shop__stock", "{}"))
            case 1, "watch":
                found.append(answers[0]["artifact_ref"]["artifact_id"])
                return asks(
                    ("internal__read_artifact", json.dumps({"artifact_id": found[0], "offset": 9, "limit": 16}))
                )
            case 0, _:
                return asks(("internal__read_artifact", json.dumps({"artifact_id": found[0]})))
        return says(json.dumps(answers[-1]))

    agents.define(tools={"allow": ["shop.stock"]})
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", app=app, models=[Model(decide)]
    ) as runtime:
        own, other = await runtime.trigger("watch"), await runtime.trigger("watch:other")
        [listed] = await runtime.artifacts(own.agent, 10)
        others = await runtime.artifacts(other.agent, 10)

    assert json.loads(own.result.final_text)["text"] == '"row 0","row 1",'
    assert json.loads(other.result.final_text)["error"]["type"] == "not_found"
    assert (listed.artifact_id, others) == (found[0], [])
