"""Short-term memory: what an agent has before its eyes during one run (R2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.engine.tokens import estimate_tokens

SHOWN_RECORDS = 5
_CUT = " …[{} characters cut]… "
_LEFT_OUT = "…[{} more left out]…"


class ShortTermMemory:
    """The trigger's text and the last records of a run, rendered within a token limit.

    Under pressure the newest records stay whole and the oldest are shortened first, then the trigger's text, and only
    then the newest record itself. `trigger_text` gives the trigger's text at no more than so many tokens, if it can be cut;
    what cannot is shown whole, and does not count.
    """

    def __init__(self, trigger_text: Callable[[int], str], *, record_limit: int = 20) -> None:
        self._trigger_text = trigger_text
        self._records: deque[str] = deque(maxlen=record_limit)

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: str) -> None:
        """Keep one more record; beyond the record limit the oldest goes."""
        self._records.append(record)

    def clear(self) -> None:
        """Forget all records, at the end of the run."""
        self._records.clear()

    def render(self, tokens: int) -> str:
        """Return the trigger's text and the last records, estimated at no more than `tokens`."""
        trigger = self._trigger_text(tokens)
        size = estimate_tokens(trigger)
        limit = tokens if size <= tokens else tokens + size
        shown = list(self._records)[-SHOWN_RECORDS:]
        parts = [trigger, *(f"- {record}" for record in shown)]
        oldest_first = [*range(1, len(parts) - 1), 0, len(parts) - 1] if len(parts) > 1 else []
        for index in oldest_first:
            excess = estimate_tokens("\n".join(parts)) - limit
            if excess <= 0:
                break
            parts[index] = shorten(parts[index], max(0, estimate_tokens(parts[index]) - excess))
        return "\n".join(part for part in parts if part)


def shorten(text: str, tokens: int) -> str:
    """Return the text with its middle cut so that it is estimated at no more than `tokens`; empty if not even a mark fits."""
    if estimate_tokens(text) <= tokens:
        return text
    low, high = 0, len(text)
    while low < high:
        kept = (low + high + 1) // 2
        if estimate_tokens(_cut_middle(text, kept)) <= tokens:
            low = kept
        else:
            high = kept - 1
    return _cut_middle(text, low) if low else ""


def cut_values(value: JsonValue, size: int) -> JsonValue:
    """Return JSON whose texts have `size` characters at most, and whose lists and objects as many items; marks say what is missing."""
    match value:
        case str():
            return cut_text(value, size)
        case list() | tuple():
            items = [cut_values(each, size) for each in value[:size]]
            return items if len(value) <= size else [*items, _LEFT_OUT.format(len(value) - size)]
        case dict():
            kept = {key: cut_values(each, size) for key, each in islice(value.items(), size)}
            return kept if len(value) <= size else kept | {_LEFT_OUT.format(len(value) - size): True}
        case _:
            return value


def cut_text(text: str, size: int) -> str:
    """Return the text, or, if it has more than `size` characters, that many of its beginning and end around a mark."""
    return text if len(text) <= size else _cut_middle(text, size)


def _cut_middle(text: str, kept: int) -> str:
    head, tail = kept - kept // 3, kept // 3
    return text[:head] + _CUT.format(len(text) - kept) + (text[-tail:] if tail else "")
