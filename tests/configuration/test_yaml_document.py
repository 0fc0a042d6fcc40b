import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.configuration.yaml_document import dotted, read_yaml
from owlclaw_ray.errors import ConfigurationError

TEXT = """\
# a comment
a:
  b: 1
  c:
    - x
    - y: {z: 2}
"""


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ((), "f:2"),
        (("a",), "f:2: a"),
        (("a", "b"), "f:3: a.b"),
        (("a", "c", 1, "y", "z"), "f:6: a.c[1].y.z"),
        (("a", "c", 7), "f:4: a.c[7]"),
        (("missing", "x"), "f:2: missing.x"),
    ],
)
def test_every_value_knows_its_line(path, place):
    assert read_yaml(TEXT, "f").where(path) == place


def test_lines_count_from_the_texts_place_in_its_file():
    assert read_yaml("a: 1\n", "f", first_line=10).where(("a",)) == "f:10: a"


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "null\n"])
def test_an_empty_document_is_an_empty_mapping(text):
    assert read_yaml(text, "f").data == {}


def test_aliases_do_not_make_the_walk_explode():
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    assert read_yaml("\n".join(lines), "f").where(("a29",)) == "f:30: a29"


def test_paths_are_written_with_dots_and_brackets():
    assert dotted(("a", 0, "b")) == "a[0].b"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_any_text_is_a_mapping_or_a_configuration_error(text):
    try:
        found = read_yaml(text, "f").data
    except ConfigurationError as error:
        found = {problem.where: problem.what for problem in error.problems}
    assert isinstance(found, dict)
