"""`owlclaw webhooks sources | deliveries | callbacks | show | redeliver | secrets`: received webhooks and run-completion callbacks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from owlclaw_ray import wire
from serve.cli.connection import HERE, FolderOption, JsonOption, UrlOption, connect
from serve.cli.listings import ALL, LimitOption, StatusOption, status_of
from serve.cli.output import console, plain, print_json, table, when

IdArgument = Annotated[
    str, typer.Argument(help="A webhook that came in (whd_…, whr_…), or a callback (cb_…).", metavar="ID")
]
_CALLBACK = "cb_"


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    webhooks = typer.Typer(
        name="webhooks", help="List received webhooks and run-completion callbacks.", no_args_is_help=True
    )
    for command in (sources, deliveries, callbacks, show, redeliver, secrets):
        webhooks.command()(command)
    cli.add_typer(webhooks)


def sources(*, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False) -> None:
    """List who may send webhooks."""
    with connect(url, folder) as client:
        found = client.webhook_sources()
    if as_json:
        print_json(found)
        return
    rows = [
        (each["source"], each["path"], each["agent"], f"{each['signature_header']} ({each['algorithm']})")
        for each in found
    ]
    table(("SOURCE", "PATH", "AGENT", "SIGNATURE"), rows, empty="nobody may send webhooks; see webhooks.sources")


def deliveries(
    source: Annotated[str | None, typer.Option("--source", help="Only of this source.")] = None,
    status: StatusOption = ALL,
    limit: LimitOption = 100,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """List webhooks that came in, newest first, those that were refused too."""
    wanted = status_of(status, wire.DeliveryStatus)
    with connect(url, folder) as client:
        found = client.deliveries(source, wanted, limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each["delivery_id"],
            when(each["received_at"]),
            each["source"],
            each["status"],
            each["run_id"] or each["reason"],
        )
        for each in found
    ]
    table(("DELIVERY", "RECEIVED", "SOURCE", "STATUS", "RUN OR REASON"), rows, empty="nothing came in")


def callbacks(
    agent: Annotated[str | None, typer.Option("--agent", help="Only of this agent's runs.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="Only of this run.")] = None,
    status: StatusOption = ALL,
    limit: LimitOption = 100,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """List run-completion callbacks, newest first; `--status dead` for undeliverable ones."""
    wanted = status_of(status, wire.CallbackStatus)
    with connect(url, folder) as client:
        found = client.callbacks(agent, run, wanted, limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["callback_id"], each["run_id"], each["status"], str(each["attempts"]), each["url"], each["problem"])
        for each in found
    ]
    table(("CALLBACK", "RUN", "STATUS", "TRIES", "URL", "PROBLEM"), rows, empty="no callbacks")


def show(
    identifier: IdArgument, *, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False
) -> None:
    """Show a webhook that came in with its body, or a callback."""
    with connect(url, folder) as client:
        callback = identifier.startswith(_CALLBACK)
        found: Any = client.callback(identifier) if callback else client.delivery(identifier)
    _print(found, as_json=as_json)


def redeliver(
    identifier: IdArgument, *, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False
) -> None:
    """Map a webhook that has not triggered again, or have a callback sent again."""
    with connect(url, folder) as client:
        callback = identifier.startswith(_CALLBACK)
        found: Any = client.send_again(identifier) if callback else client.redeliver(identifier)
    _print(found, as_json=as_json)


def secrets(*, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False) -> None:
    """Show the secrets that sign the callbacks of your tenant, the present one first."""
    with connect(url, folder) as client:
        found = client.callback_secrets()
    if as_json:
        print_json(found)
        return
    for each in found:
        typer.echo(each)


def _print(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    target = console()
    for name, value in found.items():
        if value not in (None, "", {}):
            target.print(f"{name:<14}{plain(str(value))}", soft_wrap=True)
