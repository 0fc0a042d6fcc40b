from hashlib import sha256

from msgspec.structs import replace

from owlclaw_ray.domain.tool import RECALL, Effect, Permission, ToolClass, ToolDefinition
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.runs.catalog import _KEPT, ToolCatalog


def tool(name):
    return ToolDefinition(name, name, {"type": "object"}, Permission.READONLY, Effect.PURE)


def catalog(number):
    return ToolCatalog([tool(f"shop.tool_{each:03}") for each in reversed(range(number))])


def test_names_are_sorted_and_schemas_stand_in_their_order():
    tools = catalog(3)
    selected = tools.select(["shop.tool_002", "gone.tool", "shop.tool_000"], DEFAULT_TENANT)

    assert tools.names(DEFAULT_TENANT) == ("shop.tool_000", "shop.tool_001", "shop.tool_002")
    assert selected.names == ("shop.tool_000", "shop.tool_002")
    assert selected.encoded.index(b"tool_000") < selected.encoded.index(b"tool_002")
    assert selected.digest == sha256(selected.encoded).hexdigest()


def test_schemas_are_encoded_once_for_all_runs_that_see_them(monkeypatch):
    tools = catalog(500)
    encoded = []
    monkeypatch.setattr(ToolDefinition, "openai_form", lambda self: encoded.append(self) or {})
    names = tools.names(DEFAULT_TENANT)
    first = tools.select(names, DEFAULT_TENANT)

    assert all(tools.select(list(names), DEFAULT_TENANT) is first for _ in range(50))
    assert tools.select(tuple(reversed(names)), DEFAULT_TENANT) is first
    assert not encoded


def test_ever_different_selections_do_not_pile_up():
    tools = catalog(200)
    names = tools.names(DEFAULT_TENANT)
    for at in range(1, 200):
        tools.select(names[:at], DEFAULT_TENANT)

    assert len(tools._selections) == _KEPT
    assert tools.select(names[:1], DEFAULT_TENANT).names == ("shop.tool_000",)


def test_a_tool_shares_tasks_as_its_definition_says_and_one_that_there_is_not_with_nobody():
    memory = replace(tool(RECALL), tool_class=ToolClass.MEMORY)
    seen_by_a_hook = replace(memory, tool_class=ToolClass.ALONE)

    classes = [ToolCatalog(tools).class_of(RECALL) for tools in ([memory], [seen_by_a_hook], [])]

    assert classes == [ToolClass.MEMORY, ToolClass.ALONE, ToolClass.ALONE]


def test_a_tool_of_some_tenants_is_none_for_all_others_not_even_one_that_they_may_not_call():
    acme, beta = TenantId("acme"), TenantId("beta")
    own = [replace(tool(f"shop.own_{each}"), tenants=frozenset({acme})) for each in "ab"]
    tools = ToolCatalog([tool("shop.order"), *own])
    wanted = ["shop.own_a", "shop.order"]

    assert tools.names(acme) == ("shop.order", "shop.own_a", "shop.own_b")
    assert tools.names(beta) == ("shop.order",)
    assert tools.select(wanted, acme).names == ("shop.order", "shop.own_a")
    assert set(tools.select(wanted, acme).others) == {"shop__own_b"}
    for _ in range(2):
        assert tools.select(wanted, beta).names == ("shop.order",)
        assert b"own" not in tools.select(wanted, beta).encoded
        assert not tools.select(["shop.order"], beta).others
    assert set(tools.select(["shop.order"], acme).others) == {"shop__own_a", "shop__own_b"}
