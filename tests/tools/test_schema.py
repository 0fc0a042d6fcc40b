import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.tools.arguments import allowed
from owlclaw_ray.tools.schema import plain_schema


def refused(schema):
    with pytest.raises(ConfigurationError) as caught:
        plain_schema(schema, "tool 'a.b'")
    return [str(problem) for problem in caught.value.problems]


def of(**properties):
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (of(x={"oneOf": [{"type": "string"}]}), "properties.x.oneOf"),
        (of(x={"type": "array", "items": {"allOf": []}}), "properties.x.items.allOf"),
        (of(x={"anyOf": [{"type": "string"}, {"type": "integer"}]}), "properties.x.anyOf"),
        (of(x={"$ref": "#/elsewhere"}), "properties.x.$ref"),
        ({**of(), "patternProperties": {}}, "patternProperties"),
        ({**of(), "if": {}}, "if"),
        (of(x={"type": "object", "additionalProperties": {"not": {}}}), "properties.x.additionalProperties.not"),
        (of(x={"type": ["string", "null"]}), "properties.x.type"),
        (of(x={"type": "null"}), "properties.x.type"),
        (of(x={"type": "string", "pattern": "("}), "properties.x.pattern"),
        (of(x={}), "properties.x"),
        (of(x={"type": "string", "maxLength": -1}), "properties.x.maxLength"),
        ({"type": "string"}, "type"),
        ({}, "type"),
    ],
)
def test_a_keyword_outside_the_subset_is_refused_with_its_path(schema, path):
    """tool-registry: oneOf, anyOf, allOf, $ref, conditionals and patternProperties are not supported."""
    assert f"tool 'a.b': {path}: " in refused(schema)[0]


def test_every_offending_keyword_is_reported_at_once():
    assert len(refused(of(a={"oneOf": []}, b={"not": {}}, c={"type": "date"}))) == 3


def test_definitions_are_inlined_and_nullable_optionals_become_plain():
    schema = {
        "$defs": {"Point": {**of(x={"type": "integer", "title": "X"}), "title": "Point"}},
        **of(
            at={"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "default": None, "description": "where"},
            mode={"const": "fast"},
        ),
    }
    assert plain_schema(schema, "t") == of(
        at={**of(x={"type": "integer"}), "description": "where"}, mode={"enum": ["fast"]}
    )


def test_a_property_may_be_called_like_a_keyword():
    schema = of(title={"type": "string"}, oneOf={"type": "string"})
    assert plain_schema(schema, "t") == schema


def test_recursive_definitions_are_refused():
    node = {
        "$defs": {"Node": of(kids={"type": "array", "items": {"$ref": "#/$defs/Node"}})},
        **of(n={"$ref": "#/$defs/Node"}),
    }
    assert "properties.n.properties.kids.items.$ref: refers to itself through Node" in refused(node)[0]


_LEAVES = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("string")}, optional={"maxLength": st.integers(0, 9), "description": st.text()}
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])}, optional={"minimum": st.integers(-(2**63), 2**63)}
    ),
    st.fixed_dictionaries({"type": st.just("boolean")}, optional={"default": st.booleans()}),
    st.fixed_dictionaries({"enum": st.lists(st.text(), min_size=1, unique=True)}),
)
_SCHEMAS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda each: {"type": "array", "items": each}, inner),
        st.builds(lambda each: {"type": "object", "properties": each}, st.dictionaries(st.text(), inner, max_size=4)),
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _SCHEMAS, max_size=4))
def test_every_schema_of_the_subset_is_kept_as_it_is(properties):
    """tool-registry: object, string, number, integer, boolean and array, with enum, required and description, nested in
    objects and arrays.
    """
    schema = {"type": "object", "properties": properties}
    assert plain_schema(json.loads(json.dumps(schema)), "t") == schema


def test_schemas_are_told_in_words():
    assert allowed({"type": "integer", "minimum": 1, "maximum": 20}) == "integer, at least 1, at most 20"
    assert allowed({"enum": ["快", 2]}) == 'one of "快", 2'
    assert allowed({"type": "array", "items": {"type": "string"}, "maxItems": 3}) == "array of string, at most 3 items"
    assert allowed(of(a={"type": "string"})) == "object, with a"


@pytest.mark.parametrize("default", [2**64, "\ud800", {3: "x"}, object()])
def test_a_schema_that_no_request_can_carry_is_refused(default):
    assert "cannot be sent to a model" in refused(of(x={"type": "string", "default": default}))[0]
