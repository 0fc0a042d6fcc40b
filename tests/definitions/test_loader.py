import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.definitions.loader import load_definition
from owlclaw_ray.domain.agent import Isolation, Limits, ModelChoice, ToolChoice
from owlclaw_ray.domain.permission import PermissionPolicy, PermissionRules
from owlclaw_ray.errors import DefinitionError
from owlclaw_ray.models.sanitise import sanitise
from owlclaw_ray.runs.prompt import system_prompt
from tests.definitions.writing import IDENTITY, SOUL, write_definition, write_skill
from tests.properties import examples

DEFAULTS = Defaults(("default-model", "default-fallback"), Limits(turns=7))


def problems_of(folder):
    with pytest.raises(DefinitionError) as caught:
        load_definition(folder, DEFAULTS)
    return [str(problem) for problem in caught.value.problems]


def test_a_folder_becomes_a_definition(tmp_path):
    agent = (
        "model: gpt-5\nfallback: [gpt-4]\ntemperature: 0.5\nmax_tokens: 100\nstream: true\nisolation: shared\n"
        "limits: {tool_calls: 3, tool_timeout: 1.5}\npreload_memories: 0\ntimezone: Asia/Shanghai\n"
    )
    folder = write_definition(tmp_path / "watch", agent=agent, skills=("b-skill", "a-skill"))
    found = load_definition(folder, DEFAULTS)
    assert (found.name, found.folder, found.soul) == ("watch", str(folder), SOUL)
    assert (found.capabilities, found.constraints) == ("- look", "- never guess")
    assert found.model == ModelChoice(("gpt-5", "gpt-4"), 0.5, 100, stream=True)
    assert found.limits == Limits(turns=7, tool_calls=3, tool_timeout=1.5)
    assert (found.isolation, found.preload_memories, found.warnings) == (Isolation.SHARED, 0, ())
    assert found.timezone == "Asia/Shanghai"
    assert [skill.name for skill in found.skills] == ["a-skill", "b-skill"]


def test_without_agent_yaml_the_defaults_hold(tmp_path):
    found = load_definition(write_definition(tmp_path / "watch"), DEFAULTS)
    assert found.model == ModelChoice(("default-model", "default-fallback"))
    assert found.limits == Limits(turns=7)
    assert found.timezone == "UTC"


def test_a_model_of_its_own_does_not_take_the_default_fallback(tmp_path):
    found = load_definition(write_definition(tmp_path / "watch", agent="model: mine\n"), DEFAULTS)
    assert found.model.chain == ("mine",)
    found = load_definition(write_definition(tmp_path / "watch", agent="fallback: []\n"), DEFAULTS)
    assert found.model.chain == ("default-model",)


def test_the_rules_of_a_definition_stand_before_those_of_the_settings(tmp_path):
    policy = PermissionPolicy(inherited=PermissionRules(deny=("x.*",)), expires=60.0)
    folder = write_definition(tmp_path / "watch", agent="permissions: {ask: [mail.*], allow: ['tag:mail']}\n")

    found = load_definition(folder, replace(DEFAULTS, permissions=policy))

    assert found.permissions == replace(policy, own=PermissionRules(allow=("tag:mail",), ask=("mail.*",)))
    assert load_definition(write_definition(tmp_path / "other"), DEFAULTS).permissions == PermissionPolicy()
    assert found.version != load_definition(folder, DEFAULTS).version


def test_wrong_rules_are_named_with_their_file(tmp_path):
    folder = write_definition(tmp_path / "watch", agent="permissions:\n  alow: [x]\n  deny: ['role:boss']\n")

    unknown, wrong = sorted(problems_of(folder))

    assert unknown.startswith("watch/agent.yaml:2: permissions.alow: there is no such key")
    assert wrong.startswith("watch/agent.yaml:3: permissions.deny")


def test_chinese_identity_with_byte_order_mark_and_crlf_works(tmp_path):
    identity = "\ufeff# 值守\r\n\r\n## 我的能力\r\n- 看负载\r\n\r\n## 我的约束\r\n- 不猜\r\n"
    found = load_definition(
        write_definition(tmp_path / "zh", soul="\ufeff你看守主机。\r\n", identity=identity), DEFAULTS
    )
    assert (found.soul, found.capabilities, found.constraints) == ("你看守主机。", "- 看负载", "- 不猜")


def test_every_problem_of_a_definition_is_reported_at_once(tmp_path):
    agent = "modle: x\nlimits: {tool_timeout: -1, turn: 3}\ntemperature: 5\nfallback: x\nisolation: alone\n"
    folder = write_definition(tmp_path / "watch", soul=None, identity=" \n\n", agent=agent)
    assert set(problems_of(folder)) == {
        "watch/SOUL.md: does not exist (write there who the agent is: its role and its principles)",
        (
            "watch/IDENTITY.md: is empty (write there a section '## My Capabilities' (or '## 我的能力') and, if it has limits, "
            "'## My Constraints')"
        ),
        "watch/agent.yaml:1: modle: there is no such key (did you mean model?)",
        "watch/agent.yaml:2: limits.tool_timeout: is -1 (it must be greater than 0)",
        "watch/agent.yaml:2: limits.turn: there is no such key (did you mean turns?)",
        "watch/agent.yaml:3: temperature: is 5 (it must be less than or equal to 2)",
        "watch/agent.yaml:4: fallback: is 'x' (it must be a list)",
        "watch/agent.yaml:5: isolation: is 'alone' (it must be 'dedicated' or 'shared')",
    }


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"identity": "# Me\n"}, "watch/IDENTITY.md: has no section '## My Capabilities' (or '## 我的能力')"),
        ({"identity": "## My Capabilities\n## x\n"}, "watch/IDENTITY.md: has an empty capabilities section"),
        ({"soul": "x" * 10_241}, "watch/SOUL.md: is 10241 bytes long (10240 are allowed"),
        ({"soul": b"one\n\xff"}, "watch/SOUL.md:2: is not UTF-8"),
        ({"soul": "\ufeff\x00\u200b"}, "watch/SOUL.md: is empty"),
        ({"agent": b"\xff"}, "watch/agent.yaml: is not UTF-8"),
        ({"agent": "model: [\n"}, "watch/agent.yaml:2: is not valid YAML"),
        ({"agent": "timezone: Mars\n"}, "watch/agent.yaml:1: timezone: is 'Mars', which is no IANA time zone"),
        ({"agent": "limits: 3\n"}, "watch/agent.yaml:1: limits: is 3 (it must be a mapping with: active_schedules"),
    ],
)
def test_what_is_wrong_with_a_file_is_named_with_the_file(tmp_path, files, problem):
    (found,) = problems_of(write_definition(tmp_path / "watch", **files))
    assert found.startswith(problem)


def test_exactly_10_kb_are_allowed(tmp_path):
    assert len(load_definition(write_definition(tmp_path / "watch", soul="x" * 10_240), DEFAULTS).soul) == 10_240


def test_a_file_that_is_a_folder_cannot_be_read(tmp_path):
    folder = write_definition(tmp_path / "watch", soul=None)
    (folder / "SOUL.md").mkdir()
    assert problems_of(folder)[0].startswith("watch/SOUL.md: cannot be read")


def test_a_broken_skill_is_a_warning_and_the_rest_works(tmp_path):
    folder = write_definition(tmp_path / "watch", skills=("good",))
    write_skill(folder, "bad", "---\nname: bad\ndescription: a: b\n---\nx")
    found = load_definition(folder, DEFAULTS)
    assert [skill.name for skill in found.skills] == ["good"]
    (warning,) = found.warnings
    assert warning.startswith(
        "watch/capabilities/bad/SKILL.md:3: is not valid YAML: mapping values are not allowed here"
    )
    assert warning.endswith("the skill is skipped")


def test_the_version_is_of_everything_that_the_definition_is_made_of(tmp_path):
    folder = write_definition(tmp_path / "watch", skills=("one",))

    def version(defaults=DEFAULTS):
        return load_definition(folder, defaults).version

    seen = [version()]
    assert version() == seen[0]
    (folder / "SOUL.md").write_text("Other.")
    seen.append(version())
    (folder / "agent.yaml").write_text("stream: true")
    seen.append(version())
    write_skill(folder, "one", "---\nname: one\ndescription: y\n---\nother")
    seen.extend((version(), version(Defaults())))
    assert len(set(seen)) == len(seen)


_LINES = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


def _is_text(text):
    return bool(sanitise(text).strip())


@pytest.mark.property
@examples
@given(
    soul=_LINES.filter(_is_text),
    capabilities=st.text("能力 abc-*`#1\n", max_size=100).map(lambda text: f"- can {text}"),
)
def test_property_01_what_the_identity_files_say_is_in_the_system_prompt(tmp_path_factory, soul, capabilities):
    folder = tmp_path_factory.mktemp("agents") / "watch"
    found = load_definition(write_definition(folder, soul=soul, identity=f"## 我的能力\n{capabilities}\n"), DEFAULTS)
    prompt = system_prompt(found, [])
    assert sanitise(soul).strip() in prompt
    assert found.capabilities in prompt
    assert capabilities.split("\n", 1)[0].strip() in found.capabilities


@pytest.mark.property
@examples
@given(
    missing=st.sets(st.sampled_from(["SOUL.md", "IDENTITY.md"]), min_size=1),
    blank=st.one_of(st.none(), st.text(" \n\t\r\ufeff\u200b", max_size=5)),
)
def test_property_02_missing_or_empty_identity_files_fail_and_are_named(tmp_path_factory, missing, blank):
    texts = {"SOUL.md": SOUL, "IDENTITY.md": IDENTITY} | dict.fromkeys(missing, blank)
    folder = tmp_path_factory.mktemp("agents") / "watch"
    problems = problems_of(write_definition(folder, soul=texts["SOUL.md"], identity=texts["IDENTITY.md"]))
    assert {problem.split(":")[0] for problem in problems} == {f"watch/{name}" for name in missing}


def test_a_definition_chooses_its_tools(tmp_path):
    agent = "tools: {allow: ['shop.*', code.read_file], deny: [schedule_*, shop.delete]}\n"
    found = load_definition(write_definition(tmp_path / "watch", agent=agent), DEFAULTS).tools
    names = ("shop.order", "shop.delete", "code.read_file", "code.write_file", "recall", "schedule_once")
    assert [name for name in names if not found.refusal(name)] == ["shop.order", "code.read_file", "recall"]
    assert found.refusal("shop.delete") == "the definition denies shop.delete"
    assert found.refusal("code.write_file") == "the definition allows only shop.*, code.read_file"


def test_a_definition_that_says_nothing_of_tools_has_them_all(tmp_path):
    assert load_definition(write_definition(tmp_path / "watch"), DEFAULTS).tools == ToolChoice()
    assert not ToolChoice().refusal("any.tool")
    assert ToolChoice(allow=()).refusal("any.tool") == "the definition allows only the built-in tools"


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ("{alow: []}", "watch/agent.yaml:1: tools.alow: there is no such key (did you mean allow?)"),
        (
            "[shop.order]",
            "watch/agent.yaml:1: tools: is ['shop.order'] (it must be a mapping with: allow, deny, limits, states)",
        ),
        ("{allow: shop.order}", "watch/agent.yaml:1: tools.allow: is 'shop.order' (it must be a list)"),
        ("{deny: ['shop order']}", "watch/agent.yaml:1: tools.deny[0]: is 'shop order'"),
        ("{deny: [1]}", "watch/agent.yaml:1: tools.deny[0]: is 1"),
    ],
)
def test_mistakes_in_the_choice_of_tools_are_told_with_their_place(tmp_path, tools, told):
    (problem,) = problems_of(write_definition(tmp_path / "watch", agent=f"tools: {tools}\n"))
    assert problem.startswith(told)
