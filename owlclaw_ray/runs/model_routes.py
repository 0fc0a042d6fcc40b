"""Which models a run asks: those of its type of task, if they are named, else its definition's (G6)."""

from __future__ import annotations

from collections.abc import Collection

from owlclaw_ray.domain.agent import AgentDefinition
from owlclaw_ray.domain.model import ModelRoute
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.domain.trigger import Trigger
from owlclaw_ray.runs.skill_selection import by_relevance


def route(definition: AgentDefinition, trigger: Trigger, selected: Collection[Skill]) -> ModelRoute | None:
    """Return the models of the run's type of task, or None if the definition's own are to be asked.

    The trigger's type goes before those of the skills that the run reads because of it, of which the most relevant counts that has
    models.
    """
    routes = dict(definition.routes)
    if not routes:
        return None
    if trigger.task_type in routes:
        return ModelRoute(trigger.task_type, "trigger", routes[trigger.task_type])
    found = (each for each in by_relevance(definition.skills, trigger, selected) if each.task_type in routes)
    return next((ModelRoute(each.task_type, f"skill {each.name}", routes[each.task_type]) for each in found), None)
