"""Search word by word, without any index: for when there is none, and for what an index does not know as words."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_TOKEN = re.compile(rf"[{_CJK}]+|[^\W{_CJK}]+|[^\w\s]")
_IS_CJK = re.compile(f"[{_CJK}]")
_SATURATION, _LENGTH_WEIGHT = 1.2, 0.75


def words(text: str) -> list[str]:
    """Return the words of the text: case-folded; Chinese, Japanese and Korean as pairs of characters."""
    found: list[str] = []
    for token in _TOKEN.findall(text.casefold()):
        if len(token) > 1 and _IS_CJK.match(token):
            found += (token[at : at + 2] for at in range(len(token) - 1))
        else:
            found.append(token)
    return found


def is_mostly_cjk(text: str) -> bool:
    """Return whether at least half of the text's letters and digits are Chinese, Japanese or Korean."""
    letters = [character for character in text if character.isalnum()]
    return bool(letters) and 2 * sum(1 for letter in letters if _IS_CJK.match(letter)) >= len(letters)


def searchable(memory: Memory) -> str:
    """Return the text by which the memory is found: its content and tags, safe for any library."""
    text = memory.content if not memory.tags else f"{memory.content}\n{' '.join(memory.tags)}"
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def search(query: str, memories: Sequence[Memory]) -> dict[MemoryId, float]:
    """Return the BM25 score of each memory that shares a word with the query.

    A query that is a single Chinese character finds it inside words; a text equal to the query is always found.
    """
    wanted = set(words(query))
    single = {word for word in wanted if len(word) == 1 and _IS_CJK.match(word)}
    counts = {memory.memory_id: Counter(_with_characters(memory, single)) for memory in memories}
    if not counts:
        return {}
    average = sum(count.total() for count in counts.values()) / len(counts) or 1.0
    rarity = {word: _rarity(sum(word in count for count in counts.values()), len(counts)) for word in wanted}
    scores = {
        memory_id: sum(rarity[word] * _saturated(count[word], count.total() / average) for word in wanted)
        for memory_id, count in counts.items()
    }
    stripped = query.strip()
    for memory in memories:
        if memory.content.strip() == stripped:
            scores[memory.memory_id] += 1.0
    return {memory_id: score for memory_id, score in scores.items() if score > 0}


def _with_characters(memory: Memory, single: set[str]) -> Iterable[str]:
    text = searchable(memory)
    found = words(text)
    return found if not single else [*found, *(character for character in text if character in single)]


def _rarity(containing: int, total: int) -> float:
    return math.log(1 + (total - containing + 0.5) / (containing + 0.5))


def _saturated(frequency: int, relative_length: float) -> float:
    norm = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * relative_length)
    return frequency * (_SATURATION + 1) / (frequency + norm)
