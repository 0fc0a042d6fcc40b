import json
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from owlclaw_ray import OwlClaw, ToolContext
from owlclaw_ray.errors import ConfigurationError, ToolArgumentsError


class Unit(Enum):
    CELSIUS = "c"
    KELVIN = "k"


class Place(BaseModel):
    city: str
    country: str | None = None

    @field_validator("city")
    @classmethod
    def not_atlantis(cls, city):
        if city == "Atlantis":
            raise ValueError("it has sunk")
        return city


class Tree(BaseModel):
    branches: list["Tree"]


def weather(
    place: Place,
    context: ToolContext,
    *,
    days: Annotated[int, Field(ge=1, le=7, description="How many")] = 3,
    unit: Unit = Unit.CELSIUS,
    mode: Literal["short", "long"] | None = None,
    copy: list[Place] | None = None,
    since: datetime | None = None,
):
    """Tells the weather.

    Args:
        place: Where it is.
        days: not this, the annotation wins
        unit: Of the temperature.
    """
    return locals()


def registered(function, **options):
    return OwlClaw("demo").registry.add("it", function, _options(**options))


def _options(**options):
    from owlclaw_ray.tools.registry import ToolOptions

    return ToolOptions("readonly", "pure", **options)


def read(function, arguments):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return dict(registered(function).arguments.read("demo.it", text).by_name)


def refused(function, arguments):
    with pytest.raises(ToolArgumentsError) as caught:
        read(function, arguments)
    return list(caught.value.details)


def problem_of(function, **options):
    with pytest.raises(ConfigurationError) as caught:
        registered(function, **options)
    return str(caught.value)


def test_a_typed_function_becomes_a_schema():
    place = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
        "required": ["city"],
    }
    assert registered(weather).definition.input_schema == {
        "type": "object",
        "additionalProperties": False,
        "required": ["place"],
        "properties": {
            "place": {**place, "description": "Where it is."},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 3, "description": "How many"},
            "unit": {"type": "string", "enum": ["c", "k"], "default": "c", "description": "Of the temperature."},
            "mode": {"type": "string", "enum": ["short", "long"]},
            "copy": {"type": "array", "items": place},
            "since": {"type": "string", "format": "date-time"},
        },
    }


def test_the_description_is_the_docstrings_first_paragraph():
    assert registered(weather).definition.description == "Tells the weather."
    assert registered(weather, description="Better").definition.description == "Better"
    assert registered(lambda: None).definition.description == "it"


def test_arguments_arrive_as_the_types_of_the_parameters():
    given = read(
        weather, {"place": {"city": "北京"}, "unit": "k", "since": "2026-01-01T00:00:00Z", "copy": [{"city": "a"}]}
    )
    assert given["place"] == Place(city="北京")
    assert given["unit"] is Unit.KELVIN
    assert given["since"].year == 2026
    assert given["copy"] == [Place(city="a")]
    assert given["days"] == 3
    assert given["mode"] is None


def test_the_context_is_given_by_the_runtime_and_not_by_the_model():
    assert registered(weather).context_parameter == "context"
    assert "context" not in registered(weather).definition.input_schema["properties"]


def test_null_for_an_optional_argument_counts_as_absent():
    assert read(weather, {"place": {"city": "x", "country": None}, "days": None, "mode": None})["days"] == 3


def test_every_problem_of_the_arguments_has_a_line_with_path_given_and_allowed():
    lines = refused(
        weather, {"place": {"country": 5}, "days": 9, "mode": "shrt", "unti": "c", "copy": [{"city": True}]}
    )
    assert set(lines) == {
        "place.city: given nothing; allowed: string (required)",
        "place.country: given 5; allowed: string",
        "days: given 9; allowed: integer, at least 1, at most 7",
        'mode: given "shrt"; allowed: one of "short", "long"',
        "unti: unknown; allowed: place, days, unit, mode, copy, since (did you mean unit?)",
        "copy[0].city: given true; allowed: string",
    }


def test_text_for_a_number_is_refused():
    assert refused(weather, {"place": {"city": "x"}, "days": "3"}) == [
        'days: given "3"; allowed: integer, at least 1, at most 7'
    ]


def test_what_a_schema_cannot_say_is_checked_too():
    assert refused(weather, {"place": {"city": "Atlantis"}}) == ["place.city: Value error, it has sunk"]
    assert refused(weather, {"place": {"city": "x"}, "since": "soon"})[0].startswith(
        "since: Input should be a valid datetime"
    )


@pytest.mark.parametrize("text", ['{"a":', "[1]", "null", '"text"', "NaN", '{"days": NaN}', "[" * 100_000])
def test_what_is_no_json_object_is_refused(text):
    assert "allowed: one JSON object" in refused(weather, text)[0]


def test_no_text_is_no_arguments():
    def ping():
        return "pong"

    assert read(ping, "") == {}
    assert refused(ping, {"x": 1}) == ["x: unknown; allowed: nothing"]


@pytest.mark.parametrize(
    "arguments", [r'{"words": "a\ud800"}', r'{"more": {"\udfff": 1}}', r'{"more": {"a": ["\ud800"]}}']
)
def test_half_characters_in_arguments_are_refused(arguments):
    def say(words: str, more: dict[str, Any]):
        return words

    with pytest.raises(ToolArgumentsError, match="half a character"):
        read(say, arguments)


def test_parameters_that_shadow_pydantic_names_work():
    def odd(schema: str, model_config: int, *, _hidden: bool, json: str = "x"):
        return schema

    assert read(odd, {"schema": "s", "model_config": 1, "_hidden": True}) == {
        "schema": "s",
        "model_config": 1,
        "_hidden": True,
        "json": "x",
    }


def test_what_cannot_be_a_tool_is_refused_with_the_reason():
    def union(x: int | str): ...
    def untyped(x, y): ...
    def variadic(*x: int): ...
    def tuples(x: list[tuple[int, str]]): ...
    def anything(x: Any): ...
    def objects(x: ConfigurationError): ...
    def recursive(x: Tree): ...
    def unresolved(x: "Nowhere"): ...  # noqa: F821 (that is the point)
    def generator(x: int):
        yield x

    assert "properties.x.anyOf: the keyword 'anyOf' is not supported" in problem_of(union)
    assert "x: has no type annotation" in problem_of(untyped)
    assert "y: has no type annotation" in problem_of(untyped)
    assert "x: cannot be passed by name" in problem_of(variadic)
    assert "properties.x.items.prefixItems" in problem_of(tuples)
    assert "properties.x: has no type" in problem_of(anything)
    assert "ConfigurationError" in problem_of(objects)
    assert "refers to itself through Tree" in problem_of(recursive)
    assert "annotation cannot be resolved: name 'Nowhere' is not defined" in problem_of(unresolved)
    assert "yields" in problem_of(generator)
    assert "is no function" in problem_of(Place)


def test_a_default_without_json_form_is_refused():
    def late(x: str = object()): ...

    assert "demo.it" in problem_of(late)


def test_an_explicit_model_is_the_one_parameter():
    """tool-registry: tools in Python may have a pydantic model, whose JSON Schema is exported at registration."""

    def go(place: Place, context: ToolContext): ...

    tool = registered(go, arguments=Place)
    assert tool.definition.input_schema["required"] == ["city"]
    assert tool.arguments.read("t", '{"city": "x"}').positional == (Place(city="x"),)
    assert "takes 2 parameters" in problem_of(lambda a, b: None, arguments=Place)


def test_an_explicit_schema_is_checked_and_its_object_is_the_one_parameter():
    """tool-registry: the registry uses JSON Schema throughout."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = registered(lambda given: given, input_schema=schema)
    assert tool.definition.input_schema == schema
    assert tool.arguments.read("t", '{"n": 1, "more": "x"}').positional == ({"n": 1, "more": "x"},)
    with pytest.raises(ToolArgumentsError, match=r"n: given nothing; allowed: integer \(required\)"):
        tool.arguments.read("t", "{}")
    assert "oneOf" in problem_of(lambda given: given, input_schema={"type": "object", "oneOf": []})
    assert "both arguments= and input_schema=" in problem_of(lambda x: x, input_schema=schema, arguments=Place)
