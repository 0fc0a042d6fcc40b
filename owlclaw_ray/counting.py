"""Numbers of things, as people read them."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return `1 tool`, `2 tools`, `1,000 memories`; `plural` is that of nouns which do more than take an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
