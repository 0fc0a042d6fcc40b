"""`owlclaw top`: what a runtime does, now."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from owlclaw_ray.counting import counted
from owlclaw_ray.errors import RuntimeUnavailableError
from serve.cli.connection import HERE, FolderOption, UrlOption, connect
from serve.cli.numbers import MetricsDelta, Numbers
from serve.cli.output import console, plain

_MAX_ROWS = 12
_OK = "ok"
_ATTEMPTS = ("delivered", "failed", "dead")


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(top)


def top(
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.1, help="Seconds between two looks.")] = 2.0,
    times: Annotated[int | None, typer.Option("--times", "-n", min=1, help="Look so often; else until Ctrl-C.")] = None,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
) -> None:
    """Show what a runtime does: runs, models, tools, actors. The first look shows counts, later ones what a second brings."""
    screen = console()
    with connect(url, folder) as client:
        boards = looks(client.metrics, interval, times)
        if not screen.is_terminal:
            for shown in boards:
                screen.print(shown, end="\n\n")
            return
        try:
            with Live(console=screen, auto_refresh=False, screen=times is None) as live:
                for shown in boards:
                    live.update(shown, refresh=True)
        except KeyboardInterrupt:
            return


def looks(metrics: Callable[[], str], interval: float, times: int | None) -> Iterator[RenderableType]:
    """Yield what is to be shown, a look at a time. A server that does not answer any more is asked again; the first look raises."""
    from owlclaw_ray.telemetry.metrics.exposition import read

    before, looked, shown = None, 0.0, Group()
    for number in itertools.count(1):
        try:
            now, moment = Numbers(read(metrics())), time.monotonic()
        except RuntimeUnavailableError as error:
            if before is None:
                raise
            yield Group(shown, Text(plain(f"no answer, these are the numbers of before: {error}")))
        else:
            shown = render_dashboard(MetricsDelta(now, before, moment - looked))
            before, looked = now, moment
            yield shown
        if number == times:
            return
        time.sleep(interval)


def render_dashboard(change: MetricsDelta) -> Group:
    """Return everything that is shown of a change."""
    tables = [table for table in (_models(change), _tools(change)) if table.row_count]
    return Group(*(Text(plain(line)) for line in _lines(change)), *tables)


def _lines(change: MetricsDelta) -> Iterator[str]:
    now = change.now
    active = {key[0]: value for key, value in now.by("owlclaw_runs", ("status",)).items()}
    yield "runs    " + ", ".join(f"{active.get(each, 0):,.0f} {each}" for each in ("queued", "running", "waiting"))
    ended = {key[0]: value for key, value in change.by("owlclaw_runs_ended_total", "status").items() if value}
    said = ", ".join(f"{change.shown(value)} {status}" for status, value in sorted(ended.items()))
    yield f"ended   {said or 'none'}"
    yield f"waits   {_mean(change, 'owlclaw_queue_seconds')} in the queue, {_mean(change, 'owlclaw_activation_seconds')} with activation"
    actors = {key[0]: value for key, value in now.by("owlclaw_actors", ("state",)).items()}
    held = now.total("owlclaw_agents_in_memory")
    yield f"actors  {actors.get('occupied', 0):,.0f} occupied, {actors.get('warm', 0):,.0f} warm, {counted(round(held), 'agent')} in memory"
    fenced = now.total("owlclaw_fencing_rejections_total")
    commands = change.shown(change.total("owlclaw_commands_total"))
    yield f"store   {commands} commands, {_mean(change, 'owlclaw_commit_seconds')} a commit, {fenced:,.0f} fenced"
    if exported := now.by("owlclaw_traces_exported_total", ()):
        waiting, dropped = now.total("owlclaw_traces_waiting"), now.total("owlclaw_traces_dropped_total")
        yield f"traces  {sum(exported.values()):,.0f} exported, {waiting:,.0f} waiting, {dropped:,.0f} given up"
    if attempts := change.by("owlclaw_callback_attempts_total", "outcome"):
        made = ", ".join(f"{change.shown(attempts.get((each,), 0))} {each}" for each in _ATTEMPTS)
        yield f"told    {counted(round(now.total('owlclaw_callbacks_pending')), 'callback')} pending, {made}"
    if reachable := now.by("owlclaw_hatchet_reachable", ()):
        alarms, rings = now.total("owlclaw_hatchet_alarms"), change.total("owlclaw_hatchet_rings_total")
        state = "reachable" if sum(reachable.values()) else "away"
        yield f"hatchet {state}, {alarms:,.0f} alarms, {change.shown(rings)} rings"
    down = sorted(part for (part,), up in now.by("owlclaw_up", ("part",)).items() if not up)
    if down:
        yield f"down    {', '.join(down)}"


def _models(change: MetricsDelta) -> Table:
    calls = change.by("owlclaw_model_calls_total", "model", "error")
    tokens, cost = change.by("owlclaw_tokens_total", "model", "kind"), change.by("owlclaw_cost_dollars_total", "model")
    means = change.mean("owlclaw_model_call_seconds", "model")
    grid = _grid("MODEL", "CALLS", "FAILED", "MEAN", "TOKENS", "COST")
    for name in _busiest(calls):
        used = sum(value for (model, kind), value in tokens.items() if model == name and kind != "cached")
        grid.add_row(*_cells(change, name, calls, means), change.shown(used), f"${cost.get((name,), 0.0):,.4f}")
    return grid


def _tools(change: MetricsDelta) -> Table:
    calls, means = (
        change.by("owlclaw_tool_calls_total", "tool", "error"),
        change.mean("owlclaw_tool_call_seconds", "tool"),
    )
    grid = _grid("TOOL", "CALLS", "FAILED", "MEAN")
    for name in _busiest(calls):
        grid.add_row(*_cells(change, name, calls, means))
    return grid


def _cells(
    change: MetricsDelta, name: str, calls: Mapping[tuple[str, ...], float], means: Mapping[tuple[str, ...], float]
) -> tuple[str | Text, ...]:
    made = sum(value for key, value in calls.items() if key[0] == name)
    failed = sum(value for key, value in calls.items() if key[0] == name and key[1] != _OK)
    return Text(plain(name)), change.shown(made), change.shown(failed), _seconds(means.get((name,)))


def _busiest(calls: Mapping[tuple[str, ...], float]) -> list[str]:
    sums: dict[str, float] = {}
    for (name, *_), value in calls.items():
        sums[name] = sums.get(name, 0.0) + value
    return sorted((name for name, value in sums.items() if value), key=lambda name: -sums[name])[:_MAX_ROWS]


def _grid(*titles: str) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for at, title in enumerate(titles):
        grid.add_column(title, justify="right" if at else "left")
    return grid


def _mean(change: MetricsDelta, histogram: str) -> str:
    return _seconds(change.mean(histogram).get(()))


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f} s" if value >= 1 else f"{value * 1_000:,.1f} ms"
