from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from owlclaw_ray.app_loader import load_app
from owlclaw_ray.definitions.folder import DefinitionFolder
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.tenant import Tenant, TenantStatus
from owlclaw_ray.ids import TenantId
from owlclaw_ray.models.scripted.library import ScriptLibrary
from owlclaw_ray.settings import load_settings
from owlclaw_ray.store.commands import PutTenant
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.testing.openai_server import CannedFailure, CannedReply, FunctionCall, OpenAIServer
from tests.issuer import serving_issuer
from tests.openid_provider import serving_provider
from tests.serve.cli.conftest import Run


@pytest.fixture
def project(cli: Run, tmp_path: Path) -> Path:
    assert cli("init", "demo").exit_code == 0
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = tmp_path / "demo" / "owlclaw.yaml"
    settings.write_text(settings.read_text().replace("8700", str(port)))
    return tmp_path / "demo"


def levels(output: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in json.loads(output):
        found.setdefault(each["subject"], []).append(each["level"])
    return found


def test_what_init_writes_can_be_used_as_it_is(project: Path):
    settings = load_settings(project, {})
    app = load_app("app:app", project)
    definition = DefinitionFolder(settings.agents_dir, settings.defaults).load("assistant")

    assert settings.app == "app:app"
    assert [tool.name for tool in app.registry.definitions()] == ["demo.write_note"]
    assert [skill.name for skill in definition.skills] == ["tidy-disk"]
    assert definition.warnings == ()
    ScriptLibrary().script(definition.model.chain[0], definition.folder)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("garden", "garden"),
        ("Order-Desk", "Order_Desk"),
        ("2nd try", "nd_try"),
        ("mcp", "my_app"),
        ("花园", "my_app"),
        ("x" * 40, "x" * 32),
    ],
)
def test_init_names_the_application_after_its_folder_in_code_script_and_identity(
    cli: Run, tmp_path: Path, folder: str, name: str
):
    assert cli("init", folder).exit_code == 0

    agent = tmp_path / folder / "agents" / "assistant"
    app = load_app("app:app", tmp_path / folder)
    assert [tool.name for tool in app.registry.definitions()] == [f"{name}.write_note"]
    assert f"- name: {name}.write_note\n" in (agent / "script.yaml").read_text()
    assert f"with {name}.write_note.\n" in (agent / "IDENTITY.md").read_text()


async def test_the_agent_that_init_writes_runs_to_its_end(project: Path):
    app = load_app("app:app", project)
    async with in_process_runtime(agents_dir=project / "agents", data_dir=project / ".owlclaw", app=app) as runtime:
        run = await runtime.trigger("assistant", focus="disk")
        memories = await runtime.memory.memories(run.agent)

    assert run.result is not None
    assert (run.status, run.result.error) == (RunStatus.COMPLETED, None)
    assert sorted(run.result.tools_called) == ["demo.write_note", "log_decision", "query_state", "remember"]
    assert "% of the disk is free" in (project / "notes.md").read_text()
    assert "free." in memories[0].content


def test_a_folder_without_agents_is_not_started(cli: Run):
    result = cli("up")

    assert result.exit_code == 1
    assert "it has no agent definition (make one with: owlclaw init)" in result.output


def test_init_says_what_to_do_next(cli: Run):
    output = cli("init", "项目").output

    assert "cd 项目" in output
    assert "owlclaw trigger assistant --follow" in output


def test_init_overwrites_nothing(cli: Run, tmp_path: Path):
    (tmp_path / "app.py").write_text("mine")
    result = cli("init")

    assert result.exit_code == 1
    assert "app.py: exists already; nothing was written" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["app.py"]


def test_init_says_when_it_may_not_write(cli: Run, tmp_path: Path):
    (tmp_path / "file").write_text("")
    result = cli("init", "file/demo")

    assert result.exit_code == 1
    assert "cannot be written" in result.output


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")  # of Ray, while it is imported
def test_a_sound_project_passes(cli: Run, project: Path):
    result = cli("doctor", "--folder", str(project), "--json")

    assert result.exit_code == 0, result.output
    found = levels(result.output)
    assert all("FAIL" not in each for each in found.values())
    assert {"python", "ray", "memory", "settings", "application", "agent assistant", "store", "port"} <= set(found)
    assert not (project / ".owlclaw").exists()


def test_everything_that_is_wrong_is_found_with_how_to_fix_it(cli: Run, project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (project / "agents" / "empty").mkdir()
    (project / "agents" / "assistant" / "agent.yaml").write_text(
        "model: scripted:missing.yaml\nfallback: [openai/gpt-4o-mini]\n"
    )
    (project / "app.py").write_text("import nothing_of_that_name\n")
    (project / ".owlclaw").mkdir()
    (project / ".owlclaw" / "owlclaw.db").write_text("this is no database, " * 100)
    port = load_settings(project, os.environ).http.port  # noqa: TID251 - as the command sees it
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        result = cli("doctor", "--folder", str(project))

    text = result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1
    assert "FAIL application: " in text
    assert "nothing_of_that_name" in text
    assert "FAIL agent empty: empty/SOUL.md: does not exist" in text
    assert "FAIL model scripted:missing.yaml: " in text
    assert "FAIL model openai/gpt-4o-mini: OPENAI_API_KEY is not set" in text
    assert "FAIL store: " in text
    assert f"FAIL port: 127.0.0.1:{port} is in use" in text
    assert "→ stop what listens there, or set OWLCLAW_HTTP__PORT to another" in text


def test_a_misspelt_model_is_told_with_the_nearest_one_and_an_own_endpoint_s_with_its_variable(
    cli: Run, project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.delenv("GPU_KEY", raising=False)
    assistant, gpu = project / "agents" / "assistant", project / "agents" / "gpu"
    shutil.copytree(assistant, gpu)
    (assistant / "agent.yaml").write_text("model: openai/gpt-4o-mni\n")
    (gpu / "agent.yaml").write_text("model: openai/qwen3\napi_base: http://127.0.0.1:1/v1\napi_key_env: GPU_KEY\n")

    text = cli("doctor", "--folder", str(project)).output

    assert "WARN model openai/gpt-4o-mni: litellm knows no such model; did you mean gpt-4o-mini?" in text
    assert "→ if your own server has it, set its address: api_base in agent.yaml" in text
    assert "FAIL model openai/qwen3: GPU_KEY is not set" in text
    monkeypatch.setenv("GPU_KEY", "sk-gpu")
    assert (
        "model openai/qwen3: at http://127.0.0.1:1/v1; its key is set" in cli("doctor", "--folder", str(project)).output
    )


def test_models_are_asked_for_a_call_of_a_tool_if_that_is_wanted(
    cli: Run, project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    agent = project / "agents" / "assistant" / "agent.yaml"
    with OpenAIServer() as server:
        agent.write_text(f"model: openai/deaf\nfallback: [openai/able, openai/gone]\napi_base: {server.base_url}\n")
        assert "understood" not in cli("doctor", "--folder", str(project)).output
        assert server.requests == []
        call = CannedReply(tool_calls=[FunctionCall("report_status", '{"status": "ok"}')])
        server.enqueue(CannedReply("status: ok", prompt_tokens=40), call, CannedFailure(401, "who are you?"))
        text = cli("doctor", "--probe", "--folder", str(project)).output

    assert (
        "WARN model openai/deaf: tools offered: 1, understood: 0: asked for a call, it answered with text (its prompt"
        in text
    )
    assert "OK   model openai/able: tools offered: 1, understood: 1" in text
    assert "FAIL model openai/gone: does not answer: " in text
    assert [each.body["tools"][0]["function"]["name"] for each in server.requests] == ["report_status"] * 3


def test_wrong_settings_are_reported_each(cli: Run, tmp_path: Path):
    (tmp_path / "owlclaw.yaml").write_text("colour: red\nlimits: {turns: 0}\n")
    found = levels(cli("doctor", "--json").output)

    assert found["settings"] == ["FAIL", "FAIL"]


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")  # of Ray, while it is imported
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("model: scripted:script.yaml\nhttp: {port: eighty}\n", "owlclaw.yaml:3: http.port"),
        (
            "mcp: {servers: {a: {command: sh, env: {T: '${NOT_SET}'}}}}\n",
            "needs the variable NOT_SET, which is not set",
        ),
        ("tools: {code: {enabled: true, project: nowhere}}\n", "nowhere is no folder"),
        ("tools: {folder: nowhere}\n", "nowhere is no folder"),
        ("tracing: {export: langfuse}\n", "LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY are not set"),
        ("http:\n\tport: 1\n", "owlclaw.yaml:3: is not valid YAML"),
        ("webhooks: {sources: {shop: {}}}\nlimits: {turns: 0}\n", "owlclaw.yaml:3: limits.turns"),
    ],
)
def test_bad_settings_hide_nothing_else(
    cli: Run, project: Path, monkeypatch: pytest.MonkeyPatch, settings: str, said: str
):
    monkeypatch.delenv("NOT_SET", raising=False)
    (project / "owlclaw.yaml").write_text(f"app: app:app\n{settings}")
    (project / "agents" / "assistant" / "agent.yaml").write_text("model: scripted:script.yaml\nmodle: x\n")
    (project / ".owlclaw").mkdir()
    (project / ".owlclaw" / "owlclaw.db").write_text("this is no database, " * 100)

    output = cli("doctor", "--folder", str(project)).output

    assert said in output
    assert "FAIL agent assistant: assistant/agent.yaml:2: modle: there is no such key" in output
    assert "FAIL store: " in output
    assert "port: " in output


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")  # of Ray, while it is imported
def test_warnings_about_tools_are_told_and_do_not_fail(cli: Run, project: Path):
    (project / "agents" / "assistant" / "agent.yaml").write_text(
        "model: scripted:script.yaml\npermissions: {deny: [demo.write_nots]}\n"
    )
    result = cli("doctor", "--folder", str(project))

    assert result.exit_code == 0
    assert "OK   application: app:app registers 1 tool\n" in result.output
    assert "WARN tools: assistant/agent.yaml:2: permissions.deny[0]: is 'demo.write_nots'" in result.output
    assert "→ did you mean demo.write_note?" in result.output


def test_a_folder_without_agents_is_pointed_to_init(cli: Run):
    result = cli("doctor")

    assert result.exit_code == 1
    assert "make one with: owlclaw init" in result.output


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")  # of Ray, while it is imported
def test_tools_that_work_on_the_machine_are_told(cli: Run, project: Path):
    (project / "work").mkdir()
    (project / "tools").mkdir()
    with (project / "owlclaw.yaml").open("a") as file:
        file.write("\ntools: {code: {enabled: true, project: work}}\n")
    output = cli("doctor", "--folder", str(project)).output

    assert f"0 declarative tools in {project / 'tools'}" in output
    assert f"code tools work in {project / 'work'}" in output


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")  # of Ray, while it is imported
def test_mcp_servers_are_told_and_programs_that_are_missing(cli: Run, project: Path):
    with (project / "owlclaw.yaml").open("a") as file:
        file.write(
            "\nmcp: {servers: {a: {command: sh}, b: {command: ./none}, c: {url: 'https://x.example/mcp?k=v'}}}\n"
        )
    output = cli("doctor", "--folder", str(project)).output

    assert "OK   mcp a: runs sh" in output
    assert "WARN mcp b: there is no program ./none" in output
    assert "OK   mcp c: at https://x.example/mcp;" in output


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")  # of Ray, while it is imported
@pytest.mark.parametrize("command", ["doctor", "up"])
def test_a_broken_file_of_a_declarative_tool_is_an_error_that_names_it(cli: Run, project: Path, command: str):
    (project / "tools").mkdir()
    (project / "tools" / "count.json").write_text('{"name": "text.count", "comand": "wc"}')
    result = cli(command, "--folder", str(project))

    assert result.exit_code == 1
    assert "tools/count.json: comand: there is no such key" in " ".join(result.output.split())
    assert "did you mean command?" in result.output


def test_wrong_settings_of_a_tenant_are_found_and_named(cli: Run, project: Path):
    own = project / "agents" / "@acme"
    shutil.copytree(project / "agents" / "assistant", own / "buyer")
    assert "OK   agent acme/buyer: 1 skill" in cli("doctor", "--folder", str(project)).output

    (own / "tenant.yaml").write_text("modle: openai/gpt\n")
    result = cli("doctor", "--folder", str(project))

    assert result.exit_code == 1
    assert "FAIL tenant: @acme/tenant.yaml:1: modle: there is no such key" in result.output
    assert "did you mean model?" in result.output


def test_tenants_that_settings_and_tools_name_and_that_there_are_not_are_warned_of(cli: Run, project: Path):
    code = (project / "app.py").read_text()
    (project / "app.py").write_text(code.replace('("write_note")', '("write_note", tenants=["acme", "bata"])'))
    with (project / "owlclaw.yaml").open("a") as file:
        file.write(
            "\nmcp: {servers: {crm: {command: sh, tenants: [acme]}, wiki: {command: sh, tenants: [bata, default]}}}\n"
            "webhooks: {sources: {git: {agent: assistant, tenant: gone, tenant_secrets: [K], signature: {header: X}}}}\n"
        )
    before = " ".join(cli("doctor", "--folder", str(project)).output.split())
    assert "WARN tenants: there is no tenant 'acme' here" in before

    (project / ".owlclaw").mkdir(mode=0o700)
    asyncio.run(_make_tenants(load_settings(project, {}).store_url))
    result = cli("doctor", "--folder", str(project))
    output = " ".join(result.output.split())

    assert result.exit_code == 0
    assert "'acme'" not in output
    assert "'default'" not in output
    assert "no tenant 'bata' here, which mcp.servers.wiki.tenants, tool demo.write_note name" in output
    assert "no tenant 'gone' here, which webhooks.sources.git.tenant names" in output
    assert "owlclaw tenants create bata" in output


async def _make_tenants(url: str) -> None:
    """Have the tenants acme, and gone, which is deleted."""
    at = datetime(2026, 3, 1, tzinfo=UTC)
    store = await open_store(url, writer="test")
    try:
        for name, status in (("acme", TenantStatus.ACTIVE), ("gone", TenantStatus.DELETED)):
            tenant = Tenant(TenantId(name), name, at, "ada", status)
            await store.apply([PutTenant(tenant)])
    finally:
        await store.close()


def test_a_model_that_cannot_take_the_tools_of_its_agent_is_found(cli: Run, project: Path):
    agent = project / "agents" / "assistant" / "agent.yaml"
    agent.write_text("model: scripted:script.yaml\nfallback: [perplexity/sonar]\n")
    doubtful = cli("doctor", "--folder", str(project))
    agent.write_text("model: perplexity/sonar\n")
    failed = cli("doctor", "--folder", str(project))
    budgets = "[{name: own, unit: calls, limit: 9, cheaper: perplexity/sonar}]"
    agent.write_text(f"model: scripted:script.yaml\ngovernance: {{budgets: {budgets}}}\n")
    cheaper = cli("doctor", "--folder", str(project))
    agent.write_text("model: scripted:script.yaml\n")
    settings = project / "owlclaw.yaml"
    before = settings.read_text()
    settings.write_text(f"{before}\nbudgets: {budgets}\n")
    shared = cli("doctor", "--folder", str(project))
    settings.write_text(before)
    agent.write_text("model: perplexity/sonar\ntools: {deny: ['*']}\n")
    chatty = cli("doctor", "--folder", str(project))

    assert "WARN agent assistant: perplexity/sonar takes no tools" in doubtful.output
    assert "WARN agent assistant: perplexity/sonar takes no tools" in cheaper.output
    assert "WARN agent assistant: perplexity/sonar takes no tools" in shared.output
    assert "FAIL agent assistant: perplexity/sonar takes no tools" in failed.output
    assert "takes no tools" not in chatty.output


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")  # of Ray, while it is imported
def test_where_large_artifacts_go_is_told_and_that_they_cannot(
    cli: Run, project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OWLCLAW_ARTIFACTS__URL", f"file://{project}/large")
    lost = cli("doctor", "--folder", str(project))
    assert lost.exit_code == 1
    assert "large does not exist" in lost.output
    assert "make the folder, or name one that there is" in lost.output

    (project / "large").mkdir()
    found = cli("doctor", "--folder", str(project))
    assert found.exit_code == 0
    assert f"those over 16,777,216 bytes go to file://{project}/large" in found.output


def test_where_traces_go_is_told_and_what_that_needs(cli: Run, project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OWLCLAW_TRACING__ENDPOINT", "http://127.0.0.1:4318")
    told = cli("doctor", "--folder", str(project), "--json").output
    monkeypatch.setenv("OWLCLAW_TRACING__EXPORT", "langfuse")
    monkeypatch.delenv("OWLCLAW_TRACING__ENDPOINT")
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-lf-1")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-lf-1")
    monkeypatch.setattr("owlclaw_ray.telemetry.tracing.destinations.find_spec", lambda _: None)
    lacking = cli("doctor", "--folder", str(project)).output

    assert levels(told)["traces"] == ["OK"]
    assert "go to otlp: 127.0.0.1:4318" in told
    assert "pip install -e '.[langfuse]'" in lacking


@pytest.mark.parametrize("command", ["doctor", "up"])
def test_a_damaged_store_is_refused_before_ray_starts_and_left_as_it_is(project: Path, cli: Run, command: str):
    data_dir = project / ".owlclaw"
    data_dir.mkdir()
    damaged = data_dir / "owlclaw.db"
    damaged.write_text("no database " * 1_000)

    result = cli(command, "-C", str(project))

    assert result.exit_code == 1
    assert f"store {damaged}: the file is damaged: it is not a SQLite database" in result.output.replace("\n", " ")
    assert "Put a backup in its place" in result.output
    assert "starting Ray" not in result.output
    assert damaged.read_text() == "no database " * 1_000


def test_a_ledger_that_lost_its_triggers_is_warned_of_and_has_them_again(project: Path, cli: Run):
    (project / ".owlclaw").mkdir()
    path = project / ".owlclaw" / "owlclaw.db"
    asyncio.run(_made(path))
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER ledger_no_delete")

    first = cli("doctor", "--folder", str(project)).output
    second = cli("doctor", "--folder", str(project)).output

    assert (
        "WARN store: triggers that keep the ledger append-only had been dropped or changed: ledger_no_delete" in first
    )
    assert "check with: owlclaw ledger verify" in first
    assert "append-only" not in second


async def _made(path: Path) -> None:
    store = await open_store(f"sqlite:///{path}", writer="test")
    await store.close()


def test_a_data_folder_that_is_open_to_others_is_warned_of(project: Path, cli: Run):
    (project / ".owlclaw").mkdir()
    (project / ".owlclaw").chmod(0o755)

    output = cli("doctor", "-C", str(project)).output.replace("\n", " ")

    assert f"other users can enter {project / '.owlclaw'} (0755)" in output
    assert "owlclaw up restricts it" in output


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")  # of Ray, while it is imported
@pytest.mark.parametrize("command", ["doctor", "up"])
def test_a_model_without_a_price_under_a_budget_of_money_is_an_error_that_says_what_to_set(
    cli: Run, project: Path, command: str
):
    budgets = "[{name: house, unit: money, limit: 9, cheaper: own/small}]"
    agent = f"model: openai/gpt-4o\nfallback: [own/large]\ngovernance: {{budgets: {budgets}}}\n"
    (project / "agents" / "assistant" / "agent.yaml").write_text(agent)
    result = cli(command, "--folder", str(project))
    said = " ".join(result.output.split())

    assert result.exit_code == 1
    for model in ("own/large", "own/small"):
        assert f"agent assistant: its budget house limits the cost, and the price of {model} is not known" in said
        assert f"set models.prices in owlclaw.yaml, such as {{{model}: {{prompt: 0.5, completion: 2}}}}" in said
    assert "what openai/gpt-4o costs" not in said


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")  # of Ray, while it is imported
def test_a_price_may_be_the_settings_own(cli: Run, project: Path):
    budgets = "[{name: house, unit: money, limit: 9, scope: tenant}]"
    (project / "agents" / "assistant" / "agent.yaml").write_text("model: own/large\n")
    with (project / "owlclaw.yaml").open("a") as file:
        file.write(f"\nbudgets: {budgets}\nmodels: {{prices: {{'own/*': {{prompt: 1, completion: 2.5}}}}}}\n")

    assert "is not known" not in cli("doctor", "--folder", str(project)).output


@pytest.mark.parametrize(
    ("source", "level"),
    [
        ("{secret: '${S}', agent: assistant}", "WARN"),
        ("{secret: '${S}', agent: assistant, dedupe: '{body.id}'}", "OK"),
        (
            "{secret: '${S}', agent: assistant, signature: {signed: '{timestamp}.{body}', timestamp_header: X-Time}}",
            "OK",
        ),
    ],
)
def test_doctor_warns_of_webhooks_that_anybody_who_saw_one_can_send_again(
    project: Path, cli: Run, monkeypatch: pytest.MonkeyPatch, source: str, level: str
):
    monkeypatch.setenv("S", "It's a Secret to Everybody")
    settings = project / "owlclaw.yaml"
    settings.write_text(f"{settings.read_text()}\nwebhooks:\n  sources:\n    shop: {source}\n")

    told = [
        each
        for each in json.loads(cli("doctor", "--folder", str(project), "--json").stdout)
        if each["subject"] == "webhooks"
    ]

    assert [each["level"] for each in told] == [level]
    assert "shop" in str(told)


def test_where_people_sign_in_is_looked_at(cli: Run, project: Path, monkeypatch):
    for name in ("IDP", "CONSOLE"):
        monkeypatch.setenv(name, "s" * 32)
    settings = project / "owlclaw.yaml"
    with serving_provider() as provider:
        client = "sign_in: {client_id: console, client_secret: '${IDP}'}"
        entry = f"{{issuer: '{provider.url}', audience: a, kind: person, tenant: default, scopes: [viewer], {client}}}"
        console = "{public_url: 'http://127.0.0.1:8700', session_secret: '${CONSOLE}'}"
        settings.write_text(f"{settings.read_text()}\naccess: {{sign_in: {console}, issuers: [{entry}]}}\n")
        found = [cli("doctor", "--folder", str(project))]
        provider.metadata = {"token_endpoint": None}
        found.append(cli("doctor", "--folder", str(project)))

    assert f"people sign in at {provider.url}/authorize" in found[0].output.replace("\n", "")
    assert "nobody can sign in" in found[1].output
    assert [each.exit_code for each in found] == [0, 1]


def test_the_keys_of_issuers_are_looked_at(cli: Run, project: Path):
    settings = project / "owlclaw.yaml"
    with serving_issuer() as issuer:
        entry = f"{{issuer: '{issuer.url}', audience: a, kind: person, tenant: default, scopes: [viewer]}}"
        settings.write_text(f"{settings.read_text()}\naccess: {{issuers: [{entry}]}}\n")
        found = [cli("doctor", "--folder", str(project))]
        issuer.keys = []
        found.append(cli("doctor", "--folder", str(project)))
        issuer.status = 404
        found.append(cli("doctor", "--folder", str(project)))

    said = [next(line for line in each.output.splitlines() if "issuer 127.0.0.1" in line) for each in found]
    assert "OK" in said[0]
    assert "3 keys for RS256, ES256, EdDSA" in said[0]
    assert "FAIL" in said[1]
    assert "has no key for RS256" in said[1]
    assert "FAIL" in said[2]
    assert "answered 404" in said[2]
    assert [each.exit_code for each in found] == [0, 1, 1]
