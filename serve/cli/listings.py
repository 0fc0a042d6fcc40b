"""What the commands that list things have in common."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, get_args

import typer

from owlclaw_ray.kernel.system_clock import SystemClock

StatusOption = Annotated[
    str, typer.Option("--status", help="Filter by status; `all` for every status.", metavar="STATUS")
]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="At most so many.")]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", help="Only from this time on: a time (UTC unless it has a zone), or 90m, 24h, 7d ago."),
]
UntilOption = Annotated[str | None, typer.Option("--until", help="Only before this time; as --since.")]
ALL = "all"
_AGO = re.compile(r"(\d{1,9})(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def status_of(text: str, statuses: Any, option: str = "--status") -> Any:
    """Return the status, or whatever it is, that an option names, of a Literal of `owlclaw_ray.wire`; None for all of them."""
    known = get_args(statuses)
    if text == ALL:
        return None
    if text in known:
        return text
    raise typer.BadParameter(f"{text!r} is none of {', '.join(known)}, {ALL}", param_hint=option)


def moment_of(text: str | None, option: str) -> datetime | None:
    """Return the time that an option names, None for None."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    try:
        if ago:
            return SystemClock().now() - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        said = f"{text!r} is no time: write 2026-11-03, 2026-11-03T09:30:00+08:00, or 90m, 24h, 7d"
        raise typer.BadParameter(said, param_hint=option) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def one_of(text: str, choices: Any, option: str) -> Any:
    """Return the text, if it is one of a Literal of `owlclaw_ray.wire`."""
    known = get_args(choices)
    if text not in known:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(known)}", param_hint=option)
    return text
