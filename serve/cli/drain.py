"""`owlclaw drain`: have a machine, or the cluster, run no agents any more."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from owlclaw_ray.counting import counted
from serve.cli.connection import HERE, FolderOption, UrlOption, connect, environment
from serve.cli.output import complain

if TYPE_CHECKING:
    from owlclaw_ray import wire

_LOOK_SECONDS = 1.0
_UNKNOWN = "does not answer"
_UNMARKED = "not marked yet, for the runtime or its store does not answer"

NodeArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="NODE", help="Its name, address, or the beginning of its id. Default: all.", show_default=False
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0, help="Seconds after which it is no longer waited for: exit code 1.")
]
UndoOption = Annotated[bool, typer.Option("--undo", help="Let it run agents again.")]
HereOption = Annotated[
    bool,
    typer.Option(
        "--here",
        help="This machine, through its Ray: where the server cannot be reached, as before a machine is stopped.",
    ),
]


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(drain)


def drain(
    node: NodeArgument = None,
    *,
    undo: UndoOption = False,
    timeout: TimeoutOption = 120.0,
    here: HereOption = False,
    url: UrlOption = None,
    folder: FolderOption = HERE,
) -> None:
    """Have a machine of a cluster, or all of them, run no agents any more, and wait until it holds none.

    Model calls and tool calls under way end (shutdown.grace_seconds); their runs go on elsewhere, and nothing is repeated.
    """
    if here:
        if node is not None:
            raise typer.BadParameter("with --here it is this machine: name no other", param_hint="NODE")
        _drain_here(folder, timeout, undo=undo)
        return
    with connect(url, folder) as client:
        marked = (client.undrain if undo else client.drain)(node or "all")["nodes"]
        ids = {each["node_id"] for each in marked}
        if undo:
            for each in marked:
                typer.echo(f"{each['name']} runs agents again")
            return
        _wait(lambda: _left([each for each in client.nodes()["nodes"] if each["node_id"] in ids]), timeout)


def _left(nodes: Sequence[wire.Node]) -> Mapping[str, str]:
    """Return what each node still holds, of those that hold something or do not say."""
    left = {}
    for node in nodes:
        report = node["report"]
        if report is None:
            if node["state"] not in {"lost", "no_root"}:
                left[node["name"]] = _UNKNOWN
        elif agents := report["load"]["agents"]:
            left[node["name"]] = f"{counted(agents, 'agent')}, {report['load']['running']} at work"
        elif hosts := report["load"]["hosts"]:
            left[node["name"]] = (
                f"{counted(hosts, 'host')} not ended yet"  # one that does not answer is not asked for its agents
            )
    return left


def _wait(left: Callable[[], Mapping[str, str]], timeout: float) -> None:
    """Print what is left until nothing is; exit with 1 after so many seconds."""
    end, said = time.monotonic() + timeout, ""
    while now := left():
        line = "; ".join(f"{name}: {what}" for name, what in now.items())
        if line != said:
            typer.echo(line)
            said = line
        if time.monotonic() >= end:
            complain(f"not drained within {timeout:g} s; it stays marked, and goes on: {line}")
            raise typer.Exit(1)
        time.sleep(min(_LOOK_SECONDS, max(0.0, end - time.monotonic())))
    typer.echo("drained")


def _nobody(why: str, *, undo: bool) -> None:
    """Say that there is nobody to ask; exit with 1 if the machine was to run agents again."""
    if undo:
        complain(f"{why}: nothing was undone")
        raise typer.Exit(1)
    typer.echo(f"{why}: there is nothing to drain")


def _drain_here(folder: Path, timeout: float, *, undo: bool) -> None:
    """Ask the Directory through Ray. Without one there is nothing to drain: the machine may be stopped; but nothing can be undone."""
    from owlclaw_ray.configuration.server_location import find_runtime
    from serve.pid_file import RAY_TOKEN

    token = find_runtime(folder, environment()).data_dir / RAY_TOKEN
    if token.is_file():
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}  # noqa: TID251 - before Ray is imported

    import ray

    from actors.cluster import NAMESPACE
    from actors.remote import DIRECTORY, ROOT, NamedActor, find, here
    from owlclaw_ray.errors import RuntimeUnavailableError, StoreUnavailableError

    try:
        ray.init(address="auto", namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError:
        _nobody("Ray does not run on this machine", undo=undo)
        return
    try:
        directory, own = NamedActor(DIRECTORY, NAMESPACE), here()
        if undo:
            try:
                directory.call_now(lambda part: part.undrain([own]))
            except RuntimeUnavailableError as error:
                _nobody(f"no runtime answers ({error})", undo=True)
            else:
                typer.echo("this machine runs agents again")
            return
        if find(ROOT, NAMESPACE) is None:
            _nobody("no runtime is on this machine", undo=False)
            return
        marked = False

        def left() -> Mapping[str, str]:
            """Ask the roots, who know their hosts whatever becomes of the Directory."""
            nonlocal marked
            try:
                if not marked:
                    directory.call_now(lambda part: part.drain([own]))
                    marked = True
                nodes = directory.call_now(lambda part: part.to_empty(own))
                holding = {
                    "this machine" if each == own else f"node {each[:8]}": NamedActor(ROOT, NAMESPACE, each).call_now(
                        lambda root: root.agents()
                    )
                    for each in nodes
                }
            except (RuntimeUnavailableError, StoreUnavailableError):
                return {"this machine": _UNKNOWN if marked else _UNMARKED}
            return {name: counted(number, "agent") for name, number in holding.items() if number}

        _wait(left, timeout)
    finally:
        ray.shutdown()
