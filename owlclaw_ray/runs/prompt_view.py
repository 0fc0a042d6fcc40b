"""What a model was shown, taken apart for people: what each part of a prompt is, where it comes from, and about how much of it there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum

import orjson
from msgspec import Struct

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.agent import AgentDefinition
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.model import Message
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.models.sanitise import CLOSING_DATA, OPENING_DATA
from owlclaw_ray.models.tokens import estimate_tokens
from owlclaw_ray.runs.conversation import Conversation
from owlclaw_ray.runs.prompt import MEMORIES, OUTCOMES, system_prompt
from owlclaw_ray.runs.skill_selection import select_skills, withheld_skills

_SKILL = "Skill: "
_OTHER_SKILLS = "Other skills"


class PartKind(Enum):
    """Where a part of a prompt comes from."""

    IDENTITY = "identity"
    """The definition's own texts, and the runtime's rules."""
    SKILLS = "skills"
    TOOLS = "tools"
    TRIGGER = "trigger"
    MEMORIES = "memories"
    CONVERSATION = "conversation"
    """What was said and done: last runs, earlier turns, replies and results."""


class PromptPart(Struct, frozen=True):
    """A part of a prompt."""

    kind: PartKind
    title: str
    tokens: int
    """Estimated: models count in their own ways."""
    text: str = ""
    bound: bool = False
    """Whether `tokens` are the most that it may have, and not what it has."""


class PromptView(Struct, frozen=True):
    """What a model was shown for a reply."""

    built: JournalEntry
    """The entry that says how the run's prompt was made."""
    parts: tuple[PromptPart, ...]
    """In the order in which the model reads them, the tools after the system message."""
    memories: tuple[JsonObject, ...]
    """Those that the run was reminded of, best first: content, created_at, tags."""
    messages: tuple[Message, ...]
    """After the first message: as the model got them, shortened ones shortened."""
    dropped: int
    """How many of the oldest turns it got no more."""


def prompt_view(entries: Iterable[JournalEntry], texts: Mapping[str, str], before: int) -> PromptView | None:
    """Return what the model was shown that was asked after the entries with a seq under `before`; None: there was no prompt yet.

    `texts` are those that the prompt_built entry names; one that is not there is taken for an empty one.
    """
    conversation, built = Conversation(), None
    for entry in entries:
        if entry.seq >= before:
            break
        if entry.kind is EntryKind.PROMPT_BUILT:
            built = entry
            texts = {entry.data["system"]: "", entry.data["tools"]: ""} | dict(texts)
        conversation.apply(entry, texts)
    if built is None:
        return None
    parts = [
        *_system_parts(conversation.system, [str(each) for each in built.data.get("skills", ())]),
        _part(
            PartKind.TOOLS,
            f"Schemas of {counted(len(conversation.visible), 'tool')}",
            conversation.tools.decode("utf-8", "replace"),
        ),
        *_opening_parts(conversation.opening),
    ]
    if conversation.earlier:
        parts.append(_part(PartKind.CONVERSATION, "Records of turns that were dropped", conversation.earlier))
    messages = tuple(conversation.messages[1:])
    if messages:
        said = sum(estimate_tokens(each.content) for each in messages)
        said += sum(estimate_tokens(call.name + call.arguments) for each in messages for call in each.tool_calls)
        parts.append(PromptPart(PartKind.CONVERSATION, f"{counted(len(messages), 'message')} since", said))
    memories = tuple(shown_memories(conversation.opening))
    return PromptView(built, tuple(parts), memories, messages, conversation.dropped)


def next_prompt(
    definition: AgentDefinition,
    outcomes: Sequence[str],
    *,
    tools: str,
    visible: Sequence[str],
    remembers: bool,
    now: datetime,
) -> tuple[PromptPart, ...]:
    """Return what would fill the prompt of the agent's next run, if a trigger came now that says nothing.

    `tools` and `visible` are the schemas and the names of the tools that it may use, `outcomes` the ends of its last runs.
    """
    limits = definition.limits
    withheld = withheld_skills(definition, visible, now)
    read = select_skills(definition.skills, Trigger(TriggerKind.API, None), limits.skill_tokens, withheld)
    others = [each for each in definition.skills if each not in read and each.name not in withheld]
    parts = _system_parts(system_prompt(definition, (), others), ())
    listed = [each for each in parts if each.title == _OTHER_SKILLS]
    found = [
        *(each for each in parts if each not in listed),
        *(PromptPart(PartKind.SKILLS, f"{_SKILL}{each.name}", each.tokens) for each in read),
        *listed,
        _part(PartKind.TOOLS, f"Schemas of {counted(len(visible), 'tool')}", tools),
        PromptPart(PartKind.TRIGGER, "What triggers it", limits.short_term_tokens, bound=True),
    ]
    if remembers and definition.preload_memories:
        title = f"At most {counted(definition.preload_memories, 'memory', 'memories')}"
        found.append(PromptPart(PartKind.MEMORIES, title, limits.memory_tokens, bound=True))
    if outcomes:
        found.append(_part(PartKind.CONVERSATION, "How its last runs ended", "\n".join(outcomes)))
    return tuple(each for each in found if each.tokens)


def _part(kind: PartKind, title: str, text: str) -> PromptPart:
    return PromptPart(kind, title, estimate_tokens(text), text)


def _system_parts(system: str, skills: Sequence[str]) -> list[PromptPart]:
    """Return the sections of a system message, in their order. A text that itself has the heading of a later section begins that one."""
    titles = [
        "Your identity",
        "Your capabilities",
        "Your constraints",
        "How you work",
        *(_SKILL + each for each in skills),
    ]
    found, rest, title = list[PromptPart](), f"\n\n{system}", ""
    for following in [*titles, _OTHER_SKILLS]:
        before, mark, after = rest.partition(f"\n\n# {following}\n")
        if mark:
            if title:
                found.append(_part(_kind_of(title), title, before.strip()))
            title, rest = following, after
    if rest.strip():
        found.append(_part(_kind_of(title), title or "System message", rest.strip()))
    return found


def _kind_of(title: str) -> PartKind:
    return PartKind.SKILLS if title.startswith(_SKILL) or title == _OTHER_SKILLS else PartKind.IDENTITY


def _opening_parts(opening: str) -> Iterator[PromptPart]:
    """Yield the parts of a first message. What comes from outside is JSON in it, and has no line feeds: it cannot begin a part."""
    trigger, _, rest = opening.partition(f"\n\n{MEMORIES}\n")
    memories = outcomes = ""
    if rest:
        memories, _, outcomes = rest.partition(f"\n\n{OUTCOMES}\n")
    else:
        trigger, _, outcomes = trigger.partition(f"\n\n{OUTCOMES}\n")
    if trigger:
        yield _part(PartKind.TRIGGER, "Who and when it is, and the trigger", trigger)
    if memories:
        yield _part(PartKind.MEMORIES, counted(memories.count("\n") + 1, "memory", "memories"), memories)
    if outcomes:
        yield _part(PartKind.CONVERSATION, "How the last runs ended", outcomes)


def shown_memories(opening: str) -> list[JsonObject]:
    """Return the memories that a run's first message reminds of, best first: content, created_at, tags."""
    return [*_memories(next((each.text for each in _opening_parts(opening) if each.kind is PartKind.MEMORIES), ""))]


def _memories(text: str) -> Iterator[JsonObject]:
    """Yield memories without their marks."""
    for line in filter(None, text.split("\n")):
        document = line.removeprefix(f"- {OPENING_DATA}").partition(CLOSING_DATA)[0]
        try:
            memory = orjson.loads(document)
        except orjson.JSONDecodeError:
            continue
        if isinstance(memory, dict):
            yield memory
