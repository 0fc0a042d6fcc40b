"""`owlclaw trigger`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, get_args

import orjson
import typer

from owlclaw_ray import wire
from owlclaw_ray.domain.json import JsonValue
from serve.cli.connection import HERE, FolderOption, JsonOption, UrlOption, connect
from serve.cli.follow import follow, leave
from serve.cli.output import console, plain, print_json

POLICIES: dict[str, wire.BusyPolicy] = {each: each for each in get_args(wire.BusyPolicy)}
TaskTypeOption = Annotated[
    str, typer.Option("--task-type", help="What kind of work it is, for which the settings may name a model.")
]
PAYLOAD_HELP = "JSON, or @file with JSON, or - to read it from stdin."


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(trigger)


def trigger(
    agent: Annotated[str, typer.Argument(help="definition or definition:key", metavar="AGENT")],
    payload: Annotated[str | None, typer.Option("--payload", "-p", help=PAYLOAD_HELP)] = None,
    focus: Annotated[str, typer.Option("--focus", help="What the run should be about.")] = "",
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="The same key and body give the same run.")
    ] = None,
    *,
    busy: Annotated[str, typer.Option("--busy", help=f"If the agent has runs: {', '.join(POLICIES)}.")] = "enqueue",
    priority: Annotated[int, typer.Option("--priority", min=-10, max=10, help="Higher goes first.")] = 0,
    deadline: Annotated[
        float | None, typer.Option("--deadline", help="Seconds: begin it within them, and end it by then.")
    ] = None,
    task_type: TaskTypeOption = "",
    session: Annotated[str, typer.Option("--session", help="What the run's trace is grouped with.")] = "",
    user: Annotated[str, typer.Option("--user", help="For whom the run is, in its trace.")] = "",
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the end and print the result.")] = False,
    following: Annotated[bool, typer.Option("--follow", "-f", help="Print what happens, until the end.")] = False,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Trigger an agent; with --wait or --follow, exit with 0 only if its run completes."""
    from serve.cli.timeline import heading

    value = _payload(payload)
    with connect(url, folder) as client:
        accepted = client.submit(
            agent,
            value,
            focus,
            idempotency_key=idempotency_key,
            busy=_policy(busy),
            priority=priority,
            deadline=deadline,
            task_type=task_type,
            session=session,
            user=user,
        )
        run_id = accepted["run_id"]
        scripted = bool(accepted.get("scripted"))
        if not as_json:
            console().print(heading(run_id, accepted["agent"], scripted=scripted))
        if following:
            follow(client, run_id, as_json=as_json)
        if not wait:
            if as_json:
                print_json(accepted)
            else:
                console().print(f"{_standing(accepted)}; follow it with: owlclaw tail {run_id}")
            return
        for event in client.events(run_id):
            if event["kind"] == "run_waiting" and event["data"].get("approvals"):
                asked = event["data"]["approvals"]
                how = f"decide with: owlclaw approvals allow {asked[0]}"
                typer.echo(f"waiting for approvals: {', '.join(asked)} ({how})", err=True)
        run = client.run(run_id)
        if as_json:
            print_json(run)
        else:
            _print_outcome(run)
        leave(run["status"])


def _policy(text: str) -> wire.BusyPolicy:
    if text not in POLICIES:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(POLICIES)}", param_hint="--busy")
    return POLICIES[text]


def _standing(accepted: wire.Accepted | wire.Run) -> str:
    if accepted.get("merged"):
        return f"merged into this run, which is {accepted['status']}"
    if accepted.get("interrupted"):
        return f"{accepted['status']}, and {accepted.get('interrupted')} is interrupted"
    return accepted["status"]


def _print_outcome(run: wire.Run) -> None:
    result, target = run["result"], console()
    error = result and result["error"]
    target.print(run["status"] + (f": {plain(error['message'])}" if error else ""), soft_wrap=True)
    if result and result["final_text"]:
        target.print(plain(result["final_text"], keep_lines=True), soft_wrap=True)


def _payload(option: str | None) -> JsonValue:
    if option is None:
        return None
    source, text = "--payload", option
    if option == "-":
        source, text = "stdin", sys.stdin.read()
    elif option.startswith("@"):
        source = option[1:]
        try:
            text = Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"{source} cannot be read: {error}", param_hint="--payload") from None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        place = f"{error.msg} at line {error.lineno}, column {error.colno}"
        fix = """quote a plain text twice: --payload '"text"'"""
        raise typer.BadParameter(f"{source} is not JSON: {place}; {fix}", param_hint="--payload") from None
