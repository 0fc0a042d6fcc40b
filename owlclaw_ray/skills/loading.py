"""Reading the SKILL.md files of a definition: the good ones as skills, the rest as warnings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from owlclaw_ray.configuration.problems import model_problems
from owlclaw_ray.configuration.yaml_document import YamlDocument, read_yaml
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.engine.sanitise import sanitise
from owlclaw_ray.engine.skill_text import split_skill
from owlclaw_ray.engine.tokens import estimate_tokens
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.skills.frontmatter import Frontmatter

SKILL_FILE = "SKILL.md"
MAX_SKILL_BYTES = 50 * 1024
_FRONTMATTER = "start the file with '---', then name: and description:, then '---'"


@dataclass(frozen=True, slots=True)
class LoadedSkill:
    """A skill, with what is odd about it but not wrong."""

    skill: Skill
    warnings: tuple[str, ...] = ()


def load_skills(folder: Path, shown: str) -> tuple[tuple[Skill, ...], tuple[str, ...]]:
    """Return the skills `*/SKILL.md` below a capabilities folder, by name, and warnings for those that were skipped.

    `shown` is how warnings name the folder. Never raises: a broken skill costs itself only.
    """
    skills: list[Skill] = []
    warnings: list[str] = []
    try:
        below = sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith((".", "_")))
    except OSError:
        return (), ()
    for each in below:
        try:
            loaded = load_skill(each / SKILL_FILE, f"{shown}/{each.name}/{SKILL_FILE}")
        except ConfigurationError as error:
            warnings += [f"{problem}; the skill is skipped" for problem in error.problems]
        else:
            skills.append(loaded.skill)
            warnings += loaded.warnings
    return tuple(sorted(skills, key=lambda skill: skill.name)), tuple(warnings)


def load_skill(path: Path, shown: str) -> LoadedSkill:
    """Read one SKILL.md; raises ConfigurationError with every problem, each with its line."""
    text = split_skill(_read(path, shown))
    if text.frontmatter is None:
        raise ConfigurationError([Problem(f"{shown}:1", "has no frontmatter", _FRONTMATTER)])
    document = read_yaml(text.frontmatter, shown, first_line=2)
    try:
        parsed = Frontmatter.model_validate(document.data)
    except ValidationError as error:
        raise ConfigurationError(model_problems(error, Frontmatter, document.where)) from error
    if parsed.name != path.parent.name:
        fix = f"rename the folder to {parsed.name}, or write name: {path.parent.name}"
        raise ConfigurationError(
            [Problem(document.where(("name",)), f"is {parsed.name!r}, not its folder's name", fix)]
        )
    if not text.body:
        raise ConfigurationError(
            [Problem(shown, "has nothing after its frontmatter", "write there what the agent must know")]
        )
    return LoadedSkill(_skill(parsed, path, text.body), _unknown_keys(document))


def _skill(parsed: Frontmatter, path: Path, body: str) -> Skill:
    extension = parsed.owlclaw
    return Skill(
        name=parsed.name,
        description=sanitise(parsed.description).strip(),
        path=str(path),
        tokens=estimate_tokens(body),
        focus=extension.focus,
        triggers=tuple(kind.value for kind in extension.trigger),
        task_type=extension.task_type,
        risk_level=extension.risk_level,
        requires_confirmation=extension.requires_confirmation,
    )


def _unknown_keys(document: YamlDocument) -> tuple[str, ...]:
    known = {info.alias or name for name, info in Frontmatter.model_fields.items()}
    return tuple(
        f"{document.where((key,))}: is no key of the Agent Skills specification; it is ignored"
        for key in sorted(document.data.keys() - known)
    )


def _read(path: Path, shown: str) -> str:
    try:
        if path.stat().st_size > MAX_SKILL_BYTES:
            what = f"is {path.stat().st_size} bytes long; a skill may have {MAX_SKILL_BYTES}"
            raise ConfigurationError([Problem(shown, what, "move details to files in references/")])
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise ConfigurationError([Problem(shown, "does not exist", _FRONTMATTER)]) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigurationError([Problem(f"{shown}:{line}", "is not UTF-8", "save it as UTF-8")]) from error
    except OSError as error:
        raise ConfigurationError([Problem(shown, f"cannot be read: {error.strerror}")]) from error
