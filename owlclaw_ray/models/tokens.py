"""How many tokens a text is about, without a tokenizer."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence

from owlclaw_ray.domain.model import ContextWindow, Price
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.models.api import TokenCounter

_COMMON_CJK = re.compile(r"[\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7ff\uff00-\uffef]")
_SMALL_LETTERS = dict.fromkeys(map(ord, string.ascii_lowercase + string.whitespace))
_SYMBOLS = dict.fromkeys(map(ord, string.punctuation))
MAX_CHARACTERS_PER_TOKEN = 4
_MAX_TEXT_CHARACTERS, _MAX_TOOL_BYTES = 6, 12
"""A token of prose is 4 characters long, and 7 bytes of schemas where a provider shortens them most (OpenAI, as measured for the built-in
tools)."""


def estimate_tokens(text: str) -> int:
    """Return an estimate that errs upwards for what people and programs write. Never falls when text is added; 0 for no text.

    In quarters of a token: 1 for a small letter or a space, 2 for a capital or a digit, 3 for another symbol of ASCII, 6 for a
    Chinese, Japanese or Korean character, and for the rest 3 for each byte of UTF-8 after the first.
    """
    ascii_only = text if text.isascii() else text.encode("ascii", "ignore").decode("ascii")
    dense = ascii_only.translate(_SMALL_LETTERS)
    quarters = len(ascii_only) + 2 * len(dense) - len(dense.translate(_SYMBOLS))
    if len(ascii_only) < len(text):
        cjk = len(_COMMON_CJK.findall(text))
        rest = len(text) - len(ascii_only) - cjk
        rest_bytes = len(text.encode("utf-8", "surrogatepass")) - len(ascii_only) - 3 * cjk
        quarters += 6 * cjk + 3 * (rest_bytes - rest)
    return -(-quarters // 4)


def fewest_tokens(text: str, tools: bytes) -> int:
    """Return what a prompt of these texts and tools takes at least: some tokenizers and templates write them in much less than others."""
    return len(text) // _MAX_TEXT_CHARACTERS + len(tools) // _MAX_TOOL_BYTES


def longest(cut: Callable[[int], str], tokens: int) -> str:
    """Return what `cut` makes of the largest number of characters that gives a text estimated at no more than `tokens`."""
    low, high = 0, tokens * MAX_CHARACTERS_PER_TOKEN
    while low < high:
        size = (low + high + 1) // 2
        if estimate_tokens(cut(size)) <= tokens:
            low = size
        else:
            high = size - 1
    return cut(low)


class EstimatedTokens:
    """Implements `TokenCounter` without a tokenizer."""

    async def count_tokens(self, model: str, texts: Sequence[str]) -> Sequence[int]:
        """See TokenCounter.count_tokens."""
        del model
        return [estimate_tokens(text) for text in texts]

    async def context_window(self, model: str) -> ContextWindow | None:
        """See TokenCounter.context_window: nothing is known here."""
        del model
        return None

    async def price(self, model: str) -> Price | None:
        """See TokenCounter.price: nothing is known here."""
        del model
        return None


class BoundedTokens:
    """Counts with a `TokenCounter` that may be slow: all of its counts together are waited for `seconds` at most."""

    def __init__(self, counter: TokenCounter, clock: Clock, seconds: float) -> None:
        self._counter, self._clock, self._left = counter, clock, seconds

    async def count_tokens(self, model: str, texts: Sequence[str]) -> Sequence[int]:
        """See TokenCounter.count_tokens; an estimate when the time is used up."""
        started = self._clock.monotonic()
        try:
            if self._left > 0:
                async with deadline(self._clock, self._left):
                    return await self._counter.count_tokens(model, texts)
        except TimeoutError:
            self._left = 0.0
        finally:
            self._left -= self._clock.monotonic() - started
        return await EstimatedTokens().count_tokens(model, texts)
