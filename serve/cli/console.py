"""`owlclaw console`: where the pages for people are, and a link that signs in there."""

from __future__ import annotations

import typer

from serve.cli.connection import HERE, FolderOption, UrlOption, connect
from serve.cli.output import console as output


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(console)


def console(*, url: UrlOption = None, folder: FolderOption = HERE) -> None:
    """Print the address of the console: with OWLCLAW_API_KEY as a link that signs in with that key, once and within a minute."""
    with connect(url, folder) as client:
        code, server = client.console_code(), client.client.url
    target = output()
    if code is None:
        target.print(f"{server}/console", soft_wrap=True)
    else:
        target.print(f"{server}/console/sign-in#{code}", soft_wrap=True)
        typer.echo("this link signs in once, within a minute", err=True)
