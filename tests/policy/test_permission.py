"""What a policy says of a tool's calls."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.permission import PermissionPolicy, PermissionRules, Verdict
from owlclaw_ray.domain.tool import Effect, Permission, ToolDefinition, ToolOrigin
from owlclaw_ray.policy.permission import SessionGrants, judge
from owlclaw_ray.tools.builtin import BuiltInTools


def tool(name="mail.send", permission="write", *tags, origin="external"):
    definition = ToolDefinition(name, "", {}, Permission(permission), Effect.ONCE, tags=frozenset(tags))
    return ToolDefinition(**{**{f: getattr(definition, f) for f in definition.__slots__}, "origin": ToolOrigin(origin)})


def verdict(tool, own=None, inherited=None):
    return judge(PermissionPolicy(PermissionRules(**(own or {})), PermissionRules(**(inherited or {}))), tool)[0]


@pytest.mark.parametrize(
    ("permission", "tags", "origin", "expected"),
    [
        ("readonly", (), "external", Verdict.ALLOW),
        ("write", (), "external", Verdict.ASK),
        ("readonly", ("network",), "external", Verdict.ASK),
        ("readonly", ("sensitive",), "external", Verdict.ASK),
        ("readonly", ("dangerous",), "external", Verdict.ASK),
        ("write", (), "application", Verdict.ALLOW),
        ("write", ("network", "filesystem"), "application", Verdict.ALLOW),
        ("write", ("dangerous",), "application", Verdict.ASK),
        ("readonly", ("dangerous",), "application", Verdict.ASK),
        ("readonly", ("network",), "built_in", Verdict.ALLOW),
    ],
)
def test_by_default_a_tool_is_judged_by_where_it_comes_from_and_what_it_does(permission, tags, origin, expected):
    """tool-registry: readonly is allowed; writes, dangerous and network tools and sensitive reads ask."""
    assert verdict(tool("x.y", permission, *tags, origin=origin)) is expected


@pytest.mark.parametrize("origin", [each.value for each in ToolOrigin if each is not ToolOrigin.BUILT_IN])
@pytest.mark.parametrize("permission", ["readonly", "write"])
def test_a_dangerous_tool_asks_wherever_it_comes_from_and_no_rule_by_another_tag_spares_the_question(
    origin, permission
):
    """tool-registry: dangerous tools must be confirmed explicitly."""
    dangerous = tool("x.y", permission, "dangerous", "network", origin=origin)

    assert verdict(dangerous) is Verdict.ASK
    assert verdict(dangerous, {"ask": ("tag:dangerous",), "allow": ("tag:network",)}) is Verdict.ASK
    for wide in ("*", "x.*", "tag:network", f"permission:{permission}"):
        assert verdict(dangerous, {"allow": (wide,)}) is Verdict.ASK
        assert verdict(dangerous, {}, {"allow": (wide,)}) is Verdict.ASK
    for certain in ("x.y", "tag:dangerous"):
        assert verdict(dangerous, {"allow": (certain,)}) is Verdict.ALLOW
        assert verdict(dangerous, {"allow": ("*",)}, {"allow": (certain,)}) is Verdict.ALLOW
        assert verdict(dangerous, {"ask": ("*",)}, {"allow": (certain,)}) is Verdict.ASK


def test_the_built_in_tools_never_ask_by_default():
    assert {verdict(each) for each in BuiltInTools.definitions()} == {Verdict.ALLOW}


def test_a_tool_of_unknown_origin_counts_as_external():
    assert ToolDefinition("x.y", "", {}, Permission.WRITE, Effect.ONCE).origin is ToolOrigin.EXTERNAL


@pytest.mark.parametrize("selector", ["mail.send", "mail.*", "*", "tag:network", "permission:write"])
def test_rules_choose_tools_by_name_pattern_tag_and_permission(selector):
    """tool-registry: permissions match by canonical name pattern and tags."""
    chosen = tool("mail.send", "write", "network")
    other = tool("code.read", "readonly")

    assert verdict(chosen, {"allow": (selector,)}) is Verdict.ALLOW
    assert verdict(chosen, {"deny": (selector,)}) is Verdict.DENY
    assert verdict(other, {"ask": (selector,)}) is (Verdict.ASK if selector == "*" else Verdict.ALLOW)


def test_the_most_specific_rule_of_a_file_decides_and_of_equals_the_stricter():
    chosen = tool("mail.send", "write", "network")

    assert verdict(chosen, {"allow": ("mail.send",), "ask": ("mail.*", "tag:network")}) is Verdict.ALLOW
    assert verdict(chosen, {"allow": ("mail.*",), "ask": ("*",)}) is Verdict.ALLOW
    assert verdict(chosen, {"allow": ("*",), "ask": ("mail.*",)}) is Verdict.ASK
    assert verdict(chosen, {"allow": ("tag:network",), "ask": ("permission:write",)}) is Verdict.ALLOW
    assert verdict(chosen, {"allow": ("mail.send",), "ask": ("mail.send",)}) is Verdict.ASK


def test_that_a_tool_is_dangerous_goes_before_patterns_and_behind_its_name():
    wipe = tool("disk.wipe", "write", "dangerous")
    ask = ("tag:dangerous",)

    for pattern in ("*", "disk.*", "disk.wip?", "permission:write", "tag:write"):
        assert verdict(wipe, {"allow": (pattern,), "ask": ask}) is Verdict.ASK
        assert verdict(wipe, {"allow": (pattern,)}, {"ask": ask}) is Verdict.ASK
        assert verdict(wipe, {}, {"allow": (pattern,), "ask": ask}) is Verdict.ASK
    assert verdict(wipe, {"allow": ("disk.wipe",), "ask": ask}) is Verdict.ALLOW
    assert verdict(wipe, {"allow": ("disk.wipe",)}, {"ask": ask}) is Verdict.ALLOW
    assert verdict(wipe, {"allow": ("tag:dangerous",)}, {"ask": ask}) is Verdict.ALLOW
    assert verdict(wipe, {"allow": ("tag:dangerous",), "ask": ask}) is Verdict.ASK
    assert verdict(tool("disk.list"), {"allow": ("*",), "ask": ask}) is Verdict.ALLOW


def test_the_agents_rules_go_before_the_settings_but_no_denial_is_undone():
    chosen = tool()

    assert verdict(chosen, {"ask": ("*",)}, {"allow": ("mail.send",)}) is Verdict.ASK
    assert verdict(chosen, {"allow": ("*",)}, {"ask": ("mail.send",)}) is Verdict.ALLOW
    assert verdict(chosen, {}, {"allow": ("mail.*",)}) is Verdict.ALLOW
    assert verdict(chosen, {"allow": ("mail.send",)}, {"deny": ("*",)}) is Verdict.DENY
    assert verdict(chosen, {"deny": ("*",)}, {"allow": ("mail.send",)}) is Verdict.DENY


def test_the_reason_names_the_rule():
    policy = PermissionPolicy(PermissionRules(ask=("mail.*",)))

    assert judge(policy, tool()) == (Verdict.ASK, "permissions.ask has 'mail.*'")
    assert judge(PermissionPolicy(), tool()) == (Verdict.ASK, "external tools that write ask")


def test_what_was_allowed_for_one_target_is_not_allowed_for_another():
    """tool-registry: a tool is never allowed for any target by its name alone."""
    grants = SessionGrants()
    grants.add(tool(), "ada", "apr_1")

    assert grants.covering(tool(), "ada") == "apr_1"
    assert grants.covering(tool(), "bob") is None
    assert grants.covering(tool("mail.read"), "ada") is None


def test_what_was_allowed_for_a_tool_is_not_allowed_for_what_becomes_of_it():
    grants = SessionGrants()
    grants.add(tool(), "ada", "apr_1")

    assert grants.covering(tool("mail.send", "write", "dangerous"), "ada") is None
    assert grants.covering(replace(tool(), description="Delete everything."), "ada") is None
    assert grants.covering(replace(tool(), input_schema={"type": "object"}), "ada") is None
