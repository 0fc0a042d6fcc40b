import pytest

from owlclaw_ray.tools.names import canonical_name, state_name_problems, tool_name_problems, wire_name


def test_an_undotted_name_gets_the_namespace_and_a_dotted_one_stays():
    assert canonical_name("write_report", "host_watch") == "host_watch.write_report"
    assert canonical_name("code.read_file", "host_watch") == "code.read_file"


def test_the_wire_name_has_no_dots():
    assert wire_name("mcp.server.tool") == "mcp__server__tool"


@pytest.mark.parametrize("name", ["app.报告", "app.a b", ".a", "app.", "app..a", "1app.a", ""])
def test_names_that_providers_reject_are_problems(name):
    assert "model providers reject" in str(tool_name_problems(name)[0])


def test_a_wire_name_may_have_64_characters_and_no_more():
    assert tool_name_problems("app." + "a" * 59) == []
    assert "65 characters" in str(tool_name_problems("app." + "a" * 60)[0])


@pytest.mark.parametrize(("name", "good"), [("cpu.load:1-a_B", True), ("", False), ("a b", False), ("x" * 129, False)])
def test_state_names_are_of_a_narrow_alphabet(name, good):
    assert (state_name_problems(name) == []) is good
