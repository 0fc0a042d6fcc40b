"""What an agent is reminded of at the start of a run (M8)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice

from owlclaw_ray.domain.heartbeat import EventSourceKind, Heartbeat
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.models.sanitise import as_data
from owlclaw_ray.models.tokens import longest
from owlclaw_ray.runs.token_limits import CountTokens, first_that_fit, fit
from owlclaw_ray.runs.truncation import cut_text

MAX_QUERY_CHARACTERS = 1_000
"""Characters."""
_LONGEST_TEXT = 250
"""Characters that every text of a query has, however many there are."""
MAX_VALUES = 500
"""How many values of a payload are looked at."""
_OF_THE_RUNTIME = {each.value for each in (EventSourceKind.INBOX, EventSourceKind.QUEUE, EventSourceKind.SCHEDULES)}
_FOCUS_OF_HEARTBEATS = Heartbeat().focus
"""Unless a definition says another one."""
_ID = re.compile(
    r"""(?<![A-Z0-9])(?:
    [A-Z]+_[0-9A-Z]{26}                                    # ours: see ids.py
    | [0-9A-F]{8}(?:-[0-9A-F]{4}){3}-[0-9A-F]{12}          # UUID
    | (?=[A-Z0-9]{16})[0-9]*(?:[A-Z]+[0-9]+){3,}[A-Z]*     # random, digests
    | [A-Z0-9+/=]{64,}                                     # base64
    | [0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]{4,6})?
    )(?![A-Z0-9])""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
"""What nobody says, wherever it stands."""
_URL = re.compile(r"https?://([^\s?#]+)\S*")
_TIME = r"[0-9]{1,2}:[0-9]{2}(?::[0-9.]+)?(?:\ ?(?:Z|UTC|GMT|[+-][0-9:]{4,6}))?"
_NO_WORDS = re.compile(
    rf"""
    [-+]?(?:[0-9]{{1,3}}|[0-9][0-9,]*\.[0-9]+)\ ?%?
    | (?:[0-9]{{4}}[-/.][0-9]{{1,2}}[-/.][0-9]{{1,2}}\ ?)?(?:{_TIME})?
    | (?:[A-Z]{{3}},\ )?[0-9]{{1,2}}\ [A-Z]{{3}}\ [0-9]{{4}}\ {_TIME}
    | [0-9]{{4}}年[0-9]{{1,2}}月[0-9]{{1,2}}日
    | [\W_]+""",
    re.VERBOSE | re.IGNORECASE,
)
"""Texts of a payload that are a number or a time and nothing else, or have neither letters nor digits."""


def memory_query(trigger: Trigger) -> str:
    """Return what memories are looked up by, made of words for people: the focus and the texts of the payload; empty if there are
    none.

    Left out is what no memory is about: names of fields, numbers, times, ids, what addresses carry after a `?`, all of them but the
    first, and all that the runtime itself puts into a payload. Short codes (`A-17`, `600519`) are texts. A long text is cut before
    others are left out.
    """
    texts: dict[str, None] = {}
    shortest = 0
    for text in _told(trigger):
        if text and text not in texts:
            texts[text] = None
            shortest += min(len(text), _LONGEST_TEXT) + 1
        if shortest > MAX_QUERY_CHARACTERS:
            break

    def length(most: int) -> int:
        return sum(min(len(text), most) + 1 for text in texts)

    most = _LONGEST_TEXT + bisect_right(
        range(_LONGEST_TEXT + 1, MAX_QUERY_CHARACTERS + 1), MAX_QUERY_CHARACTERS + 1, key=length
    )
    return " ".join(text[:most] for text in texts)[:MAX_QUERY_CHARACTERS]


async def shown_memories(found: Sequence[JsonObject], limit: int, count: CountTokens) -> list[str]:
    """Return the best of the memories found, best first, as the model reads them: whole ones, within `limit` tokens together.

    One that is too long makes room for the next. If none fits by itself, the best one is shown with its middle cut.
    """
    if not found or not limit:
        return []
    whole = [as_data(each) for each in found]
    chosen = await first_that_fit(whole, limit, count)
    if chosen:
        return [whole[position] for position in chosen]
    best = found[0]

    def cut(size: int) -> str:
        return as_data({**best, "content": cut_text(best["content"], size)})

    return [await fit(lambda tokens: longest(cut, tokens), limit, count)]


def _told(trigger: Trigger) -> Iterator[str]:
    """Return the focus, and the texts of the payload that the runtime did not put there, as they are read."""
    focus, payload = trigger.focus, trigger.payload
    match trigger.kind:
        case TriggerKind.SCHEDULE_ONCE | TriggerKind.SCHEDULE_CRON:
            payload = None
        case TriggerKind.HEARTBEAT:
            events = payload.get("events", ()) if isinstance(payload, dict) else ()
            focus = "" if focus == _FOCUS_OF_HEARTBEATS else focus
            payload = [_pending(event["source"], event["pending"]) for event in events]
        case TriggerKind.AGENT if isinstance(payload, dict) and isinstance(payload.get("assignment"), str):
            yield _readable(payload["assignment"])  # the focus is how it begins
            return
    yield _readable(focus)
    has_address = False
    for value in dict.fromkeys(each for each in islice(_values(payload), MAX_VALUES) if isinstance(each, str)):
        text, is_address = _readable(value), _URL.fullmatch(value) is not None
        if not _NO_WORDS.fullmatch(text) and not (is_address and has_address):
            yield text
        has_address |= is_address


def _pending(source: str, pending: JsonValue) -> JsonValue:
    """Return of what waits for a heartbeat what the runtime did not add to it."""
    if source in _OF_THE_RUNTIME and isinstance(pending, list):
        return [[each.get("focus"), each.get("payload")] for each in pending if isinstance(each, dict)]
    return pending


def _values(payload: JsonValue) -> Iterator[JsonValue]:
    match payload:
        case dict():
            for value in payload.values():
                yield from _values(value)
        case list() | tuple():
            for each in payload:
                yield from _values(each)
        case _:
            yield payload


def _readable(text: str) -> str:
    """Return the beginning of the text without what nobody says."""
    return " ".join(_ID.sub(" ", _URL.sub(r"\1", text[: 2 * MAX_QUERY_CHARACTERS])).split())
