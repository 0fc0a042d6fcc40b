"""`owlclaw up` and `owlclaw down`."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from serve.cli.connection import HERE, FolderOption, environment
from serve.cli.output import complain, console

if TYPE_CHECKING:
    import psutil

_POLL_SECONDS = 0.1
_TELL_SECONDS = 5.0
_KILL_SECONDS = 10.0


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command()(up)
    cli.command()(down)


def up(
    folder: FolderOption = HERE,
    *,
    reload: Annotated[
        bool,
        typer.Option("--reload", help="Start again whenever Python files or owlclaw.yaml change; for development."),
    ] = False,
) -> None:
    """Start the runtime in the foreground; Ctrl-C drains and stops it."""
    target = console()
    if reload:
        from serve.reload import Reloader

        command = [sys.executable, "-P", "-m", "owlclaw_ray", "up", "--folder", str(folder)]
        raise typer.Exit(Reloader(command, folder, lambda line: target.print(line, soft_wrap=True)).run())
    from serve.launch import up as launch

    links = sys.stdout.isatty()  # not as rich sees it: FORCE_COLOR makes a log no terminal
    raise typer.Exit(launch(folder, environment(), lambda line: target.print(line, soft_wrap=True), links=links))


def down(
    folder: FolderOption = HERE,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait for the end; after that it is killed.")
    ] = 180.0,
) -> None:
    """Stop the runtime of a folder: it finishes or hands over what it has accepted, then ends."""
    from owlclaw_ray.configuration.server_location import find_runtime
    from serve import pid_file

    target = console()
    data_dir = find_runtime(folder, environment()).data_dir
    found = pid_file.read(data_dir)
    if found is None:
        target.print(f"nothing is running for {folder.resolve()}")
        return
    process = found.process()
    if process is None:
        target.print(f"nothing is running: process {found.pid} has ended without removing {data_dir / pid_file.NAME}")
    else:
        target.print(f"stopping process {found.pid} at {found.url}")
        _stop(process, timeout)
        target.print("stopped")
    (data_dir / pid_file.NAME).unlink(missing_ok=True)


def _stop(process: psutil.Process, timeout: float) -> None:
    import psutil

    from serve.processes import end_descendants, lives

    try:
        process.terminate()
    except psutil.NoSuchProcess:
        return
    except psutil.AccessDenied:
        complain(f"process {process.pid} belongs to {process.username()}; stop it as that user")
        raise typer.Exit(1) from None
    started = told = time.monotonic()
    while lives(process):
        now = time.monotonic()
        if now - started >= timeout:
            with suppress(psutil.NoSuchProcess):
                process.suspend()  # so that it starts nothing while its descendants are killed
                try:
                    end_descendants(process.pid)
                finally:
                    process.kill()
                psutil.wait_procs([process], timeout=_KILL_SECONDS)
            complain(
                f"process {process.pid} did not end within {timeout:g} s and was killed; "
                "what was accepted resumes at the next start"
            )
            return
        if now - told >= _TELL_SECONDS:
            console().print(f"still stopping after {now - started:.0f} s")
            told = now
        time.sleep(_POLL_SECONDS)
