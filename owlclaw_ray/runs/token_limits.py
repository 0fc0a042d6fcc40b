"""Texts within a number of tokens, counted by a tokenizer only where an estimate does not settle it.

A token is at least one byte of UTF-8. So a text of no more bytes than its limit fits whatever the tokenizer, and most runs
never ask for a count, which takes a message to the process that has the tokenizers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from owlclaw_ray.models.tokens import estimate_tokens

CountTokens: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[int]]]

_PRECUT_FACTOR = 4
"""What is estimated at so many times the limit is cut before it is counted."""
_ROUNDS = 4
_GOOD_USE, _MARGIN = 0.85, 0.97


async def fit(build: Callable[[int], str], limit: int, count: CountTokens) -> str:
    """Return the longest text of at most `limit` tokens that was found; `build` gives one estimated at no more than its argument.

    A text that `build` cannot shorten is returned as it is.
    """
    whole, least = build(_PRECUT_FACTOR * limit), build(limit // 4)
    if _fits_quickly(whole, limit) or whole == least:
        return whole
    best, text = least, whole
    for _ in range(_ROUNDS):
        (tokens,) = await count([text])
        if tokens <= limit:
            best = max(best, text, key=len)
            if text == whole or tokens >= _GOOD_USE * limit:
                break
        text = build(int(estimate_tokens(text) * limit / max(tokens, 1) * _MARGIN))
    return best


async def first_that_fit(texts: Sequence[str], limit: int, count: CountTokens) -> list[int]:
    """Return the positions of the texts, from the first on, that fit into `limit` tokens together; what is too long is passed over."""
    if sum(len(text.encode()) for text in texts) <= limit:
        return list(range(len(texts)))
    chosen: list[int] = []
    left = limit
    for position, tokens in enumerate(await count(texts)):
        if tokens <= left:
            chosen.append(position)
            left -= tokens
    return chosen


def _fits_quickly(text: str, limit: int) -> bool:
    return len(text) <= limit and len(text.encode()) <= limit
