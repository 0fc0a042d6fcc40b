"""A definition's folder, read and checked as a whole (R1)."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace
from pydantic import ValidationError

from owlclaw_ray.configuration.models import EndpointFile
from owlclaw_ray.configuration.problems import model_problems
from owlclaw_ray.configuration.yaml_document import YamlDocument, read_yaml
from owlclaw_ray.definitions.agent_file import AgentFile
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.definitions.skills.host_facts import Machine
from owlclaw_ray.definitions.skills.loader import (
    CAPABILITIES_FOLDER,
    SkillConditions,
    injections,
    load_skills,
    skill_folders,
)
from owlclaw_ray.definitions.skills.text import SKILL_FILE
from owlclaw_ray.domain.agent import AgentDefinition
from owlclaw_ray.domain.callback import NO_CALLBACKS
from owlclaw_ray.domain.endpoint import KEYLESS, provider_of
from owlclaw_ray.domain.governance import Governance, Risk
from owlclaw_ray.domain.permission import PermissionRules
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.errors import ConfigurationError, DefinitionError, Problem
from owlclaw_ray.models.sanitise import neutralise

FILES = SOUL, IDENTITY, AGENT = "SOUL.md", "IDENTITY.md", "agent.yaml"
MAX_BYTES = 10 * 1024
CAPABILITIES = frozenset({"my capabilities", "我的能力"})
CONSTRAINTS = frozenset({"my constraints", "constraints", "我的约束", "约束"})
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_SECTION_LEVEL = 2
_CONTENT = {
    SOUL: "write there who the agent is: its role and its principles",
    IDENTITY: "write there a section '## My Capabilities' (or '## 我的能力') and, if it has limits, '## My Constraints'",
    AGENT: "it holds settings such as model and limits",
}


def load_definition(folder: Path, defaults: Defaults, machine: Machine | None = None) -> AgentDefinition:
    """Read the definition in a folder. Raises DefinitionError with every problem, each naming its file.

    Broken skills, those whose prerequisites the machine does not meet, and what looks like an attempt to inject instructions are
    warnings of the definition; they raise nothing.
    """
    problems: list[Problem] = []
    warnings: list[str] = []
    soul = _text(folder / SOUL, problems, warnings)
    identity = _text(folder / IDENTITY, problems, warnings)
    capabilities = section(identity, CAPABILITIES) if identity else ""
    if identity and not capabilities:
        what = (
            "has no section '## My Capabilities' (or '## 我的能力')"
            if capabilities is None
            else "has an empty capabilities section"
        )
        problems.append(Problem(_shown(folder / IDENTITY), what, "write there what the agent can do, one point a line"))
    settings = _agent_file(folder / AGENT, problems)
    problems += _setting_problems(_shown(folder / AGENT), settings, defaults)
    if problems:
        raise DefinitionError(problems)
    rules = PermissionRules() if settings.permissions is None else settings.permissions.rules
    trading_hours = settings.governance.trading_hours.of(())
    skills, of_skills = load_skills(
        folder / CAPABILITIES_FOLDER,
        f"{shown_folder(folder)}/{CAPABILITIES_FOLDER}",
        SkillConditions(machine or Machine(), trading_hours),
    )
    warnings += of_skills
    return AgentDefinition(
        name=folder.name,
        version=_version(folder, defaults, warnings),
        folder=str(folder),
        soul=soul,
        capabilities=capabilities or "",
        constraints=section(identity, CONSTRAINTS) or "",
        model=settings.model_choice(defaults),
        limits=settings.limits.over(defaults.limits),
        isolation=settings.isolation,
        skills=skills,
        tools=settings.tools.choice(),
        permissions=replace(defaults.permissions, own=rules),
        preload_memories=settings.preload_memories,
        timezone=settings.timezone,
        governance=_governance(settings, defaults, skills),
        heartbeat=None if settings.heartbeat is None else settings.heartbeat.heartbeat(),
        callback_url=settings.callback_url,
        routes=tuple({**dict(defaults.routes), **settings.routes}.items()),
        states=settings.tools.states.choice(),
        warnings=tuple(warnings),
    )


def _governance(settings: AgentFile, defaults: Defaults, skills: Iterable[Skill]) -> Governance:
    """Return the definition's rules, with the budgets that all definitions have, and what skills say of their capabilities."""
    own = settings.governance.governance(settings.tools.limits)
    governed = tuple(
        skill
        for skill in skills
        if skill.risk_level != Risk.LOW.value or skill.requires_confirmation or skill.paced or skill.hours
    )
    return dataclasses.replace(own, budgets=(*own.budgets, *defaults.budgets), skills=governed)


def _setting_problems(shown: str, settings: AgentFile, defaults: Defaults) -> Iterator[Problem]:
    """Yield what does not go together: agent.yaml, shown under that name, with itself and with the settings."""
    taken = {budget.name for budget in defaults.budgets}
    for budget in settings.governance.budgets:
        if budget.name in taken:  # both would count the same use twice
            what = (
                f"has a budget named {budget.name!r}, and so has owlclaw.yaml, or its tenant's tenant.yaml, whose budgets "
                "hold for every definition"
            )
            yield Problem(f"{shown}: governance.budgets", what, "remove it, or give it another name")
    if url := settings.callback_url:
        refused = NO_CALLBACKS if defaults.callbacks is None else defaults.callbacks.problem(url)
        if refused:
            yield Problem(f"{shown}: callback_url", refused)
    model = settings.model_choice(defaults).chain[0]
    if settings.key_secret and provider_of(model).startswith(KEYLESS):
        yield Problem(f"{shown}: key_secret", f"is for {model}, whose credentials are more than a key", "remove it")
    if model.startswith("scripted:") or provider_of(model) == model:
        what = f"goes with a model of a provider, and the model is {model}"
        fix = f"write model: openai/{model} if that address speaks OpenAI's protocol"
        for key in sorted(settings.model_fields_set & EndpointFile.model_fields.keys()):
            yield Problem(f"{shown}: {key}", what, "name a real model" if ":" in model else fix)


def source_files(folder: Path) -> list[str]:
    """Return the files that a definition is made of, below its folder, in a stable order, whether or not they exist."""
    names = skill_folders(folder / CAPABILITIES_FOLDER)
    return [SOUL, IDENTITY, AGENT, *(f"{CAPABILITIES_FOLDER}/{name}/{SKILL_FILE}" for name in names)]


def _text(path: Path, problems: list[Problem], warnings: list[str]) -> str:
    """Return a required text, cleaned; empty, with a problem noted, if it cannot be used."""
    content = _bytes(path, problems, required=True)
    try:
        written = (content or b"").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        problems.append(Problem(f"{_shown(path)}:{line}", "is not UTF-8", "save it as UTF-8"))
        return ""
    text = neutralise(written).strip()
    if content is not None and not text:
        problems.append(Problem(_shown(path), "is empty", _CONTENT[path.name]))
    warnings += map(str, injections(written, _shown(path)))
    return text


def agent_document(folder: Path) -> YamlDocument:
    """Return a definition's agent.yaml as it is written, which says where its keys stand; empty if it cannot be read."""
    path = folder / AGENT
    try:
        return read_yaml(path.read_text("utf-8-sig"), _shown(path))
    except (OSError, UnicodeDecodeError, ConfigurationError):
        return YamlDocument(_shown(path), {})


def _agent_file(path: Path, problems: list[Problem]) -> AgentFile:
    content = _bytes(path, problems, required=False)
    try:
        document = read_yaml((content or b"").decode("utf-8-sig"), _shown(path))
        return AgentFile.model_validate(document.data)
    except UnicodeDecodeError:
        problems.append(Problem(_shown(path), "is not UTF-8", "save it as UTF-8"))
    except ValidationError as error:
        problems += model_problems(error, AgentFile, document.where)
    except ConfigurationError as error:
        problems += error.problems
    return AgentFile()


def _bytes(path: Path, problems: list[Problem], *, required: bool) -> bytes | None:
    """Return the file's content; None, with a problem noted unless it may be missing, if it cannot be used."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        if required:
            problems.append(Problem(_shown(path), "does not exist", _CONTENT[path.name]))
        return None
    except OSError as error:
        problems.append(Problem(_shown(path), f"cannot be read: {error.strerror}", _CONTENT[path.name]))
        return None
    if len(content) > MAX_BYTES:
        fix = f"{MAX_BYTES} are allowed; move knowledge to {CAPABILITIES_FOLDER}/<name>/{SKILL_FILE}"
        problems.append(Problem(_shown(path), f"is {len(content)} bytes long", fix))
        return None
    return content


def _shown(path: Path) -> str:
    """Return a file of a definition as messages name it: below the folder of its tenant, if it has one."""
    return f"{shown_folder(path.parent)}/{path.name}"


def shown_folder(folder: Path) -> str:
    """Return a definition's folder as messages name it."""
    owner = folder.parent.name
    return f"{owner}/{folder.name}" if owner.startswith("@") else folder.name


def _version(folder: Path, defaults: Defaults, warnings: list[str]) -> str:
    """Return the hash of all that the definition was made of; warnings tell what the machine does not have."""
    digest = hashlib.sha256(repr((defaults, warnings)).encode())
    if folder.parent.name.startswith("@"):
        digest.update(shown_folder(folder).encode())
    for name in source_files(folder):
        path = folder / name
        content = path.read_bytes() if path.is_file() else b""
        for part in (name.encode(), content):
            digest.update(len(part).to_bytes(8))
            digest.update(part)
    return digest.hexdigest()[:16]


def section(text: str, titles: Collection[str]) -> str | None:
    """Return the text of the sections with one of the titles (case does not matter), or None if there is none.

    A section reaches to the next heading of the first or second level. Headings inside code fences are text.
    """
    parts: list[str] = []
    inside, fence = False, ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        heading = None if fence else _HEADING.fullmatch(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence):
            fence = ""
        if heading and len(heading[1]) <= _SECTION_LEVEL:
            inside = len(heading[1]) == _SECTION_LEVEL and heading[2].strip().casefold() in titles
            if inside:
                parts.append("")
        elif inside:
            parts[-1] += f"{line}\n"
    return "\n\n".join(part.strip() for part in parts if part.strip()) if parts else None
