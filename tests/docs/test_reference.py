"""The tables and paths of the documents say what the code says."""

import ast
import re
from importlib.metadata import metadata

import pytest
import typer
from pydantic import BaseModel

from benchmarks.chaos.checker import Promise
from benchmarks.chaos.strikes import Role
from benchmarks.measuring import MOST_UNFINISHED
from benchmarks.peers.contestants import WAYS
from benchmarks.suites import EXTRAS, SUITES
from owlclaw_ray.configuration.governance import BreakerFile, BudgetFile, GovernanceFile, HoursFile, ToolLimitFile
from owlclaw_ray.configuration.mcp import McpServerFile, McpToolFile
from owlclaw_ray.configuration.models import EndpointFile, ProviderLimitsFile
from owlclaw_ray.configuration.webhooks import SignatureFile, SourceFile
from owlclaw_ray.definitions.agent_file import AgentFile, HeartbeatFile
from owlclaw_ray.definitions.loader import MAX_BYTES
from owlclaw_ray.definitions.skills.frontmatter import Constraints, Extension, Prerequisites
from owlclaw_ray.definitions.skills.loader import MAX_SKILL_BYTES
from owlclaw_ray.domain.callback import CallbackStatus
from owlclaw_ray.domain.heartbeat import EventSourceKind, Heartbeat, HeartbeatSkipReason
from owlclaw_ray.domain.hours import DAYS
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import BreakKind, LedgerKind
from owlclaw_ray.domain.memory import MemoryLimits
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import OverlapPolicy, TickOutcome
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.domain.webhook import DeliveryStatus
from owlclaw_ray.ledger.redaction import MIN_SECRET_CHARACTERS
from owlclaw_ray.memory.file import MERGED_IDS, MERGED_TEXTS
from owlclaw_ray.memory.lance.table import MAX_FRAGMENTS, MAX_UNINDEXED, Session
from owlclaw_ray.runs.memory_preload import MAX_QUERY_CHARACTERS, MAX_VALUES
from owlclaw_ray.schedules.cron import MACROS
from owlclaw_ray.settings import ShutdownSettings
from owlclaw_ray.tools.agents.toolset import DeclaredAgentTools
from owlclaw_ray.tools.builtin import BuiltInTools
from owlclaw_ray.tools.code.options import CodeOptions
from owlclaw_ray.tools.code.toolset import CodeTools
from owlclaw_ray.tools.declarative.tool import ToolFile
from owlclaw_ray.tools.large_output import INLINE_BYTES
from owlclaw_ray.wire import ScheduleRequest
from serve.cli.entry import build_cli
from serve.launch import LOGS, RAY_LOG
from serve.pid_file import NAME as PID_FILE
from serve.problems import _RULES, unexpected
from tests.docs.settings_rows import setting_rows, shown
from tests.docs.snippets import DOCUMENTS, ROOT, code, table
from tests.docs.tool_registry import LEFT_OUT, sentences, written

_PATH = re.compile(r"`((?:actors|benchmarks|docs|examples|owlclaw_ray|scripts|serve|tests)/[\w./-]*)`")
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_MADE = "benchmarks/results/"
_LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def prose(document):
    return " ".join((ROOT / document).read_text(encoding="utf-8").split())


def test_every_setting_is_documented_with_its_variable_and_its_default():
    rows = [(code(key), code(variable), default) for key, variable, default, _ in table("docs/configuration.md", "key")]
    assert rows == setting_rows()
    assert all(meaning for *_, meaning in table("docs/configuration.md", "key"))


def test_every_key_of_an_agent_file_is_documented_with_its_default():
    rows = table("docs/agents.md", "key")
    documented = {code(key): default for key, default, _ in rows}
    assert len(documented) == len(rows)
    assert documented.keys() == AgentFile.model_fields.keys()
    for name, info in AgentFile.model_fields.items():
        default = info.get_default(call_default_factory=True)
        inherits = default is None or isinstance(default, BaseModel)
        assert inherits or documented[name] == shown(default)


@pytest.mark.parametrize(
    ("section", "model"),
    [
        ("governance", GovernanceFile),
        ("hours", HoursFile),
        ("breaker", BreakerFile),
        ("budgets", BudgetFile),
        ("tools.limits", ToolLimitFile),
    ],
)
def test_every_key_of_the_rules_is_documented_with_its_default(section, model):
    documented = {code(key): default for key, default, _ in table("docs/governance.md", f"key of `{section}`")}
    assert list(documented) == [info.alias or name for name, info in model.model_fields.items()]
    for name, info in model.model_fields.items():
        default = info.get_default(call_default_factory=True)
        if not info.is_required() and not isinstance(default, BaseModel | dict) and default != DAYS:
            assert documented[info.alias or name] == shown(default)


def test_every_key_of_a_provider_is_documented_with_its_default():
    documented = {code(key): default for key, default, _ in table("docs/models.md", "key of `models.providers`")}
    fields = EndpointFile.model_fields.items()
    assert documented == {name: shown(info.get_default(call_default_factory=True)) for name, info in fields}


def test_every_key_source_and_reason_of_heartbeats_is_documented():
    documented = {code(key): default for key, default, _ in table("docs/heartbeats.md", "key of `heartbeat`")}
    assert list(documented) == list(HeartbeatFile.model_fields)
    plain = ("every_seconds", "focus", "pause_after_idle_days")
    assert [documented[name] for name in plain] == [shown(HeartbeatFile.model_fields[name].default) for name in plain]
    assert re.findall(r"`(\w+)`", documented["sources"]) == [each.value for each in Heartbeat().sources]
    assert [code(name) for name, _ in table("docs/heartbeats.md", "event source")] == [
        each.value for each in EventSourceKind
    ]
    assert [code(name) for name, _ in table("docs/heartbeats.md", "why skipped")] == [
        each.value for each in HeartbeatSkipReason
    ]


def test_every_field_outcome_and_policy_of_schedules_is_documented():
    fields = [name for cell, _ in table("docs/schedules.md", "schedule field") for name in re.findall(r"`(\w+)`", cell)]
    assert set(fields) == set(ScheduleRequest.__annotations__)
    assert [code(name) for name, _ in table("docs/schedules.md", "outcome")] == [each.value for each in TickOutcome]
    assert [code(name) for name, _ in table("docs/schedules.md", "overlap")] == [each.value for each in OverlapPolicy]
    assert all(f"`{name}`" in prose("docs/schedules.md") for name in MACROS)


@pytest.mark.parametrize(("section", "model"), [("mcp.servers", McpServerFile), ("mcp.servers.tools", McpToolFile)])
def test_every_key_of_an_mcp_server_is_documented_with_its_default(section, model):
    documented = [(code(key), default) for key, default, _ in table("docs/mcp.md", f"key of `{section}`")]
    fields = model.model_fields.items()
    assert documented == [(name, shown(info.get_default(call_default_factory=True))) for name, info in fields]


@pytest.mark.parametrize(("section", "model"), [("webhooks.sources", SourceFile), ("signature", SignatureFile)])
def test_every_key_of_a_webhook_source_is_documented_with_its_default(section, model):
    documented = {code(key): default for key, default, _ in table("docs/webhooks.md", f"key of `{section}`")}
    assert list(documented) == list(model.model_fields)
    for name, info in model.model_fields.items():
        default = info.get_default(call_default_factory=True)
        if not info.is_required() and not isinstance(default, BaseModel):
            assert documented[name] == shown(default)


@pytest.mark.parametrize(("title", "statuses"), [("delivery", DeliveryStatus), ("callback", CallbackStatus)])
def test_every_status_of_webhooks_is_documented(title, statuses):
    documented = [code(status) for status, _ in table("docs/webhooks.md", title)]
    assert documented == [status.value for status in statuses]


def test_every_key_of_the_limits_of_models_is_documented_with_its_default():
    documented = {code(key): default for key, default, _ in table("docs/tools.md", "key of `models.limits`")}
    assert list(documented) == list(ProviderLimitsFile.model_fields)
    for name, info in ProviderLimitsFile.model_fields.items():
        assert info.is_required() or documented[name] == shown(info.get_default())


def test_every_key_of_a_skill_is_documented():
    rows = table("docs/agents.md", "key of `owlclaw`")
    keys = [key for cell, _ in rows for key in re.findall(r"`(\w+)`", cell)]
    assert set(keys) == set(Extension.model_fields)
    triggers = next(meaning for cell, meaning in rows if cell == "`trigger`")
    assert re.findall(r"`(\w+)`", triggers) == [kind.value for kind in TriggerKind]


@pytest.mark.parametrize(("title", "model"), [("prerequisite", Prerequisites), ("constraint", Constraints)])
def test_every_prerequisite_and_constraint_of_a_skill_is_documented(title, model):
    documented = [code(cell) for cell, _ in table("docs/agents.md", title) if cell.startswith("`")]
    assert documented == list(model.model_fields)


def test_every_subcommand_is_documented_with_its_command():
    commands = typer.main.get_command(build_cli()).commands
    for command, meaning in table("docs/operations.md", "command"):
        own = getattr(commands[code(command).removeprefix("owlclaw ")], "commands", {})
        assert set(own) <= set(re.findall(r"`([\w-]+)`", meaning))


def test_every_route_is_documented(api):
    documented = {(method, code(path)) for method, path, _ in table("docs/http-api.md", "method")}
    paths = api.openapi()["paths"]
    assert documented == {(method.upper(), path) for path, methods in paths.items() for method in methods}


def test_every_problem_is_documented_with_its_status():
    documented = {(int(status), code(kind)) for status, kind, _ in table("docs/http-api.md", "status", "kind")}
    elsewhere = {(404, "unknown-path"), (405, "wrong-method"), (unexpected().status, unexpected().kind)}
    assert documented == {(rule.status, rule.kind) for rule in _RULES.values()} | elsewhere


def test_every_status_event_and_ledger_kind_is_documented():
    statuses = [code(status) for status, _ in table("docs/http-api.md", "status", "")]
    assert statuses == [status.value for status in RunStatus]
    events = [code(kind) for kind, _ in table("docs/http-api.md", "event")]
    assert events == [kind.value for kind in EntryKind]
    (kinds,) = re.findall(r"Kinds of ledger records are (.*?)\.", prose("docs/http-api.md"))
    assert re.findall(r"`(\w+)`", kinds) == [kind.value for kind in LedgerKind]
    assert [code(kind) for kind, *_ in table("docs/ledger.md", "kind", "is about")] == [
        kind.value for kind in LedgerKind
    ]
    assert [code(kind) for kind, _ in table("docs/ledger.md", "`kind`")] == [kind.value for kind in BreakKind]


def test_every_command_is_documented():
    documented = [code(command).removeprefix("owlclaw ") for command, _ in table("docs/operations.md", "command")]
    assert sorted(documented) == sorted(typer.main.get_command(build_cli()).commands)


def test_every_suite_and_question_of_the_benchmarks_is_documented():
    documented = {code(name): questions for name, questions, _ in table("docs/benchmarks.md", "suite")}
    assert documented == {name: ", ".join(suite.questions) for name, suite in SUITES.items()}
    questions = [code(name) for name, *_ in table("docs/benchmarks.md", "question") if name]
    assert sorted(questions) == sorted(EXTRAS)
    assert f"Never more than {MOST_UNFINISHED} accepted" in prose("docs/benchmarks.md")


def test_every_way_of_using_a_peer_is_documented():
    assert [name for name, _ in table("docs/benchmarks.md", "peer")] == [way.name for way in WAYS]


def test_every_promise_and_role_of_a_chaos_session_is_documented():
    assert [code(promise) for promise, _ in table("docs/chaos.md", "promise")] == [each.value for each in Promise]
    roles = [role for cell, _ in table("docs/chaos.md", "role") for role in re.findall(r"`(\w+)`", cell)]
    assert sorted(roles) == sorted(role.value for role in Role)


def test_every_built_in_tool_is_documented():
    documented = [code(tool) for tool, _ in table("README.md", "tool")]
    assert documented == [each.name for each in BuiltInTools.definitions()]


def test_every_agent_tool_is_documented_with_its_arguments():
    rows = {code(name): cell for name, cell, _ in table("docs/agent-tools.md", "agent tool")}
    definitions = {each.name: each.input_schema["properties"] for each in DeclaredAgentTools.definitions()}
    assert rows.keys() == definitions.keys()
    for name, properties in definitions.items():
        assert set(properties) <= set(re.findall(r"`(\w+)`", rows[name]))


def test_the_table_of_the_tool_registry_is_made_of_the_list_of_its_sentences():
    assert len(sentences()) == len(set(sentences()))
    assert (ROOT / "docs/tools.md").read_text(encoding="utf-8") == written(), "run python -m tests.docs.tool_registry"


def test_every_sentence_of_the_tool_registry_names_a_test_that_cites_it_or_is_left_out_with_a_reason():
    left_out = prose("docs/tools.md").partition("Left out here, and why:")[2]
    for sentence, test in sentences():
        if test == LEFT_OUT:
            assert f"- {sentence[0].upper()}{sentence[1:]}: " in left_out
            continue
        path, _, name = test.partition("::")
        assert f"tool-registry: {sentence}" in _citations(ROOT / path).get(name, ""), sentence


def test_every_sentence_of_the_tool_registry_that_a_test_cites_is_in_the_list():
    listed = {f"tool-registry: {sentence}" for sentence, _ in sentences()}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for name, text in _citations(path).items():
            found = sum(text.count(f"{each}.") for each in listed)
            assert found == text.count("tool-registry: "), f"{path}::{name}: {text}"


def _citations(path):
    """Return what the tests of a file say in their docstrings, by their names."""
    functions = [each for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(each, _FUNCTION)]
    said = {each.name: " ".join((ast.get_docstring(each) or "").split()) for each in functions}
    return {name: text for name, text in said.items() if name.startswith("test_") and "tool-registry: " in text}


def test_every_field_of_a_declarative_tool_and_every_code_tool_is_documented():
    fields = [name for cell, *_ in table("docs/tools.md", "field") for name in re.findall(r"`(\w+)`", cell)]
    assert fields == list(ToolFile.model_fields)
    documented = {
        code(tool): re.findall(r"`(\w+)`", arguments) for tool, arguments, _ in table("docs/tools.md", "tool")
    }
    tools = CodeTools(CodeOptions("/"), {}).definitions()
    assert documented == {each.name: list(each.input_schema["properties"]) for each in tools}


def test_limits_are_those_of_the_code():
    agents, operations = prose("docs/agents.md"), prose("docs/operations.md")
    assert agents.count(f"At most {MAX_BYTES // 1024} KiB.") == 2
    assert f"At most {MAX_SKILL_BYTES // 1024} KiB." in agents
    assert f"Over {INLINE_BYTES // 1024} KiB they are stored" in agents
    assert f"get {ShutdownSettings().grace_seconds:.0f} seconds to end" in operations
    assert MIN_SECRET_CHARACTERS == 6
    assert "from six characters on" in prose("docs/ledger.md")
    assert all(f"`{name}`" in operations for name in (LOGS, PID_FILE, RAY_LOG))


def test_limits_of_memory_are_those_of_the_code():
    text, limits = prose("docs/memory.md"), MemoryLimits()
    assert f"keeps {limits.memories:,} memories and {limits.size // 1024**2} MiB active" in text
    assert f"older than {limits.stale_after.days} days" in text
    assert f"the last {MERGED_IDS} duplicates" in text
    assert f"in another form, up to {MERGED_TEXTS}," in text
    assert f"compacted at {MAX_FRAGMENTS} fragments or {MAX_UNINDEXED} memories" in text
    assert f"emptied after {Session.WRITES} writes" in text
    assert MERGED_TEXTS + 1 == 11
    assert "the eleventh other form begins another entry" in text
    assert f"words for people, {MAX_QUERY_CHARACTERS:,} characters of them" in text
    assert f"the first {MAX_VALUES} values" in text


def test_extras_that_are_documented_exist():
    assert "local-embeddings" in metadata("owlclaw-ray").get_all("Provides-Extra")
    assert "`local-embeddings`" in prose("README.md")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(document):
    text = document.read_text(encoding="utf-8")
    links = [target for target in _LINK.findall(text) if not target.startswith("https://")]
    missing = [target for target in links if not (document.parent / target).exists()]
    missing += [path for path in _PATH.findall(text) if not path.startswith(_MADE) and not (ROOT / path).exists()]
    assert not missing


def test_every_page_is_in_the_index_of_pages_and_every_decision_with_its_title_in_the_index_of_decisions():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages <= {*_LINK.findall(index)}
    decisions = [path for path in sorted((ROOT / "docs" / "adr").glob("*.md")) if path.name != "README.md"]
    titles = [path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for path in decisions]
    listed = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    assert [f"- [{title}]({path.name})" for title, path in zip(titles, decisions, strict=True)] == sorted(
        re.findall(r"^- \[.*", listed, re.MULTILINE), key=lambda line: int(line[3:].partition(".")[0])
    )
    assert [int(title.partition(".")[0]) for title in titles] == [int(path.name[:4]) for path in decisions]
