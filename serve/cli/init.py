"""`owlclaw init`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.tools.names import namespace_problems
from serve.cli.output import console

_SCAFFOLD = Path(__file__).parent / "scaffold"
_TEMPLATE = ".template"
_APPLICATION = b"my_app"
"""The application's name in the files of the scaffold, used where the folder's name cannot be one."""
_LONGEST_NAME = 32
_TAKEN = {"agent", "code", "internal", "mcp"}
"""Prefixes of the runtime's own tools."""


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(init)


def init(folder: Annotated[Path, typer.Argument(help="The folder; created if it does not exist.")] = Path()) -> None:
    """Write an application, named after the folder, with one agent whose model is a script, ready to run. Overwrites nothing."""
    sources = sorted(path for path in _SCAFFOLD.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    targets = [folder / str(path.relative_to(_SCAFFOLD)).removesuffix(_TEMPLATE) for path in sources]
    present = [path for path in targets if path.exists()]
    if present:
        fix = "choose another folder, or move it away"
        raise ConfigurationError([Problem(str(path), "exists already; nothing was written", fix) for path in present])
    name = re.sub(r"[^A-Za-z0-9_]+", "_", folder.resolve().name).strip("_").lstrip("0123456789_")[:_LONGEST_NAME]
    application = _APPLICATION if name in _TAKEN or namespace_problems(name) else name.encode()
    target = console()
    for source, path in zip(sources, targets, strict=True):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(source.read_bytes().replace(_APPLICATION, application))
        except OSError as error:
            what, fix = f"cannot be written: {error.strerror}", "choose a folder that you may write to"
            raise ConfigurationError([Problem(str(path), what, fix)]) from error
        target.print(f"wrote {path}", soft_wrap=True)
    enter = "" if folder == Path() else f"cd {folder}\n  "
    target.print(f"\nNow:\n  {enter}owlclaw up\nand in another terminal:\n  {enter}owlclaw trigger assistant --follow")
