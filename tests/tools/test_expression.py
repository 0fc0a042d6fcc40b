"""Regular expressions of tools' schemas cannot hold anything up."""

import pytest

from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.tools.arguments import argument_problems
from owlclaw_ray.tools.expression import SLOW_CHARACTERS, expression, is_exponential
from owlclaw_ray.tools.schema import plain_schema


def schema(pattern):
    return {"type": "object", "properties": {"p": {"type": "string", "pattern": pattern}}}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "^a*a*a*a*a*a*b$"])
def test_what_takes_exponential_time_elsewhere_is_matched_at_once(pattern):
    assert argument_problems(schema(pattern), {"p": "a" * 5_000 + "!"})


@pytest.mark.parametrize("pattern", ["^(?=a)(a+)+$", "^(?!b)(a|a)*$", r"^(a)\1((x*)y?)*$", "(?=a)([ab]{1,9}){2,9}"])
def test_an_expression_that_may_take_exponential_time_is_refused_at_registration(pattern):
    with pytest.raises(ConfigurationError, match="may take exponential time"):
        plain_schema(schema(pattern), "the tool x.y")


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", r"^(?=.*\d)(?=.*[a-z]).{8,}$", r"(?!-)[a-z-]+", "[(+]+(?=x)", "(?:ab)+(?=x)"]
)
def test_other_expressions_are_taken(pattern):
    assert not is_exponential(pattern)
    assert plain_schema(schema(pattern), "the tool x.y")


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        ("^[A-Z]", "Graz", "graz"),
        ("", "", None),
        ("文", "中文", "text"),
        (r"^(?=.*\d)[a-z\d]+$", "a1", "a"),
        ("^[a&&b]+$", "&a", "c"),
        (r"\<x", "<x", "x"),
        ("^[[a]+$", "[a", "b"),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_expressions_mean_what_they_mean_in_python(pattern, fits, fits_not):
    assert expression(pattern).found_in(fits)
    assert fits_not is None or not expression(pattern).found_in(fits_not)


def test_only_short_texts_go_to_the_engine_that_may_be_slow():
    assert expression("(?=a)a").found_in("a" * SLOW_CHARACTERS)
    assert not expression("(?=a)a").found_in("a" * (SLOW_CHARACTERS + 1))
