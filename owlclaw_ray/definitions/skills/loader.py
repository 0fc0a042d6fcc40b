"""Reading the SKILL.md files of a definition: the good ones as skills, the rest as warnings."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import ValidationError

from owlclaw_ray.configuration.problems import model_problems
from owlclaw_ray.configuration.yaml_document import KeyPath, YamlDocument, read_yaml
from owlclaw_ray.definitions.skills.frontmatter import NAMES, VALUES, Frontmatter
from owlclaw_ray.definitions.skills.host_facts import Machine
from owlclaw_ray.definitions.skills.text import REFERENCES, SKILL_FILE, SkillText, skill_text, split_skill
from owlclaw_ray.domain.hours import Hours
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.models.sanitise import inspect, neutralise
from owlclaw_ray.models.tokens import estimate_tokens

CAPABILITIES_FOLDER = "capabilities"
MAX_SKILL_BYTES = 50 * 1024
MAX_LINES = 500
"""What the specification recommends."""
_FRONTMATTER = "start the file with '---', then name: and description:, then '---'"
_LINK = re.compile(rf"(?:\]\(|[`\"' ])((?:\./)?{REFERENCES}/[^\s)`\"'#]+)")


class SkillConditions(Struct, frozen=True):
    """What a skill is judged by that is not written in it."""

    machine: Machine = field(default_factory=Machine)
    trading_hours: Hours | None = None
    """What `trading_hours_only` means; without it a skill that says so is broken."""


class LoadedSkill(Struct, frozen=True):
    """A skill, with what is odd about it but not wrong."""

    skill: Skill
    problems: tuple[Problem, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The problems as sentences."""
        return tuple(map(str, self.problems))


def skill_folders(folder: Path) -> list[str]:
    """Return the names of the folders below a capabilities folder that are, or should be, skills, sorted."""
    try:
        with os.scandir(folder) as below:
            return sorted(each.name for each in below if not each.name.startswith((".", "_")) and each.is_dir())
    except OSError:
        return []


def load_skills(
    folder: Path, shown: str, skill_conditions: SkillConditions | None = None
) -> tuple[tuple[Skill, ...], tuple[str, ...]]:
    """Return the skills `*/SKILL.md` below a capabilities folder, by name, and warnings for those that were skipped.

    `shown` is how warnings name the folder. Never raises: a broken skill costs itself only.
    """
    skills: list[Skill] = []
    warnings: list[str] = []
    for name in skill_folders(folder):
        try:
            loaded = load_skill(folder / name / SKILL_FILE, f"{shown}/{name}/{SKILL_FILE}", skill_conditions)
        except ConfigurationError as error:
            warnings += [f"{problem}; the skill is skipped" for problem in error.problems]
        else:
            skills.append(loaded.skill)
            warnings += loaded.warnings
    return tuple(sorted(skills, key=lambda skill: skill.name)), tuple(warnings)


def load_skill(path: Path, shown: str, skill_conditions: SkillConditions | None = None) -> LoadedSkill:
    """Read one SKILL.md; raises ConfigurationError with every problem, each with its line and the rule that is broken."""
    raw = _read(path, shown)
    text = split_skill(raw)
    if text.frontmatter is None:
        raise ConfigurationError([Problem(f"{shown}:1", "has no frontmatter", _FRONTMATTER, "frontmatter")])
    document, parsed = _parsed(text.frontmatter, shown)
    problems: list[Problem] = []
    folder = unicodedata.normalize("NFKC", path.parent.name)
    if parsed.name != folder:
        fix = f"rename the folder to {parsed.name}, or write name: {folder}"
        what = f"is {parsed.name!r}, not its folder's name"
        problems.append(Problem(document.where(("name",)), what, fix, "name-is-folder"))
    if not text.body:
        fix = "write there what the agent must know"
        end = text.frontmatter.count("\n") + 2
        problems.append(Problem(f"{shown}:{end}", "has nothing after its frontmatter", fix, "body"))
    around = skill_conditions or SkillConditions()
    constraints = parsed.owlclaw.constraints
    if constraints.trading_hours_only and around.trading_hours is None:
        place = document.where(("owlclaw", "constraints", "trading_hours_only"))
        problems.append(Problem(place, "there are no trading hours", "write hours: instead", "constraints"))
    if problems:
        raise ConfigurationError(problems)
    unmet = tuple(around.machine.missing(parsed.owlclaw))
    skill = _skill(parsed, path, text, around)
    skill = replace(skill, unmet="; ".join(what for _, what in unmet))
    unmet_problems = [
        Problem(document.where(("owlclaw", *key.split("."))), f"{what}; the skill is not read", rule="prerequisites")
        for key, what in unmet
    ]
    return LoadedSkill(skill, (*unmet_problems, *_skill_warnings(raw, skill, parsed, document)))


def _parsed(frontmatter: str, shown: str) -> tuple[YamlDocument, Frontmatter]:
    try:
        document = read_yaml(frontmatter, shown, first_line=2)
    except ConfigurationError as error:
        raise ConfigurationError([replace(each, rule="frontmatter") for each in error.problems]) from error
    try:
        return document, Frontmatter.model_validate(document.data)
    except ValidationError as error:
        places = [each["loc"] for each in error.errors()]
        problems = model_problems(error, Frontmatter, lambda path: document.where(_written(path)))
        own = (place[:2] if place[0] == "owlclaw" else place[:1] for place in places)
        rules = (".".join(map(str, place)) for place in own)
        ruled = [replace(problem, rule=rule) for problem, rule in zip(problems, rules, strict=True)]
        raise ConfigurationError(ruled) from error


def _written(path: Sequence[str | int]) -> KeyPath:
    """Return the path without what pydantic adds to it: which of two forms it took a value for, and that it looked at a key."""
    parts = tuple(part for part in path if part != "[key]")
    return (
        (*parts[:2], *parts[3:]) if parts[:2] == ("owlclaw", "env") and parts[2:3] in {(NAMES,), (VALUES,)} else parts
    )


def _skill(parsed: Frontmatter, path: Path, text: SkillText, around: SkillConditions) -> Skill:
    extension = parsed.owlclaw
    constraints = extension.constraints
    hours: tuple[Hours, ...] = () if constraints.hours is None else (constraints.hours.of(()),)
    if constraints.trading_hours_only and around.trading_hours is not None:
        hours = (*hours, around.trading_hours)
    notes = ""
    if unenforced := constraints.model_extra:
        lines = [neutralise(f"- {name}: {value}") for name, value in sorted(unenforced.items())]
        notes = "\n".join(("Keep to these constraints:", *lines))
    return Skill(
        name=parsed.name,
        description=" ".join(neutralise(parsed.description).split()),
        path=str(path),
        tokens=estimate_tokens(skill_text(text.body, notes)),
        focus=extension.focus,
        triggers=tuple(kind.value for kind in extension.trigger),
        task_type=extension.task_type,
        risk_level=extension.risk_level,
        requires_confirmation=extension.requires_confirmation,
        tools=extension.prerequisites.tools,
        hours=hours,
        daily_calls=constraints.max_daily_calls,
        cooldown=constraints.cooldown_seconds,
        environment=tuple(sorted(extension.env.items())) if isinstance(extension.env, dict) else (),
        notes=notes,
    )


def _skill_warnings(raw: str, skill: Skill, parsed: Frontmatter, document: YamlDocument) -> Iterator[Problem]:
    known = {info.alias or name for name, info in Frontmatter.model_fields.items()}
    for key in sorted(document.data.keys() - known):
        what = "is no key of the Agent Skills specification; it is ignored"
        yield Problem(document.where((key,)), what, rule="unknown-key")
    for key, value in parsed.metadata.items():
        if not isinstance(value, str):
            what = "is no text, as the specification wants it; it is ignored"
            yield Problem(document.where(("metadata", key)), what, "put it in quotes", "metadata")
    source = document.source
    yield from injections(raw, source)
    lines = raw.count("\n") + 1
    if lines > MAX_LINES:
        yield Problem(source, f"has {lines} lines", f"move what is over {MAX_LINES} to {REFERENCES}/", "length")
    for number, line in enumerate(raw.split("\n"), start=1):
        for found in _LINK.finditer(line):
            target = found[1].rstrip(".,;:")
            if not (Path(skill.path).parent / target).is_file():
                yield Problem(f"{source}:{number}", f"names {target}, which does not exist", rule="references")


def injections(text: str, shown: str) -> Iterator[Problem]:
    """Yield what in the text of a file looks like an attempt to inject instructions."""
    for found in inspect(text):
        what = f"looks like {found.attempt.value}" + (f": {found.text!r}" if found.text else "")
        yield Problem(f"{shown}:{found.line}", what, "it is marked, and models are told not to obey it", "injection")


def _read(path: Path, shown: str) -> str:
    try:
        size = path.stat().st_size
        if size > MAX_SKILL_BYTES:
            what = f"is {size} bytes long; a skill may have {MAX_SKILL_BYTES}"
            raise ConfigurationError([Problem(shown, what, f"move details to files in {REFERENCES}/", "size")])
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigurationError([Problem(shown, "does not exist", _FRONTMATTER, "file")]) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        problem = Problem(f"{shown}:{line}", "is not UTF-8", "save it as UTF-8", "encoding")
        raise ConfigurationError([problem]) from error
    except OSError as error:
        raise ConfigurationError([Problem(shown, f"cannot be read: {error.strerror}", rule="file")]) from error
