"""`owlclaw skill validate | list | show`: the skills of a folder, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from owlclaw_ray.counting import counted
from owlclaw_ray.errors import ConfigurationError, NotFoundError, Problem
from serve.cli.connection import HERE, FolderOption, JsonOption, environment
from serve.cli.output import complain, console, plain, print_json, table

if TYPE_CHECKING:
    from owlclaw_ray.domain.agent import AgentDefinition
    from owlclaw_ray.domain.json import JsonObject
    from owlclaw_ray.domain.skill import Skill

_SKILL_FILE = "SKILL.md"


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    skill = typer.Typer(no_args_is_help=True, help="Validate, list and show skills.")
    skill.command()(validate)
    skill.command("list")(list_skills)
    skill.command()(show)
    cli.add_typer(skill, name="skill")


def validate(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="SKILL.md files, or folders with skills. Default: all of the application.", metavar="PATH"),
    ] = None,
    *,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Check skills against the Agent Skills specification and the owlclaw extension; exit with 1 if one is broken."""
    from owlclaw_ray.configuration.governance import GovernanceFile
    from owlclaw_ray.definitions.skills.host_facts import Machine
    from owlclaw_ray.definitions.skills.loader import SkillConditions, load_skill
    from owlclaw_ray.settings import load_settings

    around = SkillConditions(Machine(environment()), GovernanceFile().trading_hours.of(()))
    findings: list[tuple[str, Problem]] = []
    count = broken = 0
    for each in paths or [load_settings(folder, environment()).agents_dir]:
        for path in _skill_files(each):
            count += 1
            try:
                findings += [("WARN", found) for found in load_skill(path.absolute(), str(path), around).problems]
            except ConfigurationError as error:
                broken += 1
                findings += [("FAIL", found) for found in error.problems]
    if as_json:
        print_json(
            [
                {"level": level, "where": found.where, "rule": found.rule, "what": found.what, "fix": found.fix}
                for level, found in findings
            ]
        )
    else:
        for level, found in findings:
            console().print(f"{level}  {plain(str(found))}  [{found.rule}]", soft_wrap=True)
        console().print(f"{counted(count, 'skill')}, {broken} of them broken")
    raise typer.Exit(1 if broken else 0)


def list_skills(
    agent: Annotated[str | None, typer.Argument(help="Only this definition's.", metavar="DEFINITION")] = None,
    *,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """List the skills of the application's definitions, and why some are not available on this machine."""
    definitions = list(_definitions(folder, agent))
    if as_json:
        print_json([_body(definition, each) for definition in definitions for each in definition.skills])
        return
    rows = [
        (definition.name, each.name, str(each.tokens), each.unmet or "ready", each.description)
        for definition in definitions
        for each in definition.skills
    ]
    table(("AGENT", "SKILL", "TOKENS", "STATE", "DESCRIPTION"), rows, empty="there are no skills")
    for definition in definitions:
        for warning in definition.warnings:
            complain(f"warning: {warning}")


def show(
    agent: Annotated[str, typer.Argument(help="The definition.", metavar="DEFINITION")],
    name: Annotated[str, typer.Argument(help="The skill.", metavar="SKILL")],
    *,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Show a skill with its metadata and its text as a model reads it."""
    from owlclaw_ray.definitions.skills.text import read_skill

    (definition,) = _definitions(folder, agent)
    skill = next((each for each in definition.skills if each.name == name), None)
    if skill is None:
        raise NotFoundError("skill", f"{agent}/{name}")
    body = _body(definition, skill)
    text = read_skill(skill)
    if as_json:
        print_json({**body, "path": skill.path, "text": text})
        return
    target = console()
    target.print(f"{name} · {counted(skill.tokens, 'token')} · {skill.unmet or 'ready'} · {skill.path}", soft_wrap=True)
    for key in ("description", "focus", "trigger", "task_type", "risk_level", "constraints"):
        value = body[key]
        said = ", ".join(value) if isinstance(value, list) else str(value)
        if said:
            target.print(f"  {key:<14}{plain(said)}", soft_wrap=True)
    target.print(f"\n{plain(text, keep_lines=True)}", soft_wrap=True)


def _definitions(folder: Path, only: str | None) -> Iterator[AgentDefinition]:
    """Yield the definitions that can be used, or the one that is asked for; complain about the others."""
    from owlclaw_ray.definitions.folder import DefinitionFolder
    from owlclaw_ray.definitions.skills.host_facts import Machine
    from owlclaw_ray.settings import load_settings

    settings = load_settings(folder, environment())
    source = DefinitionFolder(settings.agents_dir, settings.defaults, Machine(environment()))
    if only is not None:
        yield source.load(only)
        return
    for name in source.present():
        try:
            yield source.load(name)
        except ConfigurationError as error:
            complain(f"agent {name}: {error}")


def _skill_files(path: Path) -> list[Path]:
    """Return the SKILL.md files of a path; raises ConfigurationError if there are none."""
    if path.name == _SKILL_FILE or path.is_file():
        return [path]
    found = sorted(
        each
        for each in path.rglob(_SKILL_FILE)
        if not any(part.startswith(".") for part in each.relative_to(path).parts)
    )
    if not found:
        what = "holds no SKILL.md" if path.is_dir() else "does not exist"
        raise ConfigurationError([Problem(str(path), what, "name a SKILL.md, or a folder with skills in it")])
    return found


def _body(definition: AgentDefinition, skill: Skill) -> JsonObject:
    from serve.representations import skill_body

    return {"agent": definition.name, **skill_body(skill)}
