"""Which skills a run reads (R4): what its focus asks for, then what serves its kind of trigger, then what is about the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import orjson

from owlclaw_ray.domain.agent import AgentDefinition
from owlclaw_ray.domain.permission import Approver
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.domain.trigger import Trigger

_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff]+")


def withheld_skills(definition: AgentDefinition, visible: Iterable[str]) -> dict[str, str]:
    """Return the skills that a run with these tools must not read, each with the reason.

    Where people can be asked they are asked about calls, and every skill may be read. Elsewhere a skill that needs a
    confirmation has it if it is confirmed itself, or if the capability that it is about is visible.
    """
    if definition.permissions.approver is not Approver.NOBODY:
        return {}
    objections = [
        (skill, why) for skill in definition.skills if (why := definition.governance.unconfirmed_skill(skill))
    ]
    tools = tuple(visible) if objections else ()
    return {
        skill.name: f"{why}, and nobody confirmed it (governance.confirmed in agent.yaml)"
        for skill, why in objections
        if not any(map(skill.is_about, tools))
    }


def select_skills(skills: Iterable[Skill], trigger: Trigger, limit_tokens: int) -> tuple[Skill, ...]:
    """Return the most relevant skills that fit into the limit together, each whole, ordered by name.

    Relevance decides who gets in; the order by name keeps the system message the same for the same selection. A skill that
    no longer fits leaves its room to less relevant, shorter ones. The order of `skills` does not matter.
    """
    words = _words(_text_of(trigger))
    ranked = sorted(skills, key=lambda skill: (_rank(skill, trigger, words), skill.name, skill.path))
    return tuple(sorted(_fitting(ranked, limit_tokens), key=lambda skill: (skill.name, skill.path)))


def _fitting(ranked: Sequence[Skill], limit: int) -> Iterable[Skill]:
    for skill in ranked:
        if skill.tokens <= limit:
            limit -= skill.tokens
            yield skill


def _rank(skill: Skill, trigger: Trigger, words: frozenset[str]) -> tuple[int, int, float]:
    about = _words(" ".join((skill.name, skill.description, skill.task_type, *skill.focus)))
    overlap = len(words & about) / len(about) if about else 0.0
    return -_focus_match(skill, trigger.focus), -int(trigger.kind.value in skill.triggers), -overlap


def _focus_match(skill: Skill, focus: str) -> int:
    asked = focus.casefold().strip()
    if not asked:
        return 0
    if _contains_name(asked, skill.name):
        return 2
    declared = (each.casefold().strip() for each in skill.focus)
    return int(any(each and (each in asked or asked in each) for each in declared))


def _contains_name(asked: str, name: str) -> bool:
    return re.search(rf"(?<![a-z0-9-]){re.escape(name.casefold())}(?![a-z0-9-])", asked) is not None


def _text_of(trigger: Trigger) -> str:
    payload = "" if trigger.payload is None else orjson.dumps(trigger.payload).decode()
    return f"{trigger.focus} {payload}"


def _words(text: str) -> frozenset[str]:
    """Return the words of a text; of CJK runs, which have no spaces, every pair of neighbours and single characters."""
    found: set[str] = set()
    for word in _WORD.findall(text.casefold()):
        found.update(_CJK.sub(" ", word).split())
        for run in _CJK.findall(word):
            found.update(run[index : index + 2] for index in range(max(1, len(run) - 1)))
    return frozenset(found)
