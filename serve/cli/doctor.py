"""`owlclaw doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve.cli.connection import HERE, FolderOption, JsonOption, connect, environment
from serve.cli.output import console, plain, print_json

if TYPE_CHECKING:
    from serve.cli.findings import CheckFinding

_STYLES = {"OK": "green", "WARN": "yellow", "FAIL": "red"}


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(doctor)


ProbeOption = Annotated[
    bool, typer.Option("--probe", help="Ask each real model for one call of a tool, which may cost a little.")
]


ClusterOption = Annotated[
    bool, typer.Option("--cluster", help="Ask the runtime that runs for its nodes, and check these instead.")
]


def doctor(
    folder: FolderOption = HERE,
    *,
    probe: ProbeOption = False,
    cluster: ClusterOption = False,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar="OWLCLAW_URL",
            help="With --cluster: the server. Default: the one that runs for this folder.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the machine and the application, or a cluster that runs, and say how to fix what is wrong; exit with 1 if something fails."""
    from rich.text import Text

    if cluster and probe:
        raise typer.BadParameter("asks the models of the application, which --cluster leaves out", param_hint="--probe")
    findings, target = [], console()
    checks = _of_the_cluster(url, folder) if cluster else _of_the_machine(folder, probed=probe)
    for finding in checks:
        findings.append(finding)
        if as_json:
            continue
        level, said = finding.level.value, plain(finding.message)
        line = Text.assemble((f"{level:<5}", _STYLES[level]), (f"{finding.subject}: ", "bold"), said)
        target.print(line, soft_wrap=True)
        if finding.fix:
            target.print(Text(f"     → {plain(finding.fix)}"), soft_wrap=True)
    if as_json:
        print_json(
            [
                {"level": each.level.value, "subject": each.subject, "message": each.message, "fix": each.fix}
                for each in findings
            ]
        )
    raise typer.Exit(1 if any(each.level.value == "FAIL" for each in findings) else 0)


def _of_the_machine(folder: Path, *, probed: bool) -> Iterable[CheckFinding]:
    from serve.cli.machine_checks import check_machine
    from serve.cli.project_checks import check_project

    return chain(check_machine(), check_project(folder, environment(), probed=probed))


def _of_the_cluster(url: str | None, folder: Path) -> Iterable[CheckFinding]:
    from serve.cli.cluster_checks import check_cluster

    with connect(url, folder) as client:
        return check_cluster(client.nodes())
