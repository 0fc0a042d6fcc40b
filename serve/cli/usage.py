"""`owlclaw usage`: what runs and tool calls came to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, timedelta
from typing import Annotated

import typer

from owlclaw_ray import wire
from owlclaw_ray.kernel.system_clock import SystemClock
from serve.cli.connection import HERE, FolderOption, JsonOption, UrlOption, connect
from serve.cli.listings import LimitOption, one_of
from serve.cli.output import console, print_json, table, when

_FAILED = ("failed", "timeout", "terminated")


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(usage)


def usage(
    agent: Annotated[str | None, typer.Argument(help="Only this agent's runs.", metavar="AGENT")] = None,
    by: Annotated[str, typer.Option("--by", help="none, agent, definition or tool.", metavar="WHAT")] = "agent",
    grain: Annotated[str, typer.Option("--grain", help="minute, hour, day or total.", metavar="TIME")] = "total",
    days: Annotated[int, typer.Option("--days", min=1, max=92, help="So many days of UTC, today included.")] = 1,
    limit: LimitOption = 100,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Show what the runs that ended cost, or how long calls of tools took: today, or for several days."""
    what: wire.UsageBy = one_of(by, wire.UsageBy, "--by")
    of_each: wire.Grain = one_of(grain, wire.Grain, "--grain")
    midnight = SystemClock().now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    with connect(url, folder) as client:
        found = client.usage(midnight - timedelta(days=days - 1), grain=of_each, by=what, agent=agent, limit=limit)
    if as_json:
        print_json(found)
        return
    if what == "tool":
        _show_tools(found)
    else:
        _show_runs(found, what)
    if not found["complete"]:
        console().print(f"… and more: --limit {limit} left them out", style="dim")


def _show_runs(found: wire.UsageReport, by: wire.UsageBy) -> None:
    rows = [
        (
            when(each["begins_at"]),
            (each["agent"] if by == "agent" else each["definition"]) or "",
            f"{each['runs']:,}",
            f"{sum(number for name, number in each['outcomes'].items() if name in _FAILED):,}",  # type: ignore[misc]
            f"${each['cost']:,.4f}",
            f"{each['tokens']['prompt']:,}",
            f"{each['tokens']['completion']:,}",
            _seconds(each["queued_ms"] / each["runs"]),
            _seconds(each["running_ms"] / each["runs"]),
        )
        for each in found["runs"]
    ]
    titles = ("TIME", by.upper(), "RUNS", "FAILED", "COST", "PROMPT", "REPLY", "QUEUED", "TOOK")
    _table(titles, rows, found, named=by != "none", empty="no run has ended")


def _show_tools(found: wire.UsageReport) -> None:
    rows = [
        (
            when(each["begins_at"]),
            each["tool"],
            f"{each['calls']:,}",
            f"{each['failures']:,}",
            _seconds(each["mean_ms"]),
            _seconds(each["p95_ms"]),
            _seconds(each["longest_ms"]),
        )
        for each in found["tools"]
    ]
    titles = ("TIME", "TOOL", "CALLS", "FAILED", "MEAN", "95 % WITHIN", "LONGEST")
    _table(titles, rows, found, named=True, empty="no tool was called")


def _table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], found: wire.UsageReport, *, named: bool, empty: str
) -> None:
    """Print the columns that say something."""
    shown = [at for at in range(len(titles)) if (at or found["grain"] != "total") and (at != 1 or named)]
    table(
        [titles[at] for at in shown],
        [[row[at] for at in shown] for row in rows],
        empty=f"{empty} since {when(found['since'])}",
    )


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds < 1_000 else f"{milliseconds / 1_000:,.1f} s"
