"""Which server a command talks to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from owlclaw_ray.client import SyncClient

UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar="OWLCLAW_URL", help="The server. Default: the one that runs for this folder."),
]
FolderOption = Annotated[
    Path, typer.Option("--folder", "-C", help="The application's folder, with owlclaw.yaml.", show_default="here")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
HERE = Path()


def environment() -> Mapping[str, str]:
    """Return the environment of this process."""
    return os.environ  # noqa: TID251 - the command line is where the environment comes in


def connect(url: str | None, folder: Path) -> SyncClient:
    """Return a client of the server that is meant."""
    from owlclaw_ray.client import SyncClient
    from owlclaw_ray.errors import ConfigurationError, Problem

    if url and "://" not in url:
        raise ConfigurationError([Problem("--url or OWLCLAW_URL", f"is {url!r}", f"write it as http://{url}")])
    return SyncClient(url or _url_of(folder), attempts=3)


def _url_of(folder: Path) -> str:
    """Return where the folder's server runs, or would run."""
    from owlclaw_ray.configuration.whereabouts import find_runtime
    from serve import pid_file

    found = find_runtime(folder, environment())
    running = pid_file.read(found.data_dir)
    if running is not None and running.process() is not None:
        return running.url
    return found.url
