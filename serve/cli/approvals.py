"""`owlclaw approvals list | show | allow | deny`: calls that wait for a person."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from owlclaw_ray import wire
from owlclaw_ray.counting import counted
from owlclaw_ray.domain.json import JsonObject
from serve.cli.connection import HERE, FolderOption, JsonOption, UrlOption, connect
from serve.cli.listings import LimitOption, StatusOption, status_of
from serve.cli.output import console, plain, print_json, table, when
from serve.cli.user_name import person

ApprovalArgument = Annotated[str, typer.Argument(help="The approval.", metavar="APPROVAL_ID")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; the model is told if it is denied.")]
ByOption = Annotated[str, typer.Option("--by", help="Who decides.", show_default="the user of this machine")]


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    approvals = typer.Typer(
        name="approvals", help="See and decide about tool calls that wait for a person.", no_args_is_help=True
    )
    approvals.command("list")(list_approvals)
    approvals.command()(show)
    approvals.command()(allow)
    approvals.command()(deny)
    cli.add_typer(approvals)


def list_approvals(
    agent: Annotated[str | None, typer.Option("--agent", help="Only this agent's.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="Only this run's.")] = None,
    status: StatusOption = "pending",
    limit: LimitOption = 100,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """List calls that wait for a decision, newest first."""
    with connect(url, folder) as client:
        found = client.approvals(agent, run, status_of(status, wire.ApprovalStatus), limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["approval_id"], each["status"], each["agent"], each["tool"], each["target"], when(each["expires_at"]))
        for each in found
    ]
    table(("APPROVAL", "STATUS", "AGENT", "TOOL", "TARGET", "EXPIRES"), rows, empty="nothing waits for a decision")


def show(
    approval_id: ApprovalArgument,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Show a call with all that it takes to judge it."""
    with connect(url, folder) as client:
        _print(client.approval(approval_id), as_json=as_json)


def allow(
    approval_id: ApprovalArgument,
    arguments: Annotated[
        str | None, typer.Option("--arguments", help="Other arguments for the call, all of them, as a JSON object.")
    ] = None,
    reason: ReasonOption = "",
    by: ByOption = "",
    *,
    session: Annotated[
        bool,
        typer.Option(
            "--session", help="Also later calls of this tool on this target, while the agent stays in memory."
        ),
    ] = False,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Let a call run."""
    changed = None if arguments is None else _object(arguments)
    with connect(url, folder) as client:
        settled = client.decide(
            approval_id,
            "allow_for_session" if session else "allow_once",
            reason=reason,
            by=by or person(),
            arguments=changed,
        )
    _print(settled, as_json=as_json)


def deny(
    approval_id: ApprovalArgument,
    reason: ReasonOption = "",
    by: ByOption = "",
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Do not let a call run; the agent goes on without it."""
    with connect(url, folder) as client:
        settled = client.decide(approval_id, "deny", reason=reason, by=by or person())
    _print(settled, as_json=as_json)


def _print(approval: wire.Approval, *, as_json: bool) -> None:
    if as_json:
        print_json(approval)
        return
    target = console()
    target.print(f"{approval['approval_id']} · {approval['status']} · {plain(approval['tool'])}", style="bold")
    for name, value in _lines(approval):
        target.print(f"  {name:<13}{plain(value)}", soft_wrap=True)


def _lines(approval: wire.Approval) -> list[tuple[str, str]]:
    tags = ", ".join(approval["tags"])
    lines = [
        ("agent", f"{approval['agent']} (role {approval['role']})"),
        ("started by", f"{approval['parent']}, as {approval['started_as']}" if approval["parent"] else ""),
        ("run", f"{approval['run_id']}, by {approval['trigger']} {approval['source']}".rstrip()),
        ("does", approval["description"]),
        ("permission", f"{approval['permission']}{f', {tags}' if tags else ''}"),
        ("asks because", approval["reason"]),
        ("arguments", orjson.dumps(approval["arguments"]).decode()),
        ("target", approval["target"]),
        ("directory", approval["cwd"]),
        *(("hook", f"{each['hook']} {each['verdict']}") for each in approval["hooks"]),
        ("expires", when(approval["expires_at"])),
    ]
    for each in approval["allowed_by"]:
        changed = "" if each["arguments"] is None else f", with {orjson.dumps(each['arguments']).decode()}"
        why = f": {each['reason']}" if each["reason"] else ""
        lines.append(
            ("allowed", f"{each['decision']} by {each['by'] or each['principal']}, {when(each['at'])}{why}{changed}")
        )
    if approval["excluded"]:
        lines.append(("not by", f"{', '.join(approval['excluded'])}, who asked for the run"))
    if approval["still_needed"] and (approval["needed"] > 1 or approval["allowed_by"]):
        who = "by another person" if approval["allowed_by"] else "by different people"
        lines.append(("still needed", f"{counted(approval['still_needed'], 'allowance')} {who}"))
    decision = approval["decision"]
    if decision is not None:
        why = f": {decision['reason']}" if decision["reason"] else ""
        lines.append(("decided", f"{decision['decision']} by {decision['by'] or 'nobody'}{why}"))
        if decision["arguments"] is not None:
            lines.append(("with", orjson.dumps(decision["arguments"]).decode()))
    return [(name, value) for name, value in lines if value]


def _object(text: str) -> JsonObject:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"this is no JSON: {error}", param_hint="--arguments") from error
    if not isinstance(value, dict):
        raise typer.BadParameter("this is no JSON object", param_hint="--arguments")
    return value
