"""Which server a command talks to."""

from __future__ import annotations

import os
import sys
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
_ATTEMPTS, _ATTEMPTS_ELSEWHERE = 3, 2
"""Of one request to a folder's server that runs, and to one at a URL; to a folder's server that does not run, one."""


def environment() -> Mapping[str, str]:
    """Return the environment of this process."""
    return os.environ  # noqa: TID251 - the command line is where the environment comes in


def connect(url: str | None, folder: Path) -> SyncClient:
    """Return a client of the server at the URL, or else of the folder's server."""
    if "httpx" not in sys.modules:
        sys.modules["httpx._main"] = None  # type: ignore[assignment] # its own command line, which imports pygments and more
    from owlclaw_ray.client import SyncClient
    from owlclaw_ray.configuration.server_location import find_runtime
    from owlclaw_ray.domain.access_key import KEY_VARIABLE
    from owlclaw_ray.errors import ConfigurationError, Problem
    from serve import pid_file

    if url and not url.startswith(("http://", "https://")):
        fix = f"write it as http://{url.rpartition('://')[2]}"
        raise ConfigurationError([Problem("--url or OWLCLAW_URL", f"is {url!r}", fix)])
    key = environment().get(KEY_VARIABLE) or None
    if url:
        return SyncClient(url, api_key=key, attempts=_ATTEMPTS_ELSEWHERE)
    found = find_runtime(folder, environment())
    running = pid_file.read(found.data_dir)
    if running is not None and running.process() is not None:
        return SyncClient(running.url, api_key=key, attempts=_ATTEMPTS)
    return SyncClient(found.url, api_key=key, attempts=1)
