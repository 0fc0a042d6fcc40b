"""Skills: knowledge that an agent reads when it needs it (Agent Skills specification, agentskills.io)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Skill:
    """One SKILL.md: its metadata in memory, its text on disk until a run selects it."""

    name: str
    description: str
    path: str
    """The SKILL.md file."""
    tokens: int
    """Estimated length of the text without frontmatter."""
    focus: tuple[str, ...] = ()
    """`owlclaw.focus`: foci that this skill serves."""
    triggers: tuple[str, ...] = ()
    """`owlclaw.trigger`: trigger kinds that this skill serves."""
    task_type: str = ""
    risk_level: str = "low"
    """How much harm its capability can do: the name of a Risk."""
    requires_confirmation: bool = False

    def is_about(self, tool: str) -> bool:
        """Return whether the tool is the skill's capability: their names are the same but for the application's and hyphens."""
        return tool.rpartition(".")[2].replace("-", "_") == self.name.replace("-", "_")
