"""`owlclaw init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from owlclaw_ray.errors import ConfigurationError, Problem
from serve.cli.output import console

_SCAFFOLD = Path(__file__).parent / "scaffold"
_TEMPLATE = ".template"


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(init)


def init(folder: Annotated[Path, typer.Argument(help="Where; made if it is not there.")] = Path()) -> None:
    """Write an application with one agent that works at once, answered by a script. Overwrites nothing."""
    sources = sorted(path for path in _SCAFFOLD.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    targets = [folder / str(path.relative_to(_SCAFFOLD)).removesuffix(_TEMPLATE) for path in sources]
    present = [path for path in targets if path.exists()]
    if present:
        fix = "choose another folder, or move it away"
        raise ConfigurationError([Problem(str(path), "is there already; nothing was written", fix) for path in present])
    target = console()
    for source, path in zip(sources, targets, strict=True):
        _write(source, path)
        target.print(f"wrote {path}", soft_wrap=True)
    enter = "" if folder == Path() else f"cd {folder}\n  "
    target.print(f"\nNow:\n  {enter}owlclaw up\nand in another terminal:\n  {enter}owlclaw trigger assistant --follow")


def _write(source: Path, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(source.read_bytes())
    except OSError as error:
        raise ConfigurationError(
            [Problem(str(path), f"cannot be written: {error.strerror}", "choose a folder that you may write to")]
        ) from error
