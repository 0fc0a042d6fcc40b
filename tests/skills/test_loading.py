import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.skills.loading import load_skill, load_skills
from tests.identity.writing import write_skill

FULL = """\
---
name: watch-load
description: How to read the load.
license: MIT
compatibility: needs psutil
metadata:
  author: somebody
  version: "1.0"
allowed-tools: query_state host_watch.write_report
owlclaw:
  task_type: monitoring
  constraints: {trading_hours_only: false}
  focus: [follow-up, 复查]
  trigger: schedule_once
  risk_level: high
  requires_confirmation: true
  prerequisites: [psutil]
  env: [HOME]
---

# Load

看一分钟的负载。
"""


def problems_of(tmp_path, text, name="watch-load"):
    path = write_skill(tmp_path, name, text)
    with pytest.raises(ConfigurationError) as caught:
        load_skill(path, "SKILL.md")
    return [str(problem) for problem in caught.value.problems]


def test_all_keys_of_the_specification_and_the_extension_are_read(tmp_path):
    path = write_skill(tmp_path, "watch-load", FULL)
    loaded = load_skill(path, "x")
    assert loaded.warnings == ()
    assert loaded.skill == Skill(
        name="watch-load",
        description="How to read the load.",
        path=str(path),
        tokens=10,
        focus=("follow-up", "复查"),
        triggers=("schedule_once",),
        task_type="monitoring",
        risk_level="high",
        requires_confirmation=True,
    )


def test_name_and_description_are_enough(tmp_path):
    path = write_skill(tmp_path, "a", "\ufeff---\r\nname: a\r\ndescription: 描述\r\n---\r\ntext")
    assert load_skill(path, "x").skill.description == "描述"


def test_a_key_of_another_product_is_a_warning_with_its_line(tmp_path):
    path = write_skill(tmp_path, "a", "---\nname: a\ndescription: b\nmodel: x\n---\ntext")
    assert load_skill(path, "a/SKILL.md").warnings == (
        "a/SKILL.md:4: model: is no key of the Agent Skills specification; it is ignored",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# no frontmatter", "SKILL.md:1: has no frontmatter (start the file with '---'"),
        ("---\nname: watch-load\n", "SKILL.md:1: has no frontmatter"),
        ("---\nname: watch-load\n---\nx", "SKILL.md:2: description: is missing"),
        ("---\n- a\n---\nx", "SKILL.md:2: holds a list"),
        ("---\nname: watch-load\ndescription: a: b\n---\nx", "SKILL.md:3: is not valid YAML: mapping values"),
        (
            "---\nname: other\ndescription: b\n---\nx",
            "SKILL.md:2: name: is 'other', not its folder's name (rename the folder",
        ),
        ("---\nname: Watch Load\ndescription: b\n---\nx", "SKILL.md:2: name: is 'Watch Load'"),
        ("---\nname: watch-load\ndescription: b\n---\n\n", "SKILL.md: has nothing after its frontmatter"),
        (b"---\nname: watch-load\n\xff", "SKILL.md:3: is not UTF-8"),
        (
            "---\nname: watch-load\ndescription: b\n---\n" + "x" * 51_200,
            "SKILL.md: is 51240 bytes long; a skill may have 51200",
        ),
        (
            "---\nname: watch-load\ndescription: b\nowlclaw:\n  focsu: x\n---\nx",
            "SKILL.md:5: owlclaw.focsu: there is no such key (did you mean focus?)",
        ),
        (
            "---\nname: watch-load\ndescription: b\nowlclaw:\n  trigger: [api, sometimes]\n---\nx",
            "SKILL.md:5: owlclaw.trigger[1]: is 'sometimes' (it must be 'api', 'webhook'",
        ),
        (
            "---\nname: watch-load\ndescription: b\nowlclaw: {risk_level: extreme}\n---\nx",
            "SKILL.md:4: owlclaw.risk_level: is 'extreme' (it must be 'low', 'medium', 'high' or 'critical')",
        ),
    ],
)
def test_broken_skills_are_reported_with_file_and_line(tmp_path, text, problem):
    assert problems_of(tmp_path, text)[0].startswith(problem)


def test_every_problem_of_a_frontmatter_is_reported(tmp_path):
    assert len(problems_of(tmp_path, "---\ndescription: ''\nowlclaw: {x: 1, y: 2}\n---\nx")) == 4


def test_a_folder_without_skill_file_is_a_warning_and_no_folder_is_none(tmp_path):
    (tmp_path / "capabilities" / "empty").mkdir(parents=True)
    (tmp_path / "capabilities" / ".git").mkdir()
    skills, warnings = load_skills(tmp_path / "capabilities", "caps")
    assert skills == ()
    assert warnings[0].startswith("caps/empty/SKILL.md: does not exist")
    assert len(warnings) == 1
    assert load_skills(tmp_path / "nowhere", "caps") == ((), ())


_WORDS = st.text(min_size=1, max_size=30).filter(lambda text: text.strip() and text.isprintable())
_GOOD = st.fixed_dictionaries(
    {"description": _WORDS},
    optional={
        "license": _WORDS,
        "metadata": st.dictionaries(_WORDS, _WORDS, max_size=2),
        "owlclaw": st.fixed_dictionaries(
            {},
            optional={
                "focus": st.one_of(_WORDS, st.lists(_WORDS, max_size=2)),
                "trigger": st.sampled_from(["api", "webhook", ["heartbeat", "event"]]),
                "risk_level": st.sampled_from(["low", "critical"]),
                "requires_confirmation": st.booleans(),
                "constraints": st.dictionaries(_WORDS, st.booleans(), max_size=2),
            },
        ),
    },
)
_BAD = st.one_of(
    st.text(max_size=60),
    st.binary(max_size=60),
    st.dictionaries(
        st.sampled_from(["name", "owlclaw", "metadata"]), st.one_of(st.integers(), st.lists(st.integers())), min_size=1
    )
    .map(lambda data: {"description": "x"} | data)
    .map(json.dumps)
    .map(lambda text: f"---\n{text}\n---\nbody"),
)


@pytest.mark.property
@settings(max_examples=120, deadline=None)
@given(good=_GOOD, bad=_BAD)
def test_property_09_valid_skills_load_and_invalid_ones_are_warnings(tmp_path_factory, good, bad):
    folder = tmp_path_factory.mktemp("definition")
    frontmatter = yaml.safe_dump({"name": "good", **good}, allow_unicode=True)
    write_skill(folder, "good", f"---\n{frontmatter}---\nbody\n")
    write_skill(folder, "bad", bad)
    skills, warnings = load_skills(folder / "capabilities", "caps")
    assert [skill.name for skill in skills] == ["good"]
    assert warnings
    assert all(
        warning.startswith("caps/bad/SKILL.md") and warning.endswith("the skill is skipped") for warning in warnings
    )
