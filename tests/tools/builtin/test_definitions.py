import orjson
import pytest

from owlclaw_ray.domain.tool import Effect, Permission, ToolClass
from owlclaw_ray.tools.builtin import BuiltInTools
from owlclaw_ray.tools.names import BUILT_IN_NAMES
from owlclaw_ray.tools.schema import plain_schema

DEFINITIONS = {definition.name: definition for definition in BuiltInTools.definitions()}


def test_there_are_the_seven():
    assert set(DEFINITIONS) == BUILT_IN_NAMES
    assert len(DEFINITIONS) == 7


def test_none_changes_anything_outside_the_runtime_and_repeating_is_always_safe():
    assert {definition.permission for definition in DEFINITIONS.values()} == {Permission.READONLY}
    assert {name for name, definition in DEFINITIONS.items() if definition.effect is Effect.PURE} == {
        "recall",
        "query_state",
    }
    assert {definition.effect for definition in DEFINITIONS.values()} == {Effect.PURE, Effect.IDEMPOTENT}


def test_what_may_be_slow_has_slots_of_its_own():
    slow = {name: each.tool_class for name, each in DEFINITIONS.items() if each.tool_class is not ToolClass.QUICK}
    assert slow == {"remember": ToolClass.MEMORY, "recall": ToolClass.MEMORY, "query_state": ToolClass.STATE}


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=DEFINITIONS)
def test_schemas_keep_to_the_subset_and_describe_every_argument(definition):
    schema = definition.input_schema
    assert plain_schema(schema, definition.name) == schema
    assert schema["additionalProperties"] is False
    assert all(part["description"] for part in schema["properties"].values())
    form = definition.openai_form()
    assert orjson.loads(orjson.dumps(form)) == form
    assert form["function"]["name"] == definition.name


def test_schemas_state_the_documented_bounds():
    bounds = {
        ("schedule_once", "delay_seconds"): {"minimum": 1, "maximum": 2_592_000},
        ("schedule_once", "focus"): {"minLength": 1, "maxLength": 500},
        ("schedule_cron", "timezone"): {"default": "UTC"},
        ("remember", "content"): {"minLength": 1, "maxLength": 2_000},
        ("remember", "tags"): {"maxItems": 10, "default": []},
        ("recall", "limit"): {"minimum": 1, "maximum": 20, "default": 5},
        ("query_state", "state_name"): {"pattern": "^[A-Za-z0-9_.:-]{1,128}$"},
        ("log_decision", "reasoning"): {"minLength": 1, "maxLength": 1_000},
        ("log_decision", "decision_type"): {
            "enum": ["capability_selection", "schedule_decision", "no_action", "other"]
        },
    }
    for (tool, argument), expected in bounds.items():
        assert expected.items() <= DEFINITIONS[tool].input_schema["properties"][argument].items()
