"""Search word by word, without any index: for when there is none, and for what an index does not know as words."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_TOKEN = re.compile(rf"[{_CJK}]+|[^\W{_CJK}]+|[^\w\s]")
_IS_CJK = re.compile(f"[{_CJK}]")
_LETTERS = re.compile(r"[^\W_]+")
_INNER_CAPITALS = re.compile(
    r"(?<=[^\s.!?:] )[A-Z][A-Za-z]*|\b[A-Z]{2,}\b"
    rf"|(?<![A-Za-z])[A-Z]+(?=[{_CJK}])|(?<=[{_CJK}])[A-Z]+(?![A-Za-z])"
)
_SATURATION, _LENGTH_WEIGHT = 1.2, 0.75
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a about after all also am an and any are as at be been before but by can could did do does for from had has have he her"
        " him his how i if in into is it its may me my no not now of on or our out s she should so such that the their them then"
        " there these they this to too up us very was we were what when where which who whom whose why will with would you your",
    )
)
_COMMON_CJK = frozenset(
    re.findall(
        r"\w+",
        "的 了 是 在 和 与 就 也 都 由 为 把 被 给 有 用 个 吗 呢 吧 啊 呀 我 你 您 他 她 它 们 这 那 哪 谁 几 多 少 什 么 怎 样"
        " 我们 你们 他们 这个 那个 哪个 哪些 哪里 什么 多少 怎么 怎样 为什么",
    )
)
STOP_WORDS = tuple(sorted(_COMMON | _COMMON_CJK))
"""What an index of words leaves out. LanceDB's own list is of all languages at once: it has digits, "above", "dog" and 以上."""


def is_cjk(character: str) -> bool:
    """Return whether it is a Chinese, Japanese or Korean character."""
    return _IS_CJK.match(character) is not None


def is_common_cjk(character: str) -> bool:
    """Return whether it is one of the Chinese characters that are in every text and every question."""
    return character in _COMMON_CJK


def words(text: str) -> list[str]:
    """Return the words of the text: case-folded; Chinese, Japanese and Korean as pairs of characters."""
    found: list[str] = []
    for token in _TOKEN.findall(text.casefold()):
        if len(token) > 1 and _IS_CJK.match(token):
            found += (token[at : at + 2] for at in range(len(token) - 1))
        else:
            found.append(token)
    return found


def significant_words(text: str) -> frozenset[str]:
    """Return the words of the text that say what it is about: no symbols, no English ones that are in every text."""
    return frozenset(word for word in words(text) if word not in _COMMON and word[0].isalnum())


def common_names(text: str) -> frozenset[str]:
    """Return the words that are names here and common elsewhere, such as those of "boiler A" and "in May"."""
    return frozenset(word for word in _INNER_CAPITALS.findall(text) if word != "I" and word.casefold() in _COMMON)


def asked_for(query: str) -> str:
    """Return the query without the English words that are in every text and every question, or whole if it has no others."""
    rest = _LETTERS.sub(lambda found: " " if found[0].casefold() in _COMMON else found[0], query)
    return rest if _LETTERS.search(rest) else query


def is_mostly_cjk(text: str) -> bool:
    """Return whether at least half of the text's letters and digits are Chinese, Japanese or Korean."""
    letters = [character for character in text if character.isalnum()]
    return bool(letters) and 2 * sum(1 for letter in letters if _IS_CJK.match(letter)) >= len(letters)


def searchable(memory: Memory) -> str:
    """Return the text by which the memory is found, safe for any library: its content, other forms of it that have other words, and
    its tags.
    """
    said = significant_words(memory.content) if memory.also else frozenset()
    forms = (text for text in memory.also if not significant_words(text) <= said)
    text = "\n".join((memory.content, *forms, *([" ".join(memory.tags)] if memory.tags else ())))
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def search(query: str, memories: Sequence[Memory]) -> dict[MemoryId, float]:
    """Return the BM25 score of each memory that shares a word with the query; one that says little only if no other finds any.

    A query that is a single Chinese character finds it inside words; a text equal to the query is always found.
    """
    if not memories:
        return {}
    asked = set(words(query))
    telling = {
        word for word in words(asked_for(query)) if not (len(word) == 1 and unicodedata.category(word).startswith("P"))
    }
    texts = [(memory.memory_id, searchable(memory).casefold()) for memory in memories]
    average = sum(len(text) for _, text in texts) / len(texts) or 1.0
    wanted, matches = telling, list(_matches(texts, telling))
    if not matches:
        wanted, matches = asked, list(_matches(texts, asked))
    scores: dict[MemoryId, float] = defaultdict(float)
    for word in wanted:
        containing = sum(word in each.counts for each in matches)
        rarity = math.log(1 + (len(texts) - containing + 0.5) / (containing + 0.5))
        for each in matches:
            if frequency := each.counts[word]:
                norm = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * each.length / average)
                scores[each.memory_id] += rarity * frequency * (_SATURATION + 1) / (frequency + norm)
    stripped = query.strip()
    for memory in memories:
        if stripped in {text.strip() for text in (memory.content, *memory.also)}:
            scores[memory.memory_id] += 1.0
    return dict(scores)


class _Match(Struct, frozen=True):
    """How often a memory has each word that is wanted, of those that it has."""

    memory_id: MemoryId
    counts: Counter[str]
    length: int


def _matches(texts: Sequence[tuple[MemoryId, str]], wanted: set[str]) -> Iterator[_Match]:
    """Cut only those texts into words that can hold one that is wanted: most of thousands cannot."""
    single = {word for word in wanted if len(word) == 1 and _IS_CJK.match(word)}
    for memory_id, text in texts:
        if not any(word in text for word in wanted):
            continue
        counts = Counter(word for word in words(text) if word in wanted)
        counts.update({character: text.count(character) for character in single if character in text})
        if counts:
            yield _Match(memory_id, counts, len(text))
