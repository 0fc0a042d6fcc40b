"""Schemas are compiled once, and what they say of wrong arguments is what they said before."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from owlclaw_ray import OwlClaw
from owlclaw_ray.errors import ToolArgumentsError
from owlclaw_ray.kernel.json_limits import KEPT
from owlclaw_ray.tools import arguments as argument_module
from owlclaw_ray.tools.arguments import Arguments, as_object, validator_of
from owlclaw_ray.tools.registry import ToolOptions

PLACE = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "pattern": "^[A-Z]"},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "modes": {"type": "array", "items": {"enum": ["short", "long"]}, "maxItems": 2},
    },
    "required": ["city"],
    "additionalProperties": False,
}


def refused(text):
    try:
        Arguments(PLACE, as_object).read("t", text)
    except ToolArgumentsError as error:
        return list(error.details)
    return []


def test_equal_schemas_share_one_validator():
    assert validator_of(PLACE) is validator_of(json.loads(json.dumps(PLACE)))
    assert validator_of(PLACE) is not validator_of({**PLACE, "required": []})


def test_a_call_compiles_nothing():
    app = OwlClaw("shop")
    options = ToolOptions("readonly", "pure", input_schema={"type": "object", "properties": {"n": PLACE}})
    tool = app.registry.add("pay", lambda given: given, options)
    compiled = argument_module._compiled.cache_info().misses
    for _ in range(100):
        tool.arguments.read("shop.pay", '{"n": {"city": "Graz"}}')

    assert argument_module._compiled.cache_info().misses == compiled


def test_more_expressions_than_the_interpreter_keeps_are_compiled_once(monkeypatch):
    takers = [
        Arguments({"type": "object", "properties": {"x": {"type": "string", "pattern": f"^[a-z]{{{n}}}$"}}}, as_object)
        for n in range(1, 700)
    ]
    compiled, real = [], re.compile
    monkeypatch.setattr(re, "compile", lambda *arguments: compiled.append(arguments) or real(*arguments))

    for _ in range(2):
        for n, taker in enumerate(takers, start=1):
            taker.read("t", json.dumps({"x": "a" * n}))

    assert len(compiled) <= len(takers)


def test_every_rule_is_told_with_path_and_what_was_given():
    assert refused(json.dumps({"city": "graz", "days": 9, "modes": ["short", "wide"], "dayz": 1})) == [
        'city: given "graz"; allowed: string, at least 2 characters, matching ^[A-Z]',
        "days: given 9; allowed: integer, at least 1, at most 7",
        "dayz: unknown; allowed: city, days, modes (did you mean days?)",
        'modes[1]: given "wide"; allowed: one of "short", "long"',
    ]


@given(
    st.dictionaries(
        st.sampled_from(["city", "days", "modes", "more"]),
        st.one_of(
            st.text(max_size=4), st.integers(-1, 9), st.booleans(), st.lists(st.sampled_from(["short", "long", 3]))
        ),
    )
)
def test_what_is_refused_is_what_the_standard_refuses(arguments):
    assert bool(refused(json.dumps(arguments))) is not Draft202012Validator(PLACE).is_valid(arguments)


def test_a_number_of_more_than_64_bits_is_refused_with_its_place():
    assert refused('{"city": "Graz", "days": 10000000000000000000000}') == [
        f"days: it is an integer beyond 64 bits: send it as a text; allowed: {KEPT}"
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"city": "Graz", "days": 1e999}', "days: it is inf, which is no number in JSON"),
        ('{"city": "Graz", "days": ' + "[" * 101 + "]" * 101 + "}", "days[0][0]"),
        ('{"x": ' * 900 + "1" + "}" * 900, "x.x.x"),
        ("[" * 101 + "]" * 101, "[0][0]"),
    ],
)
def test_what_nobody_can_pass_on_is_refused_with_its_place(text, why):
    (line,) = refused(text)
    assert line.startswith(why)
    assert line.endswith(f"allowed: {KEPT}")
