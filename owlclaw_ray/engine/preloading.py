"""What an agent is reminded of at the start of a run (M8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.trigger import Trigger
from owlclaw_ray.engine.cutting import cut_text
from owlclaw_ray.engine.fitting import CountTokens, first_that_fit, fit
from owlclaw_ray.engine.sanitise import as_data
from owlclaw_ray.engine.tokens import longest

LONGEST_QUERY = 1_000
"""Characters."""
_MOST_WORDS = 200


def memory_query(trigger: Trigger) -> str:
    """Return what memories are looked up by: the focus, then the texts and numbers of the payload; empty if there is nothing."""
    parts = [trigger.focus, *islice(_words(trigger.payload), _MOST_WORDS)]
    return " ".join(part for part in parts if part.strip())[:LONGEST_QUERY]


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


def _words(payload: JsonValue) -> Iterator[str]:
    match payload:
        case dict():
            for key, value in payload.items():
                if isinstance(value, str | int | float) and not isinstance(value, bool):
                    yield str(key)
                yield from _words(value)
        case list() | tuple():
            for each in payload:
                yield from _words(each)
        case bool() | None:
            return
        case _:
            yield str(payload)
