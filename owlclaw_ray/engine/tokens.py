"""How many tokens a text is about, without a tokenizer."""

from __future__ import annotations

import re

_WIDE = re.compile(r"[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
MOST_CHARACTERS_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Return an estimate that errs upwards: a token for each CJK character, half a one for each other character outside
    ASCII, a quarter for each of ASCII. Never falls when text is added; 0 only for the empty text.
    """
    if text.isascii():
        return -(-len(text) // MOST_CHARACTERS_PER_TOKEN)
    wide = len(_WIDE.findall(text))
    ascii_only = len(text.encode("ascii", "ignore"))
    other = len(text) - wide - ascii_only
    return wide - (-(2 * other + ascii_only) // MOST_CHARACTERS_PER_TOKEN)
