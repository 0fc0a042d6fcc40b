from __future__ import annotations

import pytest

from serve.counting import counted


@pytest.mark.parametrize(
    ("number", "nouns", "text"),
    [
        (0, ("tool",), "0 tools"),
        (1, ("tool",), "1 tool"),
        (2, ("tool",), "2 tools"),
        (1, ("memory", "memories"), "1 memory"),
        (12_000, ("memory", "memories"), "12,000 memories"),
    ],
)
def test_one_thing_is_not_many(number: int, nouns: tuple[str, ...], text: str):
    assert counted(number, *nouns) == text
