from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.engine.tokens import estimate_tokens


def test_four_small_letters_are_a_token_and_a_chinese_character_is_one_and_a_half():
    assert estimate_tokens("") == 0
    assert estimate_tokens("word") == 1
    assert estimate_tokens("words") == 2
    assert estimate_tokens("{42}") == 3
    assert estimate_tokens("观察主机") == 6
    assert estimate_tokens("观察 load") == 5
    assert estimate_tokens("文" * 100_000) == 150_000


@given(st.text(), st.text())
def test_the_estimate_never_falls_when_text_is_added(one, other):
    assert max(estimate_tokens(one), estimate_tokens(other)) <= estimate_tokens(one + other)
    assert estimate_tokens(one + other) <= estimate_tokens(one) + estimate_tokens(other)
