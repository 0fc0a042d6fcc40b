from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.focus import FocusQuery, index_terms

TEXT = st.text("a b17Zü-处理订单한국ไทย", max_size=12)


@pytest.mark.parametrize(
    ("looked_for", "focus", "found"),
    [
        ("order 17", "Look at ORDER no. 17", True),
        ("17", "order 117", False),
        ("ord", "order", False),
        ("17 order", "order 17", True),
        ("order-17!", "order: 17", True),
        ("zürich", "ZU\u0308RICH", True),
        ("\uff21\uff22\uff23", "abc", True),
        ("订单", "处理订单17", True),
        ("单", "处理订单17", True),
        ("处理17", "处理订单17", True),
        ("订17", "处理订单17", True),
        ("理单", "处理订单", False),
        ("订单 退款", "退款的订单", True),
        ("注文", "注文を確認", True),
        ("주문", "주문을 확인", True),
        ("!?", "!?", False),
        ("", "anything", False),
    ],
)
def test_words_are_found_whole_and_scripts_without_blanks_anywhere(looked_for, focus, found):
    assert FocusQuery.of(looked_for).matches(focus) is found


@given(TEXT, TEXT)
def test_what_matches_has_every_term_that_the_index_is_asked_for(looked_for, focus):
    query = FocusQuery.of(looked_for)

    assert not query.matches(focus) or query.terms <= index_terms(focus)


@given(TEXT)
def test_a_focus_with_a_letter_or_digit_is_found_by_itself(focus):
    assert FocusQuery.of(focus).matches(focus) is any(each.isalnum() for each in focus)
