"""`owlclaw top`: what a runtime does, now."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from owlclaw_ray.counting import counted
from owlclaw_ray.errors import NotFoundError, RuntimeUnavailableError
from serve.cli.connection import HERE, FolderOption, UrlOption, connect
from serve.cli.output import console, plain
from serve.numbers import MetricsDelta, Numbers

_MAX_ROWS = 12
_ANY_WIDTH = 10_000
_OK = "ok"
_ATTEMPTS = ("delivered", "failed", "dead")


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(top)


def top(
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.1, help="Seconds between two looks.")] = 2.0,
    times: Annotated[int | None, typer.Option("--times", "-n", min=1, help="Look so often; else until Ctrl-C.")] = None,
    *,
    node: Annotated[str | None, typer.Option("--node", help="Leave out what other nodes counted.")] = None,
    url: UrlOption = None,
    folder: FolderOption = HERE,
) -> None:
    """Show what a runtime does: runs, models, tools, actors, nodes. The first look shows counts, later ones what a second brings."""
    screen = console()
    with connect(url, folder) as client:
        boards = looks(client.metrics, interval, times, node)
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


def looks(
    metrics: Callable[[], str], interval: float, times: int | None, node: str | None = None
) -> Iterator[RenderableType]:
    """Yield what is to be shown, a look at a time. A server that does not answer any more is asked again; the first look raises.

    `node`: what others counted is left out; NotFoundError if there is none of that name at the first look.
    """
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
            if node is not None:
                if before is None and node not in now.nodes():
                    raise NotFoundError("node", node)
                now = now.of_node(node)
            shown = render_dashboard(MetricsDelta(now, before, moment - looked))
            before, looked = now, moment
            yield shown
        if number == times:
            return
        time.sleep(interval)


def render_dashboard(change: MetricsDelta) -> Group:
    """Return everything that is shown of a change."""
    tables = [table for table in (_models(change), _tools(change)) if table.row_count]
    nodes = [_NodeTable(change.now)] if len(change.now.nodes()) > 1 else []
    return Group(*(Text(plain(line)) for line in _lines(change)), *nodes, *tables)


class _NodeTable:
    """What each node does, now. Where there is no room for all columns, those further to the right are left out."""

    def __init__(self, now: Numbers) -> None:
        self._now = now

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = self._columns()
        for count in range(len(columns), 1, -1):
            grid = _grid("NODE", *(title for title, _ in columns[:count]))
            for node in self._now.nodes():
                grid.add_row(Text(plain(node)), *(cell(node) for _, cell in columns[:count]))
            if Measurement.get(console, options.update(max_width=_ANY_WIDTH), grid).maximum <= options.max_width:
                break
        yield grid

    def _columns(self) -> Sequence[tuple[str, Callable[[str], str]]]:
        of, now = self._of, self._now
        slots = now.by("owlclaw_node_slots", ("node", "slots", "state"))
        calls = now.by("owlclaw_provider_calls", ("node", "state"))

        def tools(node: str) -> str:
            used, there = (slots.get((node, "tool_slots", state), 0.0) for state in ("used", "all"))
            return f"{used:,.0f}/{there:,.0f}"

        return (
            ("STATE", lambda node: "up" if self._values("owlclaw_node_up").get((node,)) else "silent"),
            ("RUNNING", of("owlclaw_node_running", "{:,.0f}".format)),
            ("AGENTS", of("owlclaw_node_agents", "{:,.0f}".format)),
            ("TOOLS", tools),
            ("WAITING", of("owlclaw_node_waiting_calls", "{:,.0f}".format)),
            ("MEMORY", of("owlclaw_node_memory_ratio", "{:.0%}".format)),
            ("STORE", of("owlclaw_node_store_seconds", _seconds)),
            ("MODELS", lambda node: f"{calls.get((node, 'running'), 0.0):,.0f}"),
            ("ACTORS", of("owlclaw_node_actors", "{:,.0f}".format)),
        )

    def _values(self, sample: str) -> Mapping[tuple[str, ...], float]:
        return self._now.by(sample, ("node",))

    def _of(self, sample: str, shown: Callable[[float], str]) -> Callable[[str], str]:
        values = self._values(sample)
        return lambda node: "-" if (node,) not in values else shown(values[(node,)])


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
    if lease := now.by("owlclaw_cluster_lease_held", ()):
        yield f"lease   {'held: this cluster runs the agents' if sum(lease.values()) else 'not held: this cluster stands by'}"
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
