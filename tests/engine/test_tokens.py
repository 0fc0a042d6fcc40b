from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.engine.tokens import estimate_tokens


def test_a_chinese_character_is_a_token_and_four_ascii_characters_are_one():
    assert estimate_tokens("") == 0
    assert estimate_tokens("word") == 1
    assert estimate_tokens("words") == 2
    assert estimate_tokens("观察主机") == 4
    assert estimate_tokens("观察 load") == 4
    assert estimate_tokens("文" * 100_000) == 100_000


@given(st.text(), st.text())
def test_the_estimate_never_falls_when_text_is_added(one, other):
    assert max(estimate_tokens(one), estimate_tokens(other)) <= estimate_tokens(one + other)
    assert estimate_tokens(one + other) <= estimate_tokens(one) + estimate_tokens(other)
