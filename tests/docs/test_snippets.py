"""Every example in README.md and docs/ runs, or is read by what reads it in earnest."""

import re
import sys

import pytest
from msgspec.structs import replace

from owlclaw_ray.app import OwlClaw
from owlclaw_ray.client import SyncClient
from owlclaw_ray.configuration.placeholders import names_in
from owlclaw_ray.configuration.yaml_document import read_yaml
from owlclaw_ray.definitions.agent_file import AgentFile
from owlclaw_ray.definitions.tenant_file import TenantFile
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.memory.markdown import parse
from owlclaw_ray.models.scripted.library import ScriptLibrary
from owlclaw_ray.settings import load_runtime_settings, load_settings
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.host import BrokenFilePolicy, host_sources
from owlclaw_ray.tools.sources import ToolSources
from owlclaw_ray.wire import Accepted
from serve.preflight import prepare
from tests.docs import shell
from tests.docs.snippets import snippets
from tests.tools.code.conftest import invocation
from tests.tools.mcp.conftest import pool_of


def test_every_snippet_is_of_a_kind_that_is_checked_here():
    assert {each.language for each in snippets()} <= {"python", "yaml", "sh", "json", "markdown", "text"}


@pytest.mark.parametrize("snippet", [each for each in snippets("python") if not each.is_of_tutorial], ids=str)
def test_python_runs(snippet, server):
    module = {"__name__": "snippet"}
    source = snippet.text.replace(shell.DOCUMENTED_URL, server)
    exec(compile(source, str(snippet), "exec"), module)
    app = module.get("app")
    if isinstance(app, OwlClaw):
        assert app.registry.definitions()
        for state in app.registry.states():
            app.registry.query(state, AgentRef.parse("assistant"))


@pytest.mark.parametrize("snippet", snippets("yaml"), ids=str)
def test_yaml_is_taken_by_what_reads_such_files(snippet, tmp_path):
    document = read_yaml(snippet.text, str(snippet))
    if snippet.file.endswith("owlclaw.yaml"):
        (tmp_path / "owlclaw.yaml").write_text(snippet.text, encoding="utf-8")
        (tmp_path / "work").mkdir()
        for name in re.findall(r"tls_\w+: (\S+)", snippet.text):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("in PEM", encoding="utf-8")
        variables = [*names_in(snippet.text), *re.findall(r"api_key_env: (\w+)", snippet.text)]
        load_runtime_settings(tmp_path, dict.fromkeys(variables, "a secret of 32 characters or more"))
    elif snippet.file.endswith("agent.yaml"):
        AgentFile.model_validate(document.data)
    elif snippet.file.endswith("tenant.yaml"):
        TenantFile.model_validate(document.data)
    else:
        assert "rules" in document.data
        (tmp_path / "script.yaml").write_text(snippet.text, encoding="utf-8")
        ScriptLibrary().script("scripted:script.yaml", str(tmp_path))


@pytest.mark.parametrize("snippet", [each for each in snippets("json") if each.file], ids=str)
def test_json_files_are_declarative_tools_that_work(snippet, tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / snippet.file).write_text(snippet.text, encoding="utf-8")
    (tmp_path / "list.txt").write_text("apples and pears", encoding="utf-8")
    host = load_settings(tmp_path, {}).host_tools
    executor = LocalExecutor(ToolSources(host_sources(host, {}, BrokenFilePolicy.REFUSE)), ManualClock())
    result = executor.run_one(invocation("text.word_count", {"file": "list.txt"})).result
    assert result.content == {"words": 3}


@pytest.mark.parametrize("snippet", [each for each in snippets("json") if not each.file], ids=str)
def test_json_has_the_keys_that_the_api_sends(snippet):
    document = read_yaml(snippet.text, str(snippet)).data
    assert document.keys() == Accepted.__annotations__.keys()


@pytest.mark.parametrize("snippet", [each for each in snippets("markdown") if not each.file], ids=str)
def test_markdown_without_a_file_is_a_memory(snippet):
    document = parse(snippet.text.encode(), ManualClock().now())
    assert len(document.memories) == 1
    assert not document.torn


@pytest.mark.parametrize("snippet", snippets("sh"), ids=str)
def test_commands_are_taken_by_the_real_command_line(snippet, server, tmp_path):
    with SyncClient(server) as client:
        run_id = client.submit("assistant")["run_id"]
        schedule_id = client.create_schedule("assistant:1", "look", interval=3_600)["schedule_id"]
    for words in shell.commands(snippet.text):
        variables, command = shell.without_assignments(words)
        shell.check_settings(variables, tmp_path)
        match command:
            case ["owlclaw", *arguments]:
                shell.check_owlclaw(arguments)
            case ["python", "-m", "benchmarks.chaos", *arguments]:
                shell.check_chaos(arguments)
            case ["python", "-m", "benchmarks.memory_kills", *arguments]:
                shell.check_memory_kills(arguments)
            case ["locust", *arguments]:
                shell.check_locust(arguments, server, tmp_path)
            case ["make", *targets]:
                shell.check_make(targets)
            case ["curl", *arguments]:
                response = shell.send(arguments, server, run_id, schedule_id)
                assert response.is_success, response.text
            case ["docker", "compose", *arguments]:
                shell.check_compose(arguments)
            case ["sqlite3", ".owlclaw/owlclaw.db" | "recovered.db", statement]:
                shell.check_sqlite(statement, tmp_path)
            case ["sqlite3", ".owlclaw/owlclaw.db", ".recover", ">", _]:
                pass
            case ["pip", "install", *arguments]:
                shell.check_pip(arguments)
            case _:
                assert shell.known_elsewhere(command), f"{snippet}: nothing checks {command}"


@pytest.mark.usefixtures("forgetting_modules")
async def test_the_agent_that_the_documents_build_runs(tmp_path):
    for each in snippets():
        if each.mark and each.mark[0] == "file":
            path = tmp_path / each.mark[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(each.text, encoding="utf-8")
    prepared = prepare(tmp_path, {})
    (definition,) = prepared.definitions
    assert (definition.name, definition.warnings, prepared.broken) == ("shopkeeper", (), ())
    assert [skill.name for skill in definition.skills] == ["restock"]

    settings = prepared.settings
    async with in_process_runtime(
        agents_dir=settings.agents_dir,
        data_dir=settings.data_dir,
        app=prepared.app,
        host_tools=settings.host_tools,
    ) as runtime:
        run = await runtime.trigger("shopkeeper", focus="stock")
        memories = await runtime.memory.memories(run.agent)

    assert (run.status, run.result.final_text) == (RunStatus.COMPLETED, "Ordered 18 apples.")
    assert set(run.result.tools_called) == {"query_state", "shop.reorder", "remember", "log_decision"}
    assert [memory.content for memory in memories] == ["Ordered 18 apples."]


async def test_the_mcp_server_of_the_documents_works(tmp_path):
    (program,) = [each for each in snippets("python") if each.mark == ("server", "shelf.py")]
    (tmp_path / "shelf.py").write_text(program.text, encoding="utf-8")
    (written,) = [each for each in snippets("yaml") if "shelf.py" in each.text]
    (tmp_path / "owlclaw.yaml").write_text(written.text, encoding="utf-8")
    options = load_settings(tmp_path, {"SHELF_KEY": "a secret", "SEARCH_TOKEN": "another"}).mcp_options
    shelf, search = options.servers
    python = replace(shelf.endpoint, argv=(sys.executable, *shelf.endpoint.argv[1:]))

    async with pool_of(replace(shelf, endpoint=python), environ={"SHELF_KEY": "a secret"}) as pool:
        catalog = await pool.until(lambda catalog: catalog.tools)
        answer = await pool.ask("shelf", "count", {"shelf": 3})

    (tool,) = catalog.tools["shelf"]
    assert (tool.name, tool.permission.value) == ("mcp.shelf.count", "readonly")
    assert answer["content"][0]["text"] == "There are 21 books."
    assert [rule.tools for rule in search.rules] == ["get_*", "delete_index"]
