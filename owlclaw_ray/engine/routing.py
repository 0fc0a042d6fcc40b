"""Which models a run asks: those of its type of task, if they are named, else its definition's (G6)."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentDefinition
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.domain.trigger import Trigger
from owlclaw_ray.engine.skill_selection import by_relevance


class Route(Struct, frozen=True):
    """The models of a run."""

    task_type: str
    by: str
    """Who says what type of task it is: `trigger`, or `skill <name>`."""
    models: tuple[str, ...]

    def data(self) -> JsonObject:
        """Return its JSON form."""
        return {"task_type": self.task_type, "by": self.by, "models": list(self.models)}


def route_of(data: JsonObject | None) -> Route | None:
    """Return the route of that JSON form, None for none."""
    return None if data is None else Route(data["task_type"], data["by"], tuple(data["models"]))


def route(definition: AgentDefinition, trigger: Trigger, selected: Collection[Skill]) -> Route | None:
    """Return the models of the run's type of task, or None if the definition's own are to be asked.

    The trigger's type goes before those of the skills that the run reads because of it, of which the most relevant counts that has
    models.
    """
    routes = dict(definition.routes)
    if not routes:
        return None
    if trigger.task_type in routes:
        return Route(trigger.task_type, "trigger", routes[trigger.task_type])
    found = (each for each in by_relevance(definition.skills, trigger, selected) if each.task_type in routes)
    return next((Route(each.task_type, f"skill {each.name}", routes[each.task_type]) for each in found), None)
