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
    requires_confirmation: bool = False
