"""Which skills a run reads (R4): what its focus asks for, then what serves its kind of trigger, then what is about the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime

import orjson
from msgspec import Struct

from owlclaw_ray.domain.agent import AgentDefinition
from owlclaw_ray.domain.json import JsonText
from owlclaw_ray.domain.model import ModelRoute
from owlclaw_ray.domain.permission import Approver
from owlclaw_ray.domain.skill import Skill, Withheld
from owlclaw_ray.domain.trigger import Trigger

_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff]+")
_SAYS_NOTHING = frozenset(
    re.findall(
        r"\w+",
        "a about after all an and any are as at be been before but by can do does for from had has have how i if in into is it its "
        "me my no not of on once one only or our out over should so some such than that the their them then there these they this "
        "to under up use used was we were what when where which while who why will with would you your",
    )
)
_KNOWN_INDEXES = 1_000


def withheld_skills(definition: AgentDefinition, visible: Iterable[str], now: datetime) -> dict[str, Withheld]:
    """Return the skills that a run with these tools must not read now, each with the reason.

    Those whose prerequisites are not met, those outside their hours, and, where nobody can be asked, those that need a
    confirmation which neither they themselves have nor the capability that they are about.
    """
    nobody = definition.permissions.approver is Approver.NOBODY
    guarded = [each for each in definition.skills if nobody or each.unmet or each.hours or each.tools]
    tools = frozenset(visible) if guarded else frozenset[str]()
    found = {each.name: _withheld_reason(each, definition, tools, now) for each in guarded}
    return {name: why for name, why in found.items() if why is not None}


def _withheld_reason(
    skill: Skill, definition: AgentDefinition, tools: frozenset[str], now: datetime
) -> Withheld | None:
    absent = ", ".join(tool for tool in skill.tools if tool not in tools)
    if skill.unmet or absent:
        return Withheld("prerequisites", skill.unmet or f"the run does not have {absent}")
    closed = next((each for each in skill.hours if not each.contains(now)), None)
    if closed is not None:
        return Withheld("hours", f"it is outside {closed}")
    if definition.permissions.approver is not Approver.NOBODY:
        return None
    why = definition.governance.unconfirmed_skill(skill)
    if not why or any(map(skill.is_about, tools)):
        return None
    return Withheld("risk", f"{why}, and it is not confirmed (governance.confirmed in agent.yaml)")


def select_skills(
    skills: Sequence[Skill], trigger: Trigger, limit_tokens: int, withheld: Container[str] = ()
) -> tuple[Skill, ...]:
    """Return the most relevant skills that fit into the limit together, each whole, ordered by name.

    Relevance decides who gets in; the order by name keeps the system message the same for the same selection. A skill that
    no longer fits leaves its room to less relevant, shorter ones. What has nothing to do with the trigger is read only when no
    skill has, and only if all of it fits: some of it would be chosen by chance, and cost what a chosen skill costs. The order
    of `skills` does not matter; those whose names are `withheld` do not count.
    """
    index = _index_of(tuple(skills))
    ranks = index.ranks(trigger)
    ranked = sorted(ranks, key=lambda at: (ranks[at], index.keys[at]))
    chosen, left = [], limit_tokens
    for skill in (index.skills[at] for at in ranked):
        if skill.tokens <= left and skill.name not in withheld:
            left -= skill.tokens
            chosen.append(skill)
    if not chosen:
        others = [each for at, each in enumerate(index.skills) if at not in ranks and each.name not in withheld]
        chosen = others if sum(each.tokens for each in others) <= limit_tokens else []
    return tuple(sorted(chosen, key=lambda skill: (skill.name, skill.path)))


def model_route(definition: AgentDefinition, trigger: Trigger, selected: Collection[Skill]) -> ModelRoute | None:
    """Return the models of the run's type of task (G6), or None if the definition's own are to be asked.

    The trigger's type goes before those of the skills that the run reads because of it, of which the most relevant counts that has
    models.
    """
    routes = dict(definition.routes)
    if not routes:
        return None
    if trigger.task_type in routes:
        return ModelRoute(trigger.task_type, "trigger", routes[trigger.task_type])
    index = _index_of(tuple(definition.skills))
    ranks = index.ranks(trigger)
    ranked = (index.skills[at] for at in sorted(ranks, key=lambda at: (ranks[at], index.keys[at])))
    found = (each for each in ranked if each in selected and each.task_type in routes)
    return next((ModelRoute(each.task_type, f"skill {each.name}", routes[each.task_type]) for each in found), None)


class _Index(Struct, frozen=True):
    """What is known of some skills before there is a trigger, so that a run costs the same however many there are."""

    skills: tuple[Skill, ...]
    keys: tuple[tuple[str, str], ...]
    names: tuple[tuple[int, str], ...]
    foci: tuple[tuple[int, str], ...]
    by_trigger: Mapping[str, tuple[int, ...]]
    by_word: Mapping[str, tuple[int, ...]]
    words: tuple[int, ...]
    """How many words each is about."""

    def ranks(self, trigger: Trigger) -> dict[int, tuple[int, int, float]]:
        """Return the rank, the lowest first, of each skill that has something to do with the trigger."""
        named = self._named(trigger.focus)
        timed = frozenset(self.by_trigger.get(trigger.kind.value, ()))
        common = Counter(at for word in _words(_text_of(trigger)) for at in self.by_word.get(word, ()))
        related = {at: shared / self.words[at] for at, shared in common.items()}
        return {at: (-named.get(at, 0), -int(at in timed), -related.get(at, 0.0)) for at in {*named, *timed, *related}}

    def _named(self, focus: str) -> dict[int, int]:
        """Return the skills that a focus names (2), or whose declared foci it matches (1)."""
        asked = focus.casefold().strip()
        if not asked:
            return {}
        declared = {at: 1 for at, each in self.foci if each in asked or asked in each}
        return declared | {at: 2 for at, name in self.names if name in asked and _contains_name(asked, name)}


_INDEXES: dict[int, _Index] = {}
"""By the identity of the skills, which a definition keeps as long as its files do not change: to compare skills takes longer."""


def _index_of(skills: tuple[Skill, ...]) -> _Index:
    found = _INDEXES.get(id(skills))
    if found is None or found.skills is not skills:
        if len(_INDEXES) >= _KNOWN_INDEXES:
            _INDEXES.clear()
        found = _INDEXES[id(skills)] = _new_index(skills)
    return found


def _new_index(skills: tuple[Skill, ...]) -> _Index:
    about = [_words(" ".join((each.name, each.description, each.task_type, *each.focus))) for each in skills]
    by_trigger: dict[str, list[int]] = {}
    by_word: dict[str, list[int]] = {}
    for at, skill in enumerate(skills):
        for kind in skill.triggers:
            by_trigger.setdefault(kind, []).append(at)
        for word in about[at]:
            by_word.setdefault(word, []).append(at)
    foci = [(at, each.casefold().strip()) for at, skill in enumerate(skills) for each in skill.focus]
    keys = tuple((each.name, each.path) for each in skills)
    return _Index(
        skills,
        keys,
        tuple((at, each.name.casefold()) for at, each in enumerate(skills)),
        tuple((at, each) for at, each in foci if each),
        {kind: tuple(found) for kind, found in by_trigger.items()},
        {word: tuple(found) for word, found in by_word.items()},
        tuple(map(len, about)),
    )


def _contains_name(asked: str, name: str) -> bool:
    return re.search(rf"(?<![a-z0-9-]){re.escape(name)}(?![a-z0-9-])", asked) is not None


def _text_of(trigger: Trigger) -> str:
    content = trigger.content
    if isinstance(content, JsonText):
        return f"{trigger.focus} {content.text}"
    payload = "" if content is None else orjson.dumps(content).decode()
    return f"{trigger.focus} {payload}"


def _words(text: str) -> frozenset[str]:
    """Return the words of a text that say something; of CJK runs, which have no spaces, every pair of neighbours and single characters."""
    found: set[str] = set()
    for word in _WORD.findall(text.casefold()):
        found.update(_CJK.sub(" ", word).split())
        for run in _CJK.findall(word):
            found.update(run[index : index + 2] for index in range(max(1, len(run) - 1)))
    return frozenset(found - _SAYS_NOTHING)
