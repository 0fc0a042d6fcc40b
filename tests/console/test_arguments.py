"""What the arguments of a call must be, in words."""

from __future__ import annotations

import pytest

from console.arguments import ArgumentField, argument_fields


def test_arguments_are_named_in_the_order_of_the_schema_with_type_and_limits():
    schema = {
        "type": "object",
        "properties": {
            "order": {"type": "string", "description": "Which.", "minLength": 1, "maxLength": 8},
            "amount": {"type": "number", "exclusiveMinimum": 0, "maximum": 99.5},
            "note": {},
        },
        "required": ["order"],
    }

    assert argument_fields(schema) == [
        ArgumentField("order", "string, length at least 1, length at most 8", required=True, about="Which."),
        ArgumentField("amount", "number, more than 0, at most 99.5", required=False, about=""),
        ArgumentField("note", "", required=False, about=""),
    ]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"enum": ["low", "高", 3]}, 'one of "low", "高", 3'),
        ({"const": True}, "true"),
        ({"type": ["string", "null"]}, "string or null"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}, {"type": "integer"}]}, "integer or null"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 3}, "list of string, length at most 3"),
        ({"type": "array"}, "array"),
        ({"type": "string", "format": "date"}, "string, date"),
    ],
)
def test_types_are_said_as_people_say_them(schema, words):
    (field,) = argument_fields({"properties": {"a": schema}})

    assert field.kind == words


@pytest.mark.parametrize("schema", [{}, {"properties": []}, {"properties": {"a": True}}, {"properties": None}])
def test_a_schema_that_names_no_arguments_has_none(schema):
    assert list(argument_fields(schema)) == []


@pytest.mark.parametrize(
    "odd",
    [
        {"enum": "x"}, {"anyOf": {}}, {"anyOf": [True]}, {"type": 5}, {"minimum": []}, {"items": []}, {"description": 7},
        {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": {"type": "array"}}}},
    ],
)  # fmt: skip
def test_odd_schemas_of_tools_are_read_as_far_as_they_say_something(odd):
    (field,) = argument_fields({"properties": {"a": odd}, "required": "a"})

    assert not field.required
