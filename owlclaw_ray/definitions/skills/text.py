"""SKILL.md as text: where its frontmatter ends, and what a model gets to read."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.models.sanitise import neutralise, sanitise

SKILL_FILE, REFERENCES = "SKILL.md", "references"
_FENCE = "---"


class SkillText(Struct, frozen=True):
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


def skill_text(body: str, notes: str) -> str:
    """Return what a model reads of a skill with this body."""
    return "\n\n".join(part for part in (neutralise(body), notes) if part)


def read_skill(skill: Skill) -> str:
    """Return the text of a skill, as the model reads it. Raises OSError or UnicodeDecodeError.

    A file that has not changed is not read again.
    """
    path = Path(skill.path)
    status = path.stat()
    return _text_at(path, status.st_mtime_ns, status.st_size, skill.notes)


@lru_cache(maxsize=256)
def _text_at(path: Path, modified_ns: int, size: int, notes: str) -> str:
    del modified_ns, size
    return skill_text(split_skill(path.read_bytes().decode("utf-8")).body, notes)
