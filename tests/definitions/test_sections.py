import pytest

from owlclaw_ray.definitions.loader import CAPABILITIES, CONSTRAINTS, section


@pytest.mark.parametrize(
    "title", ["## My Capabilities", "## 我的能力", "##   my capabilities  ##", "  ## MY CAPABILITIES"]
)
def test_a_section_reaches_to_the_next_heading_of_its_level(title):
    text = f"# Me\nintro\n{title}\n\n- see\n### In detail\n- more\n## Other\n- not this\n"
    assert section(text, CAPABILITIES) == "- see\n### In detail\n- more"


def test_headings_inside_code_are_text():
    text = "## Constraints\n```md\n## Other\n```\nend\n# Top\nno"
    assert section(text, CONSTRAINTS) == "```md\n## Other\n```\nend"


def test_several_sections_of_a_title_are_joined():
    assert section("## 约束\na\n## x\nb\n## 我的约束\nc", CONSTRAINTS) == "a\n\nc"


def test_a_missing_section_is_none_and_an_empty_one_is_empty():
    assert section("# My Capabilities\nx", CAPABILITIES) is None
    assert section("##My Capabilities\nx", CAPABILITIES) is None
    assert section("## My Capabilities\n\n## y\n", CAPABILITIES) == ""
