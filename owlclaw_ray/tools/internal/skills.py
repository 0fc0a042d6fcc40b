"""SkillTools: an agent reads its skills, and the files of their references/, when it needs them (R4)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from owlclaw_ray.configuration.governance import GovernanceFile
from owlclaw_ray.definitions.folder import definition_folder
from owlclaw_ray.definitions.skills.loader import (
    CAPABILITIES_FOLDER,
    MAX_SKILL_BYTES,
    SkillConditions,
    load_skill,
    load_skills,
    skill_folders,
)
from owlclaw_ray.definitions.skills.text import REFERENCES, SKILL_FILE, read_skill
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.skill import LOAD_SKILL, Skill
from owlclaw_ray.domain.tool import Effect, Permission, ToolClass, ToolDefinition
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.models.sanitise import neutralise
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.large_output import INLINE_LIMIT
from owlclaw_ray.tools.signature import arguments_of_model

_RESULT_BYTES = 2 * MAX_SKILL_BYTES + 16 * 1024
"""A skill is never read in part: its text as JSON, and the names of its files."""
_REFERENCE_BYTES = 10 * 1024 * 1024
_MAX_REFERENCES = 200


class LoadSkill(BaseModel):
    """Arguments of internal.load_skill."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(max_length=64, description="The skill. Leave it out to list all skills.")] = ""
    path: Annotated[
        str,
        Field(max_length=500, description="A file of the skill instead of its text, such as references/limits.md."),
    ] = ""


class SkillTools:
    """Implements ToolAdapter. Reads the skills of the calling agent's definition, as far as its run may read them."""

    source: ClassVar[str] = "the skill tools"

    def __init__(self, agents_dir: Path) -> None:
        self._agents_dir = agents_dir

    @staticmethod
    def definitions() -> tuple[ToolDefinition, ...]:
        """See ToolSource.definitions."""
        return (
            ToolDefinition(
                LOAD_SKILL,
                "Read one of your skills by name, or a file of it by path. Without a name: list your skills and what they are about.",
                arguments_of_model(LoadSkill, LOAD_SKILL).schema,
                Permission.READONLY,
                Effect.PURE,
                ToolClass.QUICK,
                tags=frozenset({"internal", "readonly"}),
                metadata={INLINE_LIMIT: _RESULT_BYTES},
            ),
        )

    def run(self, invocation: ToolInvocation) -> JsonObject:
        """See ToolAdapter.run."""
        (asked,) = arguments_of_model(LoadSkill, LOAD_SKILL).read(LOAD_SKILL, invocation.arguments).positional
        assert isinstance(asked, LoadSkill)
        folder = definition_folder(self._agents_dir, invocation.agent.qualified_definition) / CAPABILITIES_FOLDER
        withheld = dict(invocation.withheld_skills)
        if not asked.name:
            if asked.path:
                raise ToolFailureError("invalid_arguments", "a path needs the name of its skill")
            skills, _ = load_skills(folder, CAPABILITIES_FOLDER, _skill_conditions())
            listed = [each for each in skills if each.name not in withheld]
            return {"skills": [{"name": each.name, "description": each.description} for each in listed]}
        if asked.name in withheld:
            raise ToolFailureError(
                "skill_withheld", f"{asked.name} must not be read in this run: {withheld[asked.name]}"
            )
        skill = _skill(folder, asked.name, withheld)
        files = Path(skill.path).parent
        if asked.path:
            return {"skill": skill.name, "path": asked.path, "text": _reference(files, asked.path)}
        return {"skill": skill.name, "text": read_skill(skill), REFERENCES: _references(files)}


def _skill(folder: Path, name: str, withheld: dict[str, str]) -> Skill:
    names = skill_folders(folder)
    if name not in names:
        known = ", ".join(each for each in names if each not in withheld) or "none"
        raise ToolFailureError("skill_not_found", f"there is no skill {name!r}; there are: {known}")
    try:
        return load_skill(folder / name / SKILL_FILE, f"{name}/{SKILL_FILE}", _skill_conditions()).skill
    except ConfigurationError as error:
        raise ToolFailureError("skill_broken", f"the skill {name} cannot be read: {error}") from error


def _skill_conditions() -> SkillConditions:
    """What to read skills with whose conditions were judged when the run began, as `withheld_skills` says."""
    return SkillConditions(trading_hours=GovernanceFile().trading_hours.of(()))


def _references(files: Path) -> list[str]:
    """Return the files that can be read beside the skill, by the paths to ask for."""
    below = (files / REFERENCES).rglob("*")
    names = sorted(each.relative_to(files).as_posix() for each in below if each.is_file())
    return names[:_MAX_REFERENCES]


def _reference(files: Path, path: str) -> str:
    root = (files / REFERENCES).resolve()
    target = (files / path.replace("\0", "")).resolve()
    if not target.is_relative_to(root) or not target.is_file():
        known = ", ".join(_references(files)) or "none"
        raise ToolFailureError("reference_not_found", f"there is no file {path!r} of this skill; there are: {known}")
    try:
        if target.stat().st_size > _REFERENCE_BYTES:
            raise ToolFailureError("reference_too_large", f"{path} has more than {_REFERENCE_BYTES} bytes")
        return neutralise(target.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ToolFailureError("reference_not_text", f"{path} is no text in UTF-8") from error
    except OSError as error:
        raise ToolFailureError("reference_unreadable", f"{path} cannot be read: {error.strerror}") from error
