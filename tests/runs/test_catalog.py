from hashlib import sha256

from msgspec.structs import replace

from owlclaw_ray.domain.tool import RECALL, Effect, Permission, ToolClass, ToolDefinition
from owlclaw_ray.runs.catalog import _KEPT, ToolCatalog


def tool(name):
    return ToolDefinition(name, name, {"type": "object"}, Permission.READONLY, Effect.PURE)


def catalog(number):
    return ToolCatalog([tool(f"shop.tool_{each:03}") for each in reversed(range(number))])


def test_names_are_sorted_and_schemas_stand_in_their_order():
    tools = catalog(3)
    selected = tools.select(["shop.tool_002", "gone.tool", "shop.tool_000"])

    assert tools.names == ("shop.tool_000", "shop.tool_001", "shop.tool_002")
    assert selected.names == ("shop.tool_000", "shop.tool_002")
    assert selected.encoded.index(b"tool_000") < selected.encoded.index(b"tool_002")
    assert selected.digest == sha256(selected.encoded).hexdigest()


def test_schemas_are_encoded_once_for_all_runs_that_see_them(monkeypatch):
    tools = catalog(500)
    encoded = []
    monkeypatch.setattr(ToolDefinition, "openai_form", lambda self: encoded.append(self) or {})
    first = tools.select(tools.names)

    assert all(tools.select(list(tools.names)) is first for _ in range(50))
    assert tools.select(tuple(reversed(tools.names))) is first
    assert not encoded


def test_ever_different_selections_do_not_pile_up():
    tools = catalog(200)
    for at in range(1, 200):
        tools.select(tools.names[:at])

    assert len(tools._selections) == _KEPT
    assert tools.select(tools.names[:1]).names == ("shop.tool_000",)


def test_a_tool_shares_tasks_as_its_definition_says_and_one_that_there_is_not_with_nobody():
    memory = replace(tool(RECALL), tool_class=ToolClass.MEMORY)
    seen_by_a_hook = replace(memory, tool_class=ToolClass.ALONE)

    classes = [ToolCatalog(tools).class_of(RECALL) for tools in ([memory], [seen_by_a_hook], [])]

    assert classes == [ToolClass.MEMORY, ToolClass.ALONE, ToolClass.ALONE]
