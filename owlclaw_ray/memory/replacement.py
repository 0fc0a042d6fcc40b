"""Whether a newer memory replaces an older one, as the answer to a query: the same subject and attribute, another value.

Words that two memories share do not tell it: "db1 is the production database" and "db2 is the test database" share most. The query
does. What it asks for by the older one's words the newer one must say too; so a newer fact about another server, person or month is
no replacement, whatever else it has in common. Measured on pairs that conflict and on pairs that only look alike
(`python -m benchmarks retrieval`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from owlclaw_ray.memory.lexical import common_names, is_cjk, is_common_cjk, significant_words, words

_RESTATED, _OF_NEWER = 0.4, 0.25
"""The share that what both say has of the older one, and of the newer one: long texts have some of anything."""
_ASKED = 0.5
"""The share of the query that the older one must have: else the query says it in other words, and tells nothing."""
_MIN_OVERLAP = 0.25
"""The share of the older one that the query must have: else most of it is about something else, which nothing replaces."""
_ENDINGS = ("ing", "ies", "ied", "ic", "es", "ed", "s", "e", "y")
_MIN_STEM_CHARACTERS = 3


@lru_cache(8_192)
def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= _MIN_STEM_CHARACTERS:
            return word[: -len(ending)]
    return word


_VERBS = frozenset(
    map(
        _stem,
        re.findall(
            r"\w+",
            "answer approve begin belong buy charge come cost deliver do drink drive earn eat end get give go handle hold keep lead"
            " like listen live maintain make manage meet need open own park pay prefer run sell sit sleep speak stand start stay"
            " store supply take trade travel use want wear work"
            " 住 用 管 负 责 办 做 开 卖 买 付 收 放 存 送 供 说 讲 吃 喝 坐 穿 走 跑",
        ),
    )
)
"""What another verb may stand for once things have changed: who lived somewhere has moved."""
_CHANGE = re.compile(
    r"\b(?:now|no longer|any ?more|instead|new|since|as of|correction|moved?|relocated|left|quit|retired|sold|chang|switch|replac"
    r"|took over|taken over|hand(?:s|ed) over|transfer|postpon|resched|extend|rais|lower|increas|reduc|cut|drop|went (?:up|down)"
    r"|rose|fell|gave up|stopped|became|has been)"
    r"|现在|目前|不再|改|换|搬|涨|降|接过|接手|接替|移|转|调|提高|削减|推迟|延|更正|新|已|代替|离开|离职|起",
    re.IGNORECASE,
)
"""How texts say that something was otherwise before."""


_NO_PART = frozenset(
    map(
        _stem,
        re.findall(
            r"\w+", "said says say told tells tell think thinks believe believes never 不 没 未 无 限 制 设 定 规"
        ),
    )
)
"""What is no part of a subject: how somebody puts it, that it is not so, that it was laid down."""
_OWNERS = frozenset({"'", "\u2019", "s"})
"""What stands between an owner and what is owned."""


class TextFingerprint(Struct, frozen=True):
    """What is compared of a text."""

    signs: frozenset[str]
    """The stems of its telling words; of Chinese, Japanese and Korean the characters that tell something."""
    phrases: tuple[frozenset[str], ...]
    """Those that stand beside one another."""
    text: str


def text_fingerprint(text: str) -> TextFingerprint:
    """Return what is compared of the text."""
    signs: set[str] = set(common_names(text))
    phrases: list[set[str]] = [set()]
    telling = significant_words(text)
    for word in words(text):
        if is_cjk(word[0]):
            for character in word:
                if is_common_cjk(character):
                    phrases.append(set())
                else:
                    phrases[-1].add(character)
                    signs.add(character)
        elif word in telling:
            phrases[-1].add(_stem(word))
            signs.add(_stem(word))
        elif word not in _OWNERS:
            phrases.append(set())
    return TextFingerprint(frozenset(signs), tuple(frozenset(each) for each in phrases if each), text)


def replaces(newer: TextFingerprint, older: TextFingerprint, query: TextFingerprint) -> bool:
    """Return whether the newer memory says something else of what the query asks, and the older one answers.

    It says all of the query that the older one says, and of no narrower subject. It may lack the verb, if it tells of a change.
    """
    both = len(newer.signs & older.signs)
    if both < _RESTATED * len(older.signs) or both < _OF_NEWER * len(newer.signs):
        return False
    asked = query.signs & older.signs
    lacking = asked - newer.signs
    changes = _CHANGE.search(newer.text) is not None
    # Narrower is what adds something to a subject which the older one names as the query does: the guest printer.
    known = older.signs | query.signs | _NO_PART
    named = [phrase for phrase in older.phrases if phrase <= query.signs]
    added = (other - known for phrase in named for other in newer.phrases if phrase <= other)
    if not changes and any(not sign[0].isdigit() for signs in added for sign in signs):
        return False
    return (
        0 < len(asked) >= max(_ASKED * len(query.signs), _MIN_OVERLAP * len(older.signs))
        and 2 * len(lacking) <= len(asked)
        and (not lacking or (lacking <= _VERBS and changes))
    )
