"""`owlclaw node`: a machine of a Ray cluster, started as the runtime needs it."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from owlclaw_ray.errors import ConfigurationError, Problem
from serve.cli.connection import HERE, FolderOption
from serve.cli.output import complain
from serve.node_process import run_node

if TYPE_CHECKING:
    from owlclaw_ray.settings import Settings

PORT = 6379
_VERSION_LABEL = "owlclaw-version"
_ANSWER_SECONDS = 5.0
DRAIN_MARGIN = 30.0
"""Seconds that a drain may take beyond the grace of calls."""

HeadOption = Annotated[bool, typer.Option("--head", help="Begin a cluster: this machine is its head.")]
AddressOption = Annotated[
    str,
    typer.Option("--address", metavar="HEAD:PORT", help="Join the cluster whose head is there.", show_default=False),
]
NodeIpOption = Annotated[
    str,
    typer.Option(
        "--node-ip",
        metavar="ADDRESS",
        help="Where the others reach this machine. Default: Ray looks.",
        show_default=False,
    ),
]
PortOption = Annotated[
    int, typer.Option("--port", min=1, max=65_535, help="Of the head; what the others name after it.")
]
BackgroundOption = Annotated[
    bool,
    typer.Option(
        "--background", help="Return once Ray runs, as Ray's cluster launcher needs it, instead of when it ends."
    ),
]
DashboardOption = Annotated[
    bool,
    typer.Option(
        "--dashboard",
        help="With --head: run Ray's dashboard at 127.0.0.1:8265 too, whose REST API `serve deploy` needs.",
    ),
]
PrintOption = Annotated[
    bool,
    typer.Option(
        "--print",
        help="Print a shell script that starts the same Ray, and does not drain it; start nothing.",
    ),
]
MoreArgument = Annotated[
    list[str] | None, typer.Argument(metavar="-- OPTION", help="More options of `ray start`.", show_default=False)
]


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(node)


def node(
    more: MoreArgument = None,
    folder: FolderOption = HERE,
    *,
    head: HeadOption = False,
    address: AddressOption = "",
    node_ip: NodeIpOption = "",
    port: PortOption = PORT,
    dashboard: DashboardOption = False,
    background: BackgroundOption = False,
    print_only: PrintOption = False,
) -> None:
    """Run Ray on this machine for a cluster, with the slots of owlclaw.yaml, until it is told to stop; `owlclaw up` then uses it.

    Told to stop (SIGTERM, Ctrl-C), a machine that joined another one is drained first: calls end (shutdown.grace_seconds), and its agents
    go on elsewhere; told twice it stops at once. A head stops at once, and the cluster with it. The exit code is Ray's.
    """
    if head == bool(address):
        raise typer.BadParameter("say either --head or --address HEAD:PORT")
    environ = os.environ  # noqa: TID251 - it becomes Ray's
    if dashboard and not head:
        raise typer.BadParameter("the dashboard runs on the head alone: say it there", param_hint="--dashboard")
    settings = _settings(folder, environ)
    host, at = _parted(address) if address else (node_ip, port)
    variables = _variables(settings, environ)
    if not print_only:
        _check_token({**environ, **variables})
        environ |= variables  # before Ray is imported, which reads it then
    where = ["--head", f"--port={port}"] if head else [f"--address={address}"]
    if node_ip:
        where.append(f"--node-ip-address={node_ip}")
    command = [
        *_ray_start(settings, more or [], head=head, dashboard=dashboard),
        *([] if background else ["--block"]),
        *where,
        *(more or []),
    ]
    if print_only:
        typer.echo("\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()))
        typer.echo(f"exec {shlex.join(command)}")
        return
    if head:
        _check_free(host, at)
    else:
        _check_head(host, at)
        _check_versions(address)
    if head or background:
        os.execve(command[0], command, environ)  # noqa: S606 - there is no shell that could be needed
    seconds = f"{settings.shutdown.grace_seconds + DRAIN_MARGIN:g}"
    drain = [sys.executable, "-m", "owlclaw_ray", "drain", "--here", "--timeout", seconds, "--folder", str(folder)]
    raise typer.Exit(run_node(command, drain, environ=environ, asking={**environ, "RAY_ADDRESS": address}))


def _settings(folder: Path, environ: Mapping[str, str]) -> Settings:
    """Return the settings; say what the runtime will lack on this machine, which its processes have from `ray start` alone."""
    from owlclaw_ray.settings import load_runtime_settings, load_settings

    settings = load_settings(folder, environ)
    try:
        load_runtime_settings(folder, environ)
    except ConfigurationError as error:
        for problem in error.problems:
            complain(f"warning: {problem}")
    return settings


def _variables(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what is to be in Ray's environment. What somebody has set stays as it is."""
    from actors.environment import node_environment
    from owlclaw_ray.own_packages import import_path

    needed = node_environment(settings.tools.warm, json_logs=settings.log.format == "json")
    variables = {name: environ.get(name, value) for name, value in needed.items()}
    if written := environ.get("PYTHONPATH"):
        variables["PYTHONPATH"] = import_path(written)
    return variables


def _ray_start(settings: Settings, more: Sequence[str], *, head: bool, dashboard: bool) -> list[str]:
    from actors.tool_task import slot_resources
    from serve.runtime_plan import slots_of

    program = Path(sysconfig.get_path("scripts")) / "ray"
    resources = {name: int(number) for name, number in slot_resources(slots_of(settings)).items()}
    command = [
        str(program),
        "start",
        f"--resources={json.dumps(resources)}",
        f"--labels={_VERSION_LABEL}={version('owlclaw-ray')}",
        "--disable-usage-stats",
        "--include-log-monitor=false",
    ]
    if head:
        command.append(f"--include-dashboard={str(dashboard).lower()}")
        if not any(each.startswith("--autoscaling-config") for each in more):
            command.append("--no-monitor")
    if settings.ray.num_cpus is not None:
        command.append(f"--num-cpus={settings.ray.num_cpus}")
    if settings.ray.temp_dir is not None:
        command.append(f"--temp-dir={settings.ray.temp_dir}")
    return command


def _parted(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise typer.BadParameter(
            f"is {address!r}: write it as HEAD:PORT, such as 10.0.0.1:{PORT}", param_hint="--address"
        )
    return host.strip("[]"), int(port)


def _check_token(environ: Mapping[str, str]) -> None:
    """Raise ConfigurationError if whoever reaches the cluster is to show a token, and there is none to compare it with."""
    from actors.environment import token_file

    if environ["RAY_AUTH_MODE"] != "token" or environ.get("RAY_AUTH_TOKEN"):
        return
    path = token_file(environ)
    try:
        found = path.read_text().strip()
    except OSError as error:
        what = f"no token: {path}: {error.strerror}"
    else:
        if found:
            return
        what = f"no token: {path} is empty"
    fix = (
        "make one on the head with: ray get-auth-token --generate, and copy the file to the same place on each machine, readable "
        "for this user alone (another place: RAY_AUTH_TOKEN_PATH)"
    )
    raise ConfigurationError([Problem("Ray's token", what, fix)])


def _check_free(host: str, port: int) -> None:
    """Raise ConfigurationError if the head's port is taken, or its address is none of this machine."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            what = f"{host or 'this machine'}:{port} cannot be listened on: {error.strerror}"
            fix = "stop what listens there, or choose another port; --node-ip is an address of this machine"
            raise ConfigurationError([Problem("--port", what, fix)]) from error


def _check_head(host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        what = f"nothing answers at {host}:{port}: {error.strerror or error}"
        fix = "start the head (owlclaw node --head), and let the machines reach each other (firewall)"
        raise ConfigurationError([Problem("--address", what, fix)]) from error


def _check_versions(address: str) -> None:
    """Raise ConfigurationError if the head does not answer as a Ray that this machine may join, or differs from this machine."""
    from ray._common.usage.usage_lib import get_cluster_metadata
    from ray.exceptions import RayError

    raylet: Any = import_module("ray._raylet")
    try:
        head = raylet.GcsClient(address=address)
        metadata = get_cluster_metadata(head) or {}
        nodes = head.get_all_node_info(timeout=_ANSWER_SECONDS).values()
    except RayError as error:
        what = f"the head at {address} does not let this machine in: {error}"
        raise ConfigurationError([Problem("--address", what, "use the head's own token and its port")]) from error
    labels: dict[str, str] = {}
    for each in nodes:
        if each.is_head_node:
            labels |= each.labels
    theirs = {
        "Python": metadata.get("python_version"),
        "Ray": metadata.get("ray_version"),
        "OwlClaw": labels.get(_VERSION_LABEL),
    }
    if problems := version_problems(theirs):
        raise ConfigurationError(problems)


def version_problems(theirs: Mapping[str, str | None]) -> list[Problem]:
    """Return what differs between this machine and the head, of which some versions may be unknown."""
    import platform

    ours = {"Python": platform.python_version(), "Ray": version("ray"), "OwlClaw": version("owlclaw-ray")}
    return [
        Problem(name, f"{own} here, {theirs[name]} on the head", "install the same version on every machine")
        for name, own in ours.items()
        if theirs[name] not in {None, own}
    ]
