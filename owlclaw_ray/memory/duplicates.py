"""When two memories say the same.

Only what differs in case, width, spacing, punctuation at the edges of words, articles and particles without a meaning of
their own says the same: a number, a name or a word more is another fact, and a newer fact must not disappear in an older one.
Vectors are no judge of this: they put "the limit is 500" nearer to "the limit is 700" than to its own paraphrase.
"""

from __future__ import annotations

import re
from hashlib import blake2b

SHORTEST = 8
"""Letters and digits (a Chinese character is two) below which only equal texts say the same."""
_OPENING = "\"'`([{<«“‘【《「『〈"  # noqa: RUF001 - what people type
_CLOSING = "\"'`)]}>»”’】》」』〉.,;:!…。、"  # noqa: RUF001
_ARTICLES = frozenset({"a", "an", "the"})
_PARTICLES = frozenset("的呢啊呀哦吧嘛")
_WIDE = re.compile("([\u3001\u3002\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff])")
_NARROWED = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}


def likeness(content: str) -> bytes:
    """Return what is equal for texts that say the same."""
    words = _words(content)
    if sum(len(word) + bool(_WIDE.match(word)) for word in words) < SHORTEST:
        words = [content]
    return blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _words(content: str) -> list[str]:
    text = content.casefold()
    if not text.isascii():
        text = _WIDE.sub(r" \1 ", text.translate(_NARROWED))
    stripped = (word.lstrip(_OPENING).rstrip(_CLOSING) for word in text.split())
    return [word for word in stripped if word and word not in _ARTICLES and word not in _PARTICLES]
