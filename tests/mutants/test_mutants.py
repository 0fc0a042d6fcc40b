"""The list of mutants is whole, and still applies to the code."""

import ast
import re

import pytest

from tests.mutants.__main__ import ROOT, mutated
from tests.mutants.mutants import MUTANTS, PROPERTIES

_NUMBERED = re.compile(r"def (test_property_\w+)\(")


def test_every_property_has_a_mutant():
    assert sorted({each.number for each in MUTANTS}) == list(PROPERTIES)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: f"{each.number:02} {each.breaks}")
def test_every_mutant_applies_to_the_code_and_leaves_it_readable(mutant):
    source = (ROOT / mutant.file).read_text(encoding="utf-8")
    broken = mutated(source, mutant)
    assert broken != source
    ast.parse(broken)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: f"{each.number:02} {each.breaks}")
def test_every_file_that_a_mutant_names_has_tests_of_its_property(mutant):
    for test in mutant.tests:
        named = _NUMBERED.findall((ROOT / test).read_text(encoding="utf-8"))
        assert any(mutant.selector in name for name in named), test


def test_a_mutant_whose_text_is_gone_or_there_twice_is_refused():
    mutant = MUTANTS[0]
    for source in ("", mutant.text * 2):
        with pytest.raises(ValueError, match=r"tests/mutants/mutants\.py"):
            mutated(source, mutant)
