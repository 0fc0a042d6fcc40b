"""`owlclaw tenants create | list | show | update | suspend | resume | export | delete`: who shares the runtime."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, cast

import typer

from owlclaw_ray import wire
from owlclaw_ray.counting import counted
from serve.cli.connection import HERE, FolderOption, JsonOption, UrlOption, connect
from serve.cli.ledger_files import whole_file
from serve.cli.listings import LimitOption
from serve.cli.output import console, plain, print_json, table, when

TenantArgument = Annotated[str, typer.Argument(help="The tenant's id.", metavar="TENANT")]
NameOption = Annotated[str | None, typer.Option("--name", help="Its name, for people.")]
WeightOption = Annotated[
    int | None, typer.Option("--weight", min=1, help="Its share of what is scarce, beside the weights of the others.")
]

QuotasOption = Annotated[
    list[str] | None,
    typer.Option(
        "--quota",
        help="How much it may have, as open_runs=100, starts_a_minute=600 or model_tokens_a_minute=50000; =none for any number. "
        "Several times for several.",
        metavar="NAME=NUMBER",
    ),
]

RetentionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--retention",
        help="For how long it keeps things, as artifact_days=30, webhook_days=14, memory_days=365 or run_days=90; =0 for ever, "
        "=none as the runtime. Several times for several.",
        metavar="NAME=DAYS",
    ),
]

NetworksOption = Annotated[
    list[str] | None,
    typer.Option(
        "--callback-network",
        help="Where its callbacks may go besides public addresses, as 10.1.0.0/16, several times for several; `public` for nowhere else, "
        "`none` as the runtime.",
        metavar="NETWORK",
    ),
]

_KEPT = {"artifact_days": "artifacts", "webhook_days": "webhooks", "memory_days": "memories", "run_days": "runs"}


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    tenants = typer.Typer(name="tenants", help="Make, see, suspend, export and delete tenants.", no_args_is_help=True)
    tenants.command()(create)
    tenants.command("list")(list_tenants)
    tenants.command()(show)
    tenants.command()(update)
    tenants.command()(suspend)
    tenants.command()(resume)
    tenants.command()(export)
    tenants.command()(delete)
    cli.add_typer(tenants)


def create(
    tenant: TenantArgument,
    name: NameOption = None,
    weight: WeightOption = None,
    quotas: QuotasOption = None,
    retention: RetentionOption = None,
    *,
    networks: NetworksOption = None,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Make a tenant. From then on the server refuses requests without a key."""
    with connect(url, folder) as client:
        made = client.create_tenant(
            tenant,
            name or tenant,
            weight or 1,
            _quotas(quotas),
            _retention(retention),
            callback_networks=_networks(networks),
        )
    _print(made, as_json=as_json)


def list_tenants(
    limit: LimitOption = 100,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """List tenants, by id."""
    with connect(url, folder) as client:
        found = client.tenants(limit=limit)["tenants"]
    if as_json:
        print_json(found)
        return
    rows = [
        (each["tenant"], each["name"], each["status"], str(each["weight"]), when(each["created_at"])) for each in found
    ]
    table(("TENANT", "NAME", "STATUS", "WEIGHT", "SINCE"), rows, empty="there is only the default tenant")


def show(
    tenant: TenantArgument, *, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False
) -> None:
    """Show a tenant, and what it uses of its quotas at the moment."""
    with connect(url, folder) as client:
        found = client.tenant(tenant)
    _print(found, as_json=as_json)
    if found["deletion"] is not None and not as_json:
        _print_deletion(found["deletion"])
    elif not as_json:
        table(("QUOTA", "USED", "OF"), _limits(found), empty="it has no quotas")
        kept = cast("dict[str, float | None]", found["retention"])
        rows = [(_KEPT[name], _days(days)) for name, days in kept.items() if days is not None]
        table(("KEEPS", "FOR"), rows, empty="it keeps things as long as the settings say")
        if found["callback_networks"] is not None:
            typer.echo(
                f"callbacks: public addresses{''.join(f', {plain(each)}' for each in found['callback_networks'])}"
            )


def update(
    tenant: TenantArgument,
    name: NameOption = None,
    weight: WeightOption = None,
    quotas: QuotasOption = None,
    retention: RetentionOption = None,
    *,
    networks: NetworksOption = None,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Change a tenant's name, weight, quotas, retention, or where its callbacks may go."""
    change: wire.TenantChange = {}
    if name is not None:
        change["name"] = name
    if weight is not None:
        change["weight"] = weight
    if quotas:
        change["quotas"] = _quotas(quotas)
    if retention:
        change["retention"] = _retention(retention)
    if networks:
        change["callback_networks"] = _networks(networks)
    if not change:
        raise typer.BadParameter(
            "say what is to be another: --name, --weight, --quota, --retention, --callback-network"
        )
    with connect(url, folder) as client:
        _print(client.update_tenant(tenant, change), as_json=as_json)


def suspend(
    tenant: TenantArgument, *, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False
) -> None:
    """Refuse a tenant's keys, within 5 seconds. Nothing of it is lost."""
    with connect(url, folder) as client:
        _print(client.update_tenant(tenant, {"status": "suspended"}), as_json=as_json)


def resume(
    tenant: TenantArgument, *, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False
) -> None:
    """Let a suspended tenant in again."""
    with connect(url, folder) as client:
        _print(client.update_tenant(tenant, {"status": "active"}), as_json=as_json)


def export(
    tenant: TenantArgument,
    target: Annotated[Path, typer.Option("--to", help="The file, of lines of JSON.", dir_okay=False)],
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
) -> None:
    """Write everything that a tenant has to a file: it is complete, or not written at all. No values of secrets are in it."""
    if not target.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {target.absolute().parent}", param_hint="--to")
    with connect(url, folder) as client, whole_file(target) as file:
        lines = 0
        for lines, line in enumerate(client.export_tenant(tenant), 1):  # noqa: B007 - the number of the last one
            file.write(line)
    console().print(f"{target}: {counted(lines, 'line')}", soft_wrap=True)


def delete(
    tenant: TenantArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the tenant's id once more.")] = False,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Delete a suspended tenant, and everything of it but its ledger. There is no way back; export it first."""
    if not yes:
        if not is_terminal():
            raise typer.BadParameter("say --yes where nobody can be asked", param_hint="--yes")
        if typer.prompt(f"everything of {tenant} will be gone; its id, to confirm", err=True) != tenant:
            raise typer.BadParameter("that is another id: nothing was deleted", param_hint="TENANT")
    with connect(url, folder) as client:
        found = client.delete_tenant(tenant)
    _print(found, as_json=as_json)
    if not as_json and found["status"] == "deleting":
        typer.echo(f"it goes on by itself; how far it is: owlclaw tenants show {tenant}")


def is_terminal() -> bool:
    """Return whether somebody can be asked."""
    return sys.stdin.isatty()


def _print_deletion(deletion: wire.TenantDeletion) -> None:
    typer.echo(f"deletion requested by {plain(deletion['by'])}, {when(deletion['requested_at'])}")
    rows = [(name, f"{number:,}", f"{deletion['left'].get(name, 0):,}") for name, number in deletion["removed"].items()]
    rows += [(name, "0", f"{number:,}") for name, number in deletion["left"].items() if name not in deletion["removed"]]
    table(("OF", "REMOVED", "LEFT"), rows, empty="nothing was removed yet")
    if deletion["unreached"]:
        typer.echo(f"not reached: {', '.join(deletion['unreached'])}")
    if deletion["deleted_at"] is not None:
        typer.echo(f"nothing is left, its ledger is sealed: {when(deletion['deleted_at'])}")
    elif deletion["checked_at"] is not None:
        typer.echo(f"what is left was looked for: {when(deletion['checked_at'])}")


def _quotas(said: list[str] | None) -> wire.QuotaChange:
    """Return quotas as they are sent; the server says which names there are."""
    found: dict[str, int | None] = {}
    for each in said or ():
        name, _, number = each.partition("=")
        if number != "none" and not number.isdecimal():
            raise typer.BadParameter(
                f"{each!r} is not NAME=NUMBER, as open_runs=100, or open_runs=none", param_hint="--quota"
            )
        found[name] = None if number == "none" else int(number)
    return cast("wire.QuotaChange", found)


def _retention(said: list[str] | None) -> wire.RetentionChange:
    """Return the retention as it is sent; the server says which names there are."""
    found: dict[str, float | None] = {}
    for each in said or ():
        name, _, days = each.partition("=")
        if days != "none" and not re.fullmatch(r"[0-9]+(\.[0-9]+)?", days):
            raise typer.BadParameter(
                f"{each!r} is not NAME=DAYS, as artifact_days=30, artifact_days=0 or artifact_days=none",
                param_hint="--retention",
            )
        found[name] = None if days == "none" else float(days)
    return cast("wire.RetentionChange", found)


def _networks(said: list[str] | None) -> list[str] | None:
    """Return the networks as they are sent; the server says what is none."""
    if not said or said == ["none"]:
        return None
    return [] if said == ["public"] else said


def _days(days: float) -> str:
    if not days:
        return "ever"
    return "1 day" if days == 1 else f"{days:g} days"


def _limits(tenant: wire.TenantDetails) -> list[tuple[str, str, str]]:
    quotas, use = cast("dict[str, int | None]", tenant["quotas"]), cast("dict[str, int | None]", tenant["use"])
    return [
        (name.replace("_", " "), f"{use[name] or 0:,}", f"{limit:,}")
        for name, limit in quotas.items()
        if limit is not None
    ]


def _print(tenant: wire.Tenant, *, as_json: bool) -> None:
    if as_json:
        print_json(tenant)
    else:
        typer.echo(f"{tenant['tenant']} ({tenant['name']}) · {tenant['status']} · weight {tenant['weight']}")
