"""How a conversation is kept within its model's context window (R2).

Nothing is done to a conversation that fits. One that does not is compacted in steps, each far enough that the next twenty turns
fit behind it unchanged: what a provider has cached of a prompt is its beginning, and every change of it is paid for. A step
shortens the results of older turns and drops the oldest turns, of which records remain; the newest turns stay as they are.
From the first step on, a result longer than a share of the window is shortened before the model sees it at all: twenty
results that each fill a fifth of a window do not fit into it, and to shorten each a turn later would change the prompt with every
turn. What was cut stays in the journal, and the model reads it by the id of its call.

Lengths are in tokens of the model's own tokenizer where there is one. They are counted only when a prompt has more bytes than
it may have tokens: a token is a byte at least.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.agent import ModelChoice
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.model import ContextWindow, Message
from owlclaw_ray.domain.tool import READ_RESULT
from owlclaw_ray.errors import ContextWindowExceededError, OwlClawError
from owlclaw_ray.ids import ToolCallId
from owlclaw_ray.models.api import TokenCounter
from owlclaw_ray.models.sanitise import as_data, as_reply, text_of_reply
from owlclaw_ray.runs.conversation import Conversation, Turn, turns_of
from owlclaw_ray.runs.token_limits import CountTokens
from owlclaw_ray.runs.truncation import cut_text, head_length

logger = logging.getLogger(__name__)

_UNKNOWN = 32_768
"""Tokens of a model of which nobody says how much it takes."""
_MAX_REPLY_TOKENS = 4_096
_USABLE = 0.9
"""Of a window: tokenizers differ, and providers add to a prompt what belongs to its form."""
_MESSAGE_TOKENS, _CALL_TOKENS = 8, 32
"""What a message, and a call with its id and name, take beside their texts."""
_TURNS_AHEAD = 22
"""One is there already: the newest."""
_SHARE = 28
"""The results of a turn may take the 28th part: twenty such turns fit beside what a step leaves."""
_MIN_KEPT, _MAX_KEPT = 8, 4 / 3
"""What a step leaves of older turns is between these parts: the less, the longer turns were lately."""
_SHORT, _FOR_SHORT = 240, 1 / 3
"""Characters of a result that a step shortened, and how much of what is left of older turns is kept for such ones."""
_SHRINK_FACTOR = 0.75
"""What is tried next, of a prompt that was too long for its model."""
_RECORDS, _DETAILED = 20, 5
"""How many of the turns that were dropped last are shown, and how many of these with their arguments and results."""
_DETAIL = 120
_READS_ON = READ_RESULT.replace(".", "__")
"""As models call it."""


class PromptBudget(Struct, frozen=True):
    """How many tokens the prompt of a model call may take."""

    tokens: int
    is_known: bool = True
    """Else it is a guess, and the provider decides."""


class ContextWindows:
    """What models take: as settings say, else as is known of them. `rules` are patterns of names, of which the first holds."""

    def __init__(self, counter: TokenCounter, rules: Sequence[tuple[str, int]] = ()) -> None:
        self._counter, self._rules = counter, tuple(rules)
        self._known: dict[str, ContextWindow | None] = {}
        self._questions: dict[str, asyncio.Task[ContextWindow | None]] = {}

    async def room(self, choice: ModelChoice) -> PromptBudget | None:
        """Return what prompts for the first model of the chain may take; None if they have no limit, as for a scripted model."""
        model = choice.chain[0] if choice.chain else ""
        if model not in self._known:
            tokens = next((tokens for pattern, tokens in self._rules if fnmatchcase(model, pattern)), None)
            if tokens is not None:
                self._known[model] = ContextWindow(tokens)
            elif not model or model.startswith("scripted:"):
                return None
            else:
                try:
                    found = await self._asked(model)
                    if found is None and model not in self._known:
                        message = "nobody knows what %s takes: prompts are kept to %d tokens; say it under models.context_windows"
                        logger.warning(message, model, _UNKNOWN)
                    self._known[model] = found
                except (OwlClawError, TimeoutError) as error:
                    logger.warning("the context window of %s is taken for %d tokens: %s", model, _UNKNOWN, error)
                    return _room(None, choice)
        return _room(self._known[model], choice)

    async def _asked(self, model: str) -> ContextWindow | None:
        """Ask once for all runs that begin meanwhile."""
        question = self._questions.get(model)
        if question is None:
            question = self._questions[model] = asyncio.create_task(self._counter.context_window(model))
            question.add_done_callback(lambda _: self._questions.pop(model, None))
        return await asyncio.shield(question)


def _room(window: ContextWindow | None, choice: ModelChoice) -> PromptBudget:
    known = window or ContextWindow(_UNKNOWN)
    usual = min(_MAX_REPLY_TOKENS, known.reply or _MAX_REPLY_TOKENS, known.tokens // 4)
    reply = choice.max_tokens or usual
    if window is None:
        reply = min(reply, known.tokens // 4)
    return PromptBudget(max(0, int((known.tokens - reply) * _USABLE)), window is not None)


class Compaction:
    """Compacts the conversation of one run. `record_tokens`: what the records of dropped turns may take."""

    def __init__(self, count: CountTokens, record_tokens: int) -> None:
        self._count, self._record_tokens = count, record_tokens
        self._counted: dict[str, int] = {}

    async def step(self, conversation: Conversation, room: PromptBudget) -> JsonObject | None:
        """Return what is to be done before the model is asked, so that the prompt fits: data of a context_compacted entry.

        None if there is nothing to do. Raises ContextWindowExceededError if nothing that may be done is enough, and it is known
        what the model takes.
        """
        if conversation.bytes + _CALL_TOKENS * (len(conversation.messages) + 2) <= room.tokens:
            return None
        turns = turns_of(conversation.messages)
        fixed = [conversation.system, conversation.tools.decode(), conversation.opening]
        await self._know(chain(fixed, [conversation.earlier], *map(_texts, turns)))
        space = room.tokens - sum(self._counted[text] for text in fixed) - 2 * _MESSAGE_TOKENS
        length = self._counted[conversation.earlier] + self._sum(turns)
        if length <= space and not conversation.compacted:
            return None
        share = max(1, space // _SHARE)
        newest = await self._shorter(turns[-1], _share_of_each(turns[-1], share)) if turns else None
        if newest is not None:
            length += self._length(newest) - self._length(turns[-1])
            turns = [*turns[:-1], newest]
        if length <= space:
            kept = _Kept(turns, conversation.earlier)
        else:
            kept = await self._compacted(conversation, turns, space, share, is_known=room.is_known)
        texts = {*fixed, kept.earlier, *chain(*map(_texts, kept.turns))}
        self._counted = {text: tokens for text, tokens in self._counted.items() if text in texts}
        return kept.changes(conversation)

    async def fewer(self, conversation: Conversation) -> int:
        """Return how many tokens to try next, of a conversation whose prompt was too long for its model."""
        texts = [conversation.system, conversation.tools.decode(), conversation.opening, conversation.earlier]
        turns = turns_of(conversation.messages)
        await self._know(chain(texts, *map(_texts, turns)))
        return int((sum(self._counted[text] for text in texts) + self._sum(turns)) * _SHRINK_FACTOR)

    async def _compacted(
        self, conversation: Conversation, turns: Sequence[Turn], space: int, share: int, *, is_known: bool
    ) -> _Kept:
        older, newest = turns[:-1], list(turns[-1:])
        ahead = space - _TURNS_AHEAD * self._usual(turns, share)
        limit = int(min(max(ahead, space / _MIN_KEPT), space / _MAX_KEPT))
        kept = await self._fitting(older, limit)
        earlier, records, dropped = conversation.earlier, conversation.records, 0
        if earlier or len(kept) < len(older):
            for_records = min(self._record_tokens, limit // 2)
            kept = await self._fitting(older, limit - for_records)
            dropped = len(older) - len(kept)
            for number, turn in enumerate(older[:dropped], start=conversation.dropped + 1):
                records = (*records, _record(turn, number))[-_RECORDS:]
            if dropped:
                earlier = await self._shown(records, conversation.dropped + dropped, for_records)
        left = self._sum(kept) + self._counted[earlier]
        if left + self._sum(newest) > space:
            newest = [await self._shorter(turn, 0) for turn in newest]
        excess = left + self._sum(newest) - space
        if excess > 0 and is_known:
            raise ContextWindowExceededError(
                f"the prompt is {counted(excess, 'token')} too long, with older turns dropped and every result shortened: use a model "
                "with a larger context window, or give the agent fewer tools and skills or a smaller max_tokens; if the model takes "
                "more than is known, say so under models.context_windows in owlclaw.yaml"
            )
        return _Kept([*kept, *newest], earlier, records, dropped)

    async def _fitting(self, turns: Sequence[Turn], limit: int) -> list[Turn]:
        """Return the last of these turns that fit: the newest of them as they are, the others with their results shortened."""
        kept: list[Turn] = []
        left, whole = limit, True
        for turn in reversed(turns):
            whole = whole and left - self._length(turn) >= limit * _FOR_SHORT
            one = turn if whole else await self._shorter(turn, 0)
            left -= self._length(one)
            if left < 0:
                break
            kept.append(one)
        return kept[::-1]

    def _usual(self, turns: Sequence[Turn], share: int) -> int:
        """Return how long turns are that come, as those of late were, with results as long as they may be now."""
        late = turns[-_TURNS_AHEAD:]
        return sum(
            min(self._of(each), _share_of_each(turn, share) + _MESSAGE_TOKENS) if each.call_id else self._of(each)
            for turn in late
            for each in turn
        ) // max(1, len(late))

    async def _shorter(self, turn: Turn, tokens: int) -> Turn:
        """Return the turn with its results of at most `tokens`, or of _SHORT characters.

        What the model has just read again is as long as it asked for, unless it is to be of _SHORT characters.
        """
        changed = list(turn)
        read_again = {call.call_id for call in turn[0].tool_calls if tokens and call.name == _READS_ON}
        for at, each in enumerate(turn):
            size = len(each.content)
            while (
                each.call_id is not None
                and each.call_id not in read_again
                and self._counted[changed[at].content] > tokens
                and size > _SHORT
            ):
                share = tokens / self._counted[changed[at].content]
                size = max(_SHORT, min(int(size * share * 0.95), size - 1))
                text = shortened(each.content, size, each.call_id)
                if len(text) >= len(each.content):
                    break
                await self._know([text])
                changed[at] = replace(each, content=text)
        return changed

    async def _shown(self, records: Sequence[JsonObject], dropped: int, tokens: int) -> str:
        """Return the message part that shows as many of the records as fit, the last ones."""
        lines = [
            f"- {as_data(each if at >= len(records) - _DETAILED else _in_short(each))}"
            for at, each in enumerate(records)
        ]
        earlier = "was 1 turn that is" if dropped == 1 else f"were {dropped} turns that are"
        for first in range(len(lines)):
            text = (
                f"Earlier in this run there {earlier} not shown any more. The last of them, oldest first "
                f"({READ_RESULT} reads what calls returned, by their call_id, and lists the others):\n"
                + "\n".join(lines[first:])
            )
            await self._know([text])
            if self._counted[text] <= tokens:
                return text
        text = f"Earlier in this run there {earlier} not shown any more; {READ_RESULT} lists their calls."
        await self._know([text])
        return text

    async def _know(self, texts: Iterable[str]) -> None:
        unknown = [text for text in dict.fromkeys(texts) if text not in self._counted]
        if unknown:
            self._counted.update(zip(unknown, await self._count(unknown), strict=True))

    def _sum(self, turns: Sequence[Turn]) -> int:
        return sum(map(self._length, turns))

    def _length(self, turn: Turn) -> int:
        return sum(map(self._of, turn))

    def _of(self, message: Message) -> int:
        return (
            self._counted[message.content]
            + _MESSAGE_TOKENS
            + sum(self._counted[call.arguments] + _CALL_TOKENS for call in message.tool_calls)
        )


class _Kept(Struct, frozen=True):
    """What a conversation is to be."""

    turns: Sequence[Turn]
    earlier: str
    records: tuple[JsonObject, ...] = ()
    dropped: int = 0

    def changes(self, conversation: Conversation) -> JsonObject | None:
        """Return what tells it from the conversation, or None."""
        before = {
            each.call_id: each.content for turn in turns_of(conversation.messages) for each in turn if each.call_id
        }
        after = {each.call_id: each.content for turn in self.turns for each in turn if each.call_id}
        changed = {call_id: text for call_id, text in after.items() if before[call_id] != text}
        told: JsonObject = {"shortened": changed} if changed else {}
        if self.dropped:
            told |= {"dropped": self.dropped, "records": list(self.records), "earlier": self.earlier}
        return told or None


def shortened(reply: str, size: int, call_id: ToolCallId) -> str:
    """Return a result, as the model reads it, with so many characters of its beginning and end, and how to read the rest."""
    how = f"{READ_RESULT}(call_id={call_id!r}, offset={head_length(size)}, limit={size})"
    return as_reply(cut_text(text_of_reply(reply), size, lambda _: f" …[cut here; {how} reads on]… "))


def _share_of_each(turn: Turn, share: int) -> int:
    """Return what each result of a turn may take of what they may take together."""
    return share // max(1, len(turn) - 1)


def _texts(turn: Turn) -> Iterator[str]:
    for message in turn:
        yield message.content
        yield from (call.arguments for call in message.tool_calls)


def _record(turn: Turn, number: int) -> JsonObject:
    """Return what remains of a turn that is dropped."""
    said, *results = turn
    returned = {each.call_id: cut_text(text_of_reply(each.content), _DETAIL) for each in results}
    calls = [
        {
            "call_id": call.call_id,
            "tool": call.name,
            "arguments": cut_text(call.arguments, _DETAIL),
            "returned": returned.get(call.call_id, ""),
        }
        for call in said.tool_calls
    ]
    return {"turn": number, **({"said": cut_text(said.content, _DETAIL)} if said.content else {}), "calls": calls}


def _in_short(record: JsonObject) -> JsonObject:
    return {"turn": record["turn"], "calls": {each["call_id"]: each["tool"] for each in record["calls"]}}
