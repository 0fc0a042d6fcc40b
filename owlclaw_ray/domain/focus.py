"""Finding runs by the text of their focus: which terms an index has of it, and whether it matches what somebody looks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from unicodedata import normalize

from msgspec import Struct

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
)
"""Scripts that are written without blanks between words, or with parts of speech joined to them: Thai, Lao, Burmese, Khmer, Japanese,
Chinese, Korean."""
_PART = re.compile(rf"([{_UNSPACED}]+)|[^\W_{_UNSPACED}]+")


class FocusQuery(Struct, frozen=True):
    """What is looked for: each word is in the focus as a whole word, each piece of Chinese and the like somewhere in its text.

    Case, width and punctuation do not count. A text without a letter or digit is found nowhere.
    """

    words: frozenset[str]
    pieces: frozenset[str]

    @classmethod
    def of(cls, text: str) -> FocusQuery:
        """Return the query for a text that somebody typed."""
        parts = [*_parts(text)]
        return cls(
            frozenset(part for part, unspaced in parts if not unspaced),
            frozenset(part for part, unspaced in parts if unspaced),
        )

    @property
    def terms(self) -> frozenset[str]:
        """The terms that every focus has which matches; none if only single characters of a script without blanks are looked for."""
        return self.words.union(*map(_pairs, self.pieces))

    def matches(self, focus: str) -> bool:
        """Return whether the focus has all of it."""
        if not self.words and not self.pieces:
            return False
        folded = _folded(focus)
        if not all(part in folded for each in (self.words, self.pieces) for part in each):
            return False
        of = FocusQuery.of(focus)
        return self.words <= of.words and all(any(piece in each for each in of.pieces) for piece in self.pieces)


def index_terms(focus: str) -> frozenset[str]:
    """Return what the focus is found by: its words, and the pairs of neighbours in pieces of scripts without blanks."""
    return FocusQuery.of(focus).terms if focus else frozenset()


def _folded(text: str) -> str:
    return normalize("NFKC", text).casefold()


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    for found in _PART.finditer(_folded(text)):
        yield found[0], found[1] is not None


def _pairs(piece: str) -> set[str]:
    return {piece[at : at + 2] for at in range(len(piece) - 1)}
