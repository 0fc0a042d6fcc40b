import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.models.tokens import estimate_tokens, longest
from owlclaw_ray.runs.token_limits import first_that_fit, fit
from owlclaw_ray.runs.truncation import cut_text
from tests.properties import examples


class Tokenizer:
    """Takes so many tokens for each byte of UTF-8, and remembers what it was asked."""

    def __init__(self, tokens_per_byte):
        self.tokens_per_byte = tokens_per_byte
        self.asked = []

    async def __call__(self, texts):
        self.asked.append(texts)
        return [self.of(text) for text in texts]

    def of(self, text):
        return -(-int(len(text.encode()) * self.tokens_per_byte * 1_000) // 1_000)


def cutting(text):
    return lambda tokens: longest(lambda size: cut_text(text, size), tokens)


async def test_what_fits_whatever_the_tokenizer_is_not_counted():
    tokenizer = Tokenizer(1.0)

    assert await fit(cutting("word " * 10), 100, tokenizer) == "word " * 10
    assert await first_that_fit(["a" * 50, "b" * 50], 100, tokenizer) == [0, 1]
    assert tokenizer.asked == []


async def test_a_text_that_the_estimate_takes_for_too_long_stays_whole_if_the_tokenizer_says_so():
    tokenizer = Tokenizer(0.1)
    text = "市场波动" * 50
    assert estimate_tokens(text) > 100 > tokenizer.of(text)

    assert await fit(cutting(text), 100, tokenizer) == text
    assert len(tokenizer.asked) == 1


async def test_a_hundred_thousand_chinese_characters_are_cut_to_the_limit():
    tokenizer = Tokenizer(0.4)

    shown = await fit(cutting("文" * 100_000), 2_000, tokenizer)

    assert 1_600 < tokenizer.of(shown) <= 2_000
    assert "characters cut" in shown
    assert all(len(text) < 20_000 for texts in tokenizer.asked for text in texts)


async def test_what_cannot_be_shortened_is_shown_whole_and_not_counted():
    tokenizer = Tokenizer(1.0)

    assert await fit(lambda tokens: "whole " * 900, 10, tokenizer) == "whole " * 900
    assert tokenizer.asked == []


@pytest.mark.property
@examples
@given(
    st.builds(str.__mul__, st.text(max_size=40) | st.text(alphabet="市场波动", max_size=40), st.integers(0, 300)),
    st.integers(40, 1_000),
    st.floats(0.05, 1.0),
)
async def test_property_04_no_text_exceeds_its_limit_by_the_tokenizer_count(text, limit, tokens_per_byte):
    tokenizer = Tokenizer(tokens_per_byte)

    shown = await fit(cutting(text), limit, tokenizer)

    assert tokenizer.of(shown) <= limit


async def test_the_first_that_fit_are_taken_and_what_is_too_long_is_passed_over():
    tokenizer = Tokenizer(1.0)

    assert await first_that_fit(["a" * 60, "b" * 60, "c" * 40], 100, tokenizer) == [0, 2]
    assert await first_that_fit(["a" * 101], 100, tokenizer) == []
