"""How commands print: text for people, JSON for programs, errors to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from owlclaw_ray.domain.json import JsonValue

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 240


def console() -> Console:
    """Return a console on stdout that never breaks lines in pipes."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def print_json(value: JsonValue) -> None:
    """Print a JSON document, indented."""
    import orjson

    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def print_json_line(value: JsonValue) -> None:
    """Print a JSON document on one line."""
    import orjson

    typer.echo(orjson.dumps(value).decode())


def complain(message: str) -> None:
    """Print an error."""
    typer.secho(plain(message, keep_lines=True), err=True, fg=typer.colors.RED)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> None:
    """Print rows under titles, or the sentence `empty` if there are none."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(*titles, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        grid.add_row(*(Text(plain(cell)) for cell in row))
    target = console()
    if grid.row_count:
        target.print(grid)
    else:
        target.print(empty)


def plain(text: str, *, keep_lines: bool = False) -> str:
    """Return the text without what a terminal would obey: models and tools may write anything."""
    kept = "\n\t" if keep_lines else ""
    return "".join(
        character if character.isprintable() or character in kept else " " for character in text.replace("\r\n", "\n")
    )


def shortened(text: str, width: int) -> str:
    """Return a text as one line of at most so many characters."""
    line = " ".join(plain(text).split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def when(moment: str | None) -> str:
    """Return an ISO 8601 time as lists show it, to the second."""
    return "" if moment is None else moment[:19].replace("T", " ") + "Z"
