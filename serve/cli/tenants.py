"""`owlclaw tenants create | list | show | update | suspend | resume`: who shares the runtime."""

from __future__ import annotations

from typing import Annotated

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
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Make a tenant. From then on the server refuses requests without a key."""
    with connect(url, folder) as client:
        _print(client.create_tenant(tenant, name or tenant, weight or 1), as_json=as_json)


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
    """Show a tenant."""
    with connect(url, folder) as client:
        _print(client.tenant(tenant), as_json=as_json)


def update(
    tenant: TenantArgument,
    name: NameOption = None,
    weight: WeightOption = None,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Change a tenant's name or weight."""
    change: wire.TenantChange = {}
    if name is not None:
        change["name"] = name
    if weight is not None:
        change["weight"] = weight
    if not change:
        raise typer.BadParameter("say what is to be another: --name, --weight")
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


def _print(tenant: wire.Tenant, *, as_json: bool) -> None:
    if as_json:
        print_json(tenant)
    else:
        typer.echo(f"{tenant['tenant']} ({tenant['name']}) · {tenant['status']} · weight {tenant['weight']}")
