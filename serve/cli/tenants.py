"""`owlclaw tenants create | list | show | update | suspend | resume`: who shares the runtime."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from owlclaw_ray import wire
from serve.cli.connection import HERE, FolderOption, JsonOption, UrlOption, connect
from serve.cli.listings import LimitOption
from serve.cli.output import print_json, table, when

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


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    tenants = typer.Typer(name="tenants", help="Make, see and suspend tenants.", no_args_is_help=True)
    tenants.command()(create)
    tenants.command("list")(list_tenants)
    tenants.command()(show)
    tenants.command()(update)
    tenants.command()(suspend)
    tenants.command()(resume)
    cli.add_typer(tenants)


def create(
    tenant: TenantArgument,
    name: NameOption = None,
    weight: WeightOption = None,
    quotas: QuotasOption = None,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Make a tenant. From then on the server refuses requests without a key."""
    with connect(url, folder) as client:
        _print(client.create_tenant(tenant, name or tenant, weight or 1, _quotas(quotas)), as_json=as_json)


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
    if not as_json:
        table(("QUOTA", "USED", "OF"), _limits(found), empty="it has no quotas")


def update(
    tenant: TenantArgument,
    name: NameOption = None,
    weight: WeightOption = None,
    quotas: QuotasOption = None,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Change a tenant's name, weight or quotas."""
    change: wire.TenantChange = {}
    if name is not None:
        change["name"] = name
    if weight is not None:
        change["weight"] = weight
    if quotas:
        change["quotas"] = _quotas(quotas)
    if not change:
        raise typer.BadParameter("say what is to be another: --name, --weight, --quota")
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
