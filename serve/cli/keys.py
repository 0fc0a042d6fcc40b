"""`owlclaw keys create | list | show | rotate | revoke`: who may ask the server for what."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, cast

import typer

from owlclaw_ray import wire
from owlclaw_ray.domain.access_key import KEY_VARIABLE
from owlclaw_ray.domain.quota import KEY_QUOTAS
from serve.cli.connection import HERE, FolderOption, JsonOption, UrlOption, connect, environment
from serve.cli.listings import LimitOption
from serve.cli.output import print_json, table, when
from serve.cli.user_name import person

KeyArgument = Annotated[str, typer.Argument(help="The key's id: its 8 characters behind owl_.", metavar="KEY_ID")]
_FIRST_SCOPES = ("admin",)


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    keys = typer.Typer(name="keys", help="Make, see, rotate and revoke access keys.", no_args_is_help=True)
    keys.command()(create)
    keys.command("list")(list_keys)
    keys.command()(show)
    keys.command()(rotate)
    keys.command()(revoke)
    cli.add_typer(keys)


def create(
    name: Annotated[str | None, typer.Argument(help="Who has it, for people.")] = None,
    scopes: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="A scope such as runs:read, or a role: viewer, operator, approver, developer, admin. Several times for several.",
        ),
    ] = None,
    agents: Annotated[
        list[str] | None,
        typer.Option(
            "--agent", help="Only for these agents: agent:trader, or agent:trader:* for all that begin like that."
        ),
    ] = None,
    days: Annotated[float | None, typer.Option("--days", help="How long it is valid.", show_default="90")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="The tenant that it is for.")] = None,
    *,
    starts_a_minute: Annotated[
        int | None,
        typer.Option("--starts-a-minute", min=0, help="How many runs may be started by it in one minute of the clock."),
    ] = None,
    open_runs: Annotated[
        int | None,
        typer.Option("--open-runs", min=0, help="How many of its runs may be queued, running and waiting together."),
    ] = None,
    running_runs: Annotated[
        int | None,
        typer.Option("--running-runs", min=0, help="How many of its runs are executed at once; further ones wait."),
    ] = None,
    model_tokens_a_minute: Annotated[
        int | None,
        typer.Option(
            "--model-tokens-a-minute",
            min=0,
            help="How many tokens of models its runs may use in one minute of the clock.",
        ),
    ] = None,
    first: Annotated[
        bool,
        typer.Option(
            "--first",
            help="Write it into the folder's store itself: for the first key, or when all are lost. It may do everything.",
        ),
    ] = False,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Make a key, and print it: it cannot be read again. From then on the server refuses requests without a key."""
    if first:
        limits = (starts_a_minute, open_runs, running_runs, model_tokens_a_minute)
        if url or scopes or agents or tenant or any(each is not None for each in limits):
            raise typer.BadParameter(
                "the first key is for this folder's store, and may do everything", param_hint="--first"
            )
        issued = asyncio.run(_create_first(folder, name or f"first key, by {person()}", days))
    else:
        if not name:
            raise typer.BadParameter("say who has the key", param_hint="NAME")
        if not scopes:
            raise typer.BadParameter("say what it may do, as with --scope operator", param_hint="--scope")
        with connect(url, folder) as client:
            issued = client.create_key(
                name,
                scopes,
                agents=agents or (),
                days=days,
                tenant=tenant,
                starts_a_minute=starts_a_minute,
                open_runs=open_runs,
                running_runs=running_runs,
                model_tokens_a_minute=model_tokens_a_minute,
            )
    _print(issued, as_json=as_json)


async def _create_first(folder: Path, name: str, days: float | None) -> wire.IssuedKey:
    """Make a key in the store, whether a server runs or not."""
    from owlclaw_ray.access.keys import AccessKeys, KeyRequest
    from owlclaw_ray.domain.access_key import DEFAULT_DAYS
    from owlclaw_ray.domain.principal import LOCAL
    from owlclaw_ray.ids import RandomIds
    from owlclaw_ray.kernel.system_clock import SystemClock
    from owlclaw_ray.settings import load_settings
    from owlclaw_ray.store.sql.factory import open_store
    from serve.representations import issued_key_body

    settings, ids = load_settings(folder, environment()), RandomIds()
    store = await open_store(settings.store_url, writer=ids.make("keys"))
    try:
        keys = AccessKeys(store, SystemClock(), ids)
        return issued_key_body(
            await keys.create(LOCAL, KeyRequest(name, _FIRST_SCOPES, days=DEFAULT_DAYS if days is None else days))
        )
    finally:
        await store.close()


def list_keys(
    limit: LimitOption = 100,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """List keys, without their secrets."""
    with connect(url, folder) as client:
        found = client.keys(limit=limit)["keys"]
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each["key_id"],
            each["name"],
            ", ".join(each["scopes"]),
            ", ".join(each["agents"]) or "all",
            "\n".join(f"{name}={limit:,}" for name, limit in _quotas(each).items()) or "-",
            when(each["last_used_at"]) or "never",
            f"revoked {when(each['revoked_at'])}" if each["revoked_at"] else when(each["expires_at"]),
        )
        for each in found
    ]
    table(
        ("KEY", "NAME", "SCOPES", "AGENTS", "QUOTAS", "LAST USED", "EXPIRES"),
        rows,
        empty="there are no keys: nobody needs one",
    )


def show(
    key_id: KeyArgument,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Show a key without its secret, and what it uses of its quotas at the moment."""
    with connect(url, folder) as client:
        found = client.key(_id_of(key_id))
    if as_json:
        print_json(found)
        return
    standing = f"revoked {when(found['revoked_at'])}" if found["revoked_at"] else f"expires {when(found['expires_at'])}"
    typer.echo(f"{found['key_id']} ({found['name']}) of tenant {found['tenant']} · {standing}")
    use = cast("dict[str, int | None]", found["use"])
    rows = [(name.replace("_", " "), f"{use[name] or 0:,}", f"{limit:,}") for name, limit in _quotas(found).items()]
    table(("QUOTA", "USED", "OF"), rows, empty="it has no quotas of its own: those of its tenant hold")


def _quotas(key: wire.AccessKey) -> dict[str, int]:
    limits = cast("dict[str, int | None]", key)
    return {name: limit for name in KEY_QUOTAS if (limit := limits[name]) is not None}


def rotate(
    key_id: KeyArgument,
    grace: Annotated[
        float, typer.Option("--grace", min=0, help="For how many seconds the secret before stays valid, too.")
    ] = 3_600.0,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Give a key another secret, and print it."""
    with connect(url, folder) as client:
        _print(client.rotate_key(_id_of(key_id), grace), as_json=as_json)


def revoke(
    key_id: KeyArgument,
    *,
    url: UrlOption = None,
    folder: FolderOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Have a key be refused for good, within 5 seconds."""
    with connect(url, folder) as client:
        revoked = client.revoke_key(_id_of(key_id))
    if as_json:
        print_json(revoked)
    else:
        typer.echo(f"{revoked['key_id']} ({revoked['name']}) is revoked")


def _id_of(text: str) -> str:
    from owlclaw_ray.domain.access_key import read_key

    read = read_key(text)
    if read is not None:
        raise typer.BadParameter(
            f"give its id, {read[0]}: a key in a command is in the list of processes", param_hint="KEY_ID"
        )
    return text


def _print(issued: wire.IssuedKey, *, as_json: bool) -> None:
    if as_json:
        print_json(issued)
        return
    typer.echo(issued["key"])
    about = issued["about"]
    said = f"key {about['key_id']} of tenant {about['tenant']}, valid until {when(about['expires_at'])}; it is shown this once"
    typer.echo(f"{said}\n  → use it with: export {KEY_VARIABLE}=…, or the header Authorization: Bearer …", err=True)
