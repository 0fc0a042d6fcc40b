"""Skills: knowledge that an agent reads when it needs it (Agent Skills specification, agentskills.io)."""

from __future__ import annotations

from msgspec import Struct

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.hours import Hours

LOAD_SKILL = "internal.load_skill"


class Skill(Struct, frozen=True):
    """One SKILL.md: its metadata in memory, its text on disk until a run selects it."""

    name: str
    description: str
    path: str
    """The SKILL.md file."""
    tokens: int
    """Estimated length of what a model reads of it."""
    focus: tuple[str, ...] = ()
    """`owlclaw.focus`: foci that this skill serves."""
    triggers: tuple[str, ...] = ()
    """`owlclaw.trigger`: trigger kinds that this skill serves."""
    task_type: str = ""
    risk_level: str = "low"
    """How much harm its capability can do: the name of a Risk."""
    requires_confirmation: bool = False
    unmet: str = ""
    """Why it cannot be used on this machine, whatever a run may do."""
    tools: tuple[str, ...] = ()
    """Tools without which a run has no use for it: canonical names."""
    hours: tuple[Hours, ...] = ()
    """When it may be read, and its capability used: inside all of them."""
    daily_calls: int | None = None
    """How often its capability may be used in 24 hours."""
    cooldown: float = 0.0
    """Seconds between two uses of its capability."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables for the programs of runs that may read it."""
    notes: str = ""
    """What a model reads after its text: constraints that nothing but the model can keep."""

    @property
    def paced(self) -> bool:
        """Whether it says how often its capability may be used."""
        return self.daily_calls is not None or self.cooldown > 0

    def constraints(self) -> list[str]:
        """Return what the runtime sees to, in words."""
        said = [f"only {each}" for each in self.hours]
        if self.daily_calls is not None:
            said.append(f"{counted(self.daily_calls, 'call')} in 24 hours")
        if self.cooldown:
            said.append(f"{self.cooldown:g} s between calls")
        return [*said, *(f"with the tool {tool}" for tool in self.tools)]

    def is_about(self, tool: str) -> bool:
        """Return whether the tool is the skill's capability: their names are the same but for the application's and hyphens."""
        return tool.rpartition(".")[2].replace("-", "_") == self.name.replace("-", "_")


class Withheld(Struct, frozen=True):
    """Why a run must not read a skill."""

    by: str
    """`prerequisites`, `hours` or `risk`."""
    reason: str
