"""Following a run to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from serve.cli.output import complain, console, print_json_line

if TYPE_CHECKING:
    from owlclaw_ray.client import SyncClient

INTERRUPTED = 130


def follow(client: SyncClient, run_id: str, *, as_json: bool) -> None:
    """Print the run's events as they happen, then leave with exit code 0 if it ended well, else 1."""
    from serve.cli.timeline import Timeline

    timeline = Timeline(console())
    status, told = "", False
    try:
        for event in client.events(run_id):
            if as_json:
                print_json_line(event)
            else:
                timeline.show(event)
                if event["kind"] == "run_waiting" and not told:
                    told = True
                    typer.echo("still following; Ctrl-C leaves, the run stays as it is", err=True)
            status = event["data"]["status"] if event["kind"] == "run_finished" else ""
    except KeyboardInterrupt:
        complain(f"the run goes on; follow it again with: owlclaw tail {run_id}")
        raise typer.Exit(INTERRUPTED) from None
    leave(status or client.run(run_id)["status"])


def leave(status: str) -> None:
    """End the command with the exit code of a run's final status."""
    raise typer.Exit(0 if status in {"completed", "skipped"} else 1)
