import pytest

from benchmarks.question import Size
from benchmarks.suites import EXTRAS, SUITES, Asking, chosen


def test_a_suite_asks_its_questions_in_its_size():
    assert chosen(["smoke"], None) == [Asking(question, Size.SMOKE) for question in SUITES["smoke"].questions]


def test_a_question_is_asked_in_full_unless_a_size_is_given():
    assert chosen(["tools"], None) == [Asking("tools", Size.FULL)]
    assert chosen(["tools"], Size.SMOKE) == [Asking("tools", Size.SMOKE)]


def test_each_question_is_asked_once_as_it_was_first_named():
    asking = chosen(["smoke", "runs", "startup"], None)

    assert [each.question for each in asking] == [*SUITES["smoke"].questions, "startup"]
    assert asking[0].size is Size.SMOKE


def test_another_name_is_refused_with_all_that_there_are():
    with pytest.raises(ValueError, match=r"'nonsense' is neither a suite \(smoke, .*\) nor a question \(runs, "):
        chosen(["nonsense"], None)


def test_suites_have_only_questions_that_there_are():
    assert {question for suite in SUITES.values() for question in suite.questions} == set(EXTRAS)
