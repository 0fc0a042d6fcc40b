"""What the commands that list things have in common."""

from __future__ import annotations

from typing import Annotated, Any, get_args

import typer

StatusOption = Annotated[
    str, typer.Option("--status", help="Filter by status; `all` for every status.", metavar="STATUS")
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="At most so many.")]
ALL = "all"


def status_of(text: str, statuses: Any) -> Any:
    """Return the status that `--status` names, of a Literal of `owlclaw_ray.wire`; None for all of them."""
    known = get_args(statuses)
    if text == ALL:
        return None
    if text in known:
        return text
    raise typer.BadParameter(f"{text!r} is none of {', '.join(known)}, {ALL}", param_hint="--status")


def one_of(text: str, choices: Any, option: str) -> Any:
    """Return the text, if it is one of a Literal of `owlclaw_ray.wire`."""
    known = get_args(choices)
    if text not in known:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(known)}", param_hint=option)
    return text
