import asyncio

from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.models.tokens import BoundedTokens, estimate_tokens
from owlclaw_ray.testing.clock import ManualClock


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


class SlowTokenizer:
    """Counts characters, in twelve seconds."""

    def __init__(self, clock):
        self.clock, self.asked = clock, 0

    async def count_tokens(self, model, texts):
        self.asked += 1
        await self.clock.sleep(12)
        return [len(text) for text in texts]


async def test_all_counts_of_a_run_together_wait_no_longer_than_its_limit():
    clock = ManualClock()
    tokenizer, began = SlowTokenizer(clock), clock.monotonic()
    tokens = BoundedTokens(tokenizer, clock, 20)

    async def count():
        counting = asyncio.create_task(tokens.count_tokens("m", ["words"]))
        await clock.advance(0)
        while not counting.done():
            await clock.advance(1)
        return await counting

    assert [await count() for _ in range(4)] == [[5], [2], [2], [2]]
    assert (tokenizer.asked, clock.monotonic() - began) == (2, 20)
