"""`owlclaw runs` and `owlclaw tail`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from owlclaw_ray import wire
from serve.cli.connection import HERE, FolderOption, JsonOption, UrlOption, connect
from serve.cli.follow import follow
from serve.cli.listings import ALL, SinceOption, StatusOption, UntilOption, moment_of, status_of
from serve.cli.output import console, print_json, shortened, table, when

if TYPE_CHECKING:
    from owlclaw_ray.client import SyncClient

_RUN_ID = re.compile(r"run_[0-9a-z]{26}")
_TEXT_WIDTH = 60


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command()(runs)
    cli.command()(tail)


def runs(
    which: Annotated[str | None, typer.Argument(help="An agent, or a run.", metavar="AGENT|RUN_ID")] = None,
    status: StatusOption = ALL,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="At most so many.")] = 20,
    *,
    definition: Annotated[str | None, typer.Option("--definition", help="Only of this definition's agents.")] = None,
    trigger: Annotated[
        str, typer.Option("--trigger", help="Filter by kind of trigger; `all` for every kind.", metavar="KIND")
    ] = ALL,
    since: SinceOption = None,
    until: UntilOption = None,
    text: Annotated[str | None, typer.Option("--text", help="Only those whose focus has all of these words.")] = None,
    not_over: Annotated[bool, typer.Option("--open", help="Only those that are not over.")] = False,
    before: Annotated[str | None, typer.Option("--before", help="Only those accepted before this run.")] = None,
    payload: Annotated[bool, typer.Option("--payload", help="With --json: what each was triggered with, too.")] = False,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """List runs, newest first; or show one run with its timeline."""
    with connect(url, folder) as client:
        if which is not None and _RUN_ID.fullmatch(which):
            _show(client, which, as_json=as_json)
            return
        page = client.runs(
            which,
            status_of(status, wire.RunStatus),
            limit,
            before,
            definition=definition,
            trigger=status_of(trigger, wire.TriggerKind, "--trigger"),
            since=moment_of(since, "--since"),
            until=moment_of(until, "--until"),
            text=text,
            not_over=not_over,
            payloads=payload,
        )
        if which is not None and not page["runs"]:
            client.agent(which)  # a misspelt name is an error, as with every other command
    if as_json:
        print_json(page)
        return
    rows = [
        (run["run_id"], run["agent"], _status(run), run["trigger"]["kind"], when(run["created_at"]), _outcome(run))
        for run in page["runs"]
    ]
    table(("RUN", "AGENT", "STATUS", "TRIGGER", "CREATED", "OUTCOME"), rows, empty="there are no runs")
    if page["searched_to"] is not None:
        console().print(f"searched back to {when(page['searched_to'])}; go on with --before {page['next_before']}")


def tail(
    run_id: Annotated[str, typer.Argument(help="The run.", metavar="RUN_ID")],
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Print what happens in a run, from its start until its end; exit with 0 only if it completes."""
    with connect(url, folder) as client:
        follow(client, run_id, as_json=as_json)


def _show(client: SyncClient, run_id: str, *, as_json: bool) -> None:
    from serve.cli.timeline import Timeline, heading

    run = client.run(run_id, events=True)
    if as_json:
        print_json(run)
        return
    target = console()
    scripted = run["result"] is not None and run["result"]["scripted"]
    target.print(heading(run_id, run["agent"], scripted=scripted))
    timeline = Timeline(target, over=run["status"] != "waiting")
    for event in run["events"]:
        timeline.show(event)
    if run["result"] is None:
        target.print(f"{_status(run)}; follow it with: owlclaw tail {run_id}")


def _status(run: wire.Run) -> str:
    return f"{run['status']} ({run['waits_for']})" if "waits_for" in run else run["status"]


def _outcome(run: wire.Run) -> str:
    result = run["result"]
    if result is None:
        return ""
    return shortened(result["error"]["message"] if result["error"] else result["final_text"], _TEXT_WIDTH)
