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
    from serve.console_link import console_link

    with connect(url, folder) as client:
        link = console_link(client)
    output().print(link, soft_wrap=True)
    if "#" in link:
        typer.echo("this link signs in once, within a minute", err=True)
