"""SKILL.md as text: where its frontmatter ends, and what a model gets to read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from owlclaw_ray.engine.sanitise import sanitise

_FENCE = "---"


@dataclass(frozen=True, slots=True)
class SkillText:
    """The two parts of a SKILL.md."""

    frontmatter: str | None
    """None when the file does not start with a closed `---` block."""
    body: str
    """Everything after the frontmatter, without blank lines around it."""


def split_skill(text: str) -> SkillText:
    """Split a SKILL.md. Byte order mark and CRLF are tolerated; a file without frontmatter is all body."""
    lines = sanitise(text).split("\n")
    if lines[0].rstrip() == _FENCE:
        for number, line in enumerate(lines[1:], start=1):
            if line.rstrip() == _FENCE:
                return SkillText("\n".join(lines[1:number]) + "\n", "\n".join(lines[number + 1 :]).strip())
    return SkillText(None, "\n".join(lines).strip())


def read_skill_body(path: str) -> str:
    """Return the text of a SKILL.md without its frontmatter, as the model reads it. Raises OSError or UnicodeDecodeError."""
    return split_skill(Path(path).read_bytes().decode("utf-8")).body
