import pytest

from owlclaw_ray import OwlClaw
from owlclaw_ray.domain.tool import Effect, Permission, ToolClass
from owlclaw_ray.errors import ConfigurationError


@pytest.fixture
def app():
    return OwlClaw("demo")


def nothing():
    """Does nothing."""


def problem_of(register, function=nothing):
    with pytest.raises(ConfigurationError) as caught:
        register(function)
    return str(caught.value)


def test_a_handler_writes_once_and_a_tool_reads_purely_unless_told_otherwise(app):
    """tool-registry: a definition has name, description, input_schema, permission, tags and metadata."""
    app.handler("act")(nothing)
    app.tool("look")(nothing)
    app.tool("set", permission="write", effect="idempotent", timeout=2, tags=["network"])(nothing)
    act, look, put = app.registry.definitions()
    assert (act.name, act.permission, act.effect, act.timeout) == ("demo.act", Permission.WRITE, Effect.ONCE, None)
    assert (look.name, look.permission, look.effect) == ("demo.look", Permission.READONLY, Effect.PURE)
    assert (put.permission, put.effect, put.timeout, put.tags) == (Permission.WRITE, Effect.IDEMPOTENT, 2, {"network"})
    assert {each.tool_class for each in (act, look, put)} == {ToolClass.ALONE}
    assert act.metadata["raw_name"] == "act"


def test_decorators_return_the_function_itself(app):
    """tool-registry: tools are registered explicitly or by decorators."""
    assert app.handler("a")(nothing) is nothing
    assert app.tool("b")(nothing) is nothing
    assert app.state("c")(nothing) is nothing


def test_a_tool_is_found_by_its_canonical_and_its_wire_name(app):
    """tool-registry: a provider-safe name, such as internal__load_skill, is mapped back to the canonical one."""
    app.tool("code.read_file")(nothing)
    found = app.registry.tool("code.read_file")
    assert found is not None
    assert app.registry.tool("code__read_file") is found
    assert app.registry.tool("read_file") is None


def test_definitions_come_by_name_whatever_the_order_of_registration(app):
    for name in ("b", "a", "x.c"):
        app.tool(name)(nothing)
    assert [each.name for each in app.registry.definitions()] == ["demo.a", "demo.b", "x.c"]


def test_names_of_built_in_tools_are_free_because_they_get_the_namespace(app):
    app.handler("remember")(nothing)
    assert app.registry.tool("demo.remember") is not None
    assert app.registry.tool("remember") is None


def test_a_name_cannot_be_registered_twice(app):
    app.handler("act")(nothing)
    assert problem_of(app.tool("demo.act")) == "tool 'demo.act': is registered twice (give one of them another name)"
    assert app.registry.definitions()[0].effect is Effect.ONCE


def test_names_that_providers_cannot_tell_apart_are_refused(app):
    app.tool("a.b__c")(nothing)
    assert "cannot be told from 'a.b__c': both are 'a__b__c'" in problem_of(app.tool("a.b.c"))


def test_a_risk_that_there_is_not_is_refused(app):
    assert "tags: has 'risk:hihg' (use one of risk:critical, " in problem_of(app.tool("x", tags=["risk:hihg"]))


def test_a_text_in_place_of_a_list_of_tags_is_refused(app):
    for register in (app.handler("pay", tags="dangerous"), app.tool("pay", tags="dangerous")):
        assert problem_of(register) == """tool 'demo.pay': tags: is the text 'dangerous' (write tags=["dangerous"])"""
    for register in (app.before_tool(tags="Dangerous"), app.after_tool(tags="Dangerous")):
        assert """tags: is the text 'Dangerous' (write tags=["dangerous"])""" in problem_of(register, lambda *of: None)
    assert app.registry.definitions() == ()


@pytest.mark.parametrize(
    ("tag", "fix"),
    [
        ("Dangerous", ": write 'dangerous'"),
        ("dangerous ", ": write 'dangerous'"),
        ("\tRISK: high", ": write 'risk:high'"),
        ("role: Trader", ": write 'role:Trader'"),
        ("", ", such as network"),
        ("very dangerous", ", such as network"),
        (7, ", such as network"),
    ],
)
def test_a_tag_that_no_permission_would_find_is_refused(app, tag, fix):
    told = f"tags: has {tag!r} (a tag is a word in small letters{fix})"
    assert told in problem_of(app.handler("pay", tags=["network", tag]))
    assert told in problem_of(app.before_tool(tags=iter(["network", tag])), lambda use: None)
    assert told in problem_of(app.after_tool(tags=[tag]), lambda use, result: None)


def test_tags_are_words_and_may_have_a_value(app):
    tags = ["dangerous", "risk:high", "role:Head of Sales", "a-b_2"]
    app.handler("pay", tags=(each for each in tags))(nothing)
    assert app.registry.definitions()[0].tags == set(tags)


def test_every_wrong_option_is_reported_at_once(app):
    problem = problem_of(app.tool("b d", permission="all", effect="twice", timeout=0))
    assert "model providers reject" in problem
    assert "permission: is 'all' (use one of readonly, write)" in problem
    assert "effect: is 'twice' (use one of pure, idempotent, once)" in problem
    assert "timeout: is 0" in problem
    assert app.registry.definitions() == ()


@pytest.mark.parametrize("name", ["", "1a", "a b", "主机", "a.b", "x" * 33])
def test_an_application_needs_a_name_that_can_start_tool_names(name):
    with pytest.raises(ConfigurationError, match="is no application name"):
        OwlClaw(name)
