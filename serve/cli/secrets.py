"""`owlclaw secrets keygen | set | list | delete | rotate`: what tools need and nobody may read."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from owlclaw_ray.counting import counted
from serve.cli.connection import HERE, FolderOption, JsonOption, UrlOption, connect
from serve.cli.output import console, print_json, table, when
from serve.cli.user_name import person

NameArgument = Annotated[str, typer.Argument(help="The secret's name, such as CRM_TOKEN.", metavar="NAME")]


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    secrets = typer.Typer(name="secrets", help="Secrets for tools, encrypted in the store.", no_args_is_help=True)
    secrets.command()(keygen)
    secrets.command("set")(set_)
    secrets.command("list")(list_)
    secrets.command()(delete)
    secrets.command()(rotate)
    cli.add_typer(secrets)


def keygen() -> None:
    """Print a new master key, for OWLCLAW_SECRETS_KEY or the file secrets.key_file. Nothing keeps it but you."""
    from owlclaw_ray.secrets.keyring import new_key

    typer.echo(new_key())


def set_(name: NameArgument, *, url: UrlOption = None, folder: FolderOption = HERE) -> None:
    """Set a secret; its value is read from standard input, or asked for. It is never an argument, which others could see."""
    if sys.stdin.isatty():
        value = typer.prompt(f"value of {name}", hide_input=True, err=True)
    else:
        value = sys.stdin.read().removesuffix("\n").removesuffix("\r")
    with connect(url, folder) as client:
        made = client.set_secret(name, value, by=person())
    console().print(f"{made['name']} is set (master key {made['key_id']})")


def list_(*, url: UrlOption = None, folder: FolderOption = HERE, as_json: JsonOption = False) -> None:
    """List secrets without their values."""
    with connect(url, folder) as client:
        found = client.secrets()
    if as_json:
        print_json(found)
        return
    rows = [
        (each["name"], each["key_id"], when(each["created_at"]), when(each["rotated_at"]), each["created_by"])
        for each in found
    ]
    table(("SECRET", "MASTER KEY", "CREATED", "SET OR ROTATED", "BY"), rows, empty="no secrets")


def delete(name: NameArgument, *, url: UrlOption = None, folder: FolderOption = HERE) -> None:
    """Delete a secret."""
    with connect(url, folder) as client:
        client.delete_secret(name)
    console().print(f"{name} is deleted")


def rotate(
    *,
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="Those of every tenant; for operators.")] = False,
    url: UrlOption = None,
    folder: FolderOption = HERE,
) -> None:
    """Encrypt the tenant's secrets with the newest master key. The former keys are needed until those of all tenants are."""
    with connect(url, folder) as client:
        rotated = client.rotate_all_secrets() if all_tenants else client.rotate_secrets()
    console().print(f"{counted(rotated, 'secret')} encrypted with the newest master key")
