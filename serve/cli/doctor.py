"""`owlclaw doctor`."""

from __future__ import annotations

from itertools import chain
from typing import Annotated

import typer

from serve.cli.connection import HERE, FolderOption, JsonOption, environment
from serve.cli.output import console, plain, print_json

_STYLES = {"OK": "green", "WARN": "yellow", "FAIL": "red"}


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command()(doctor)


ProbeOption = Annotated[
    bool, typer.Option("--probe", help="Ask each real model for one call of a tool, which may cost a little.")
]


def doctor(folder: FolderOption = HERE, *, probe: ProbeOption = False, as_json: JsonOption = False) -> None:
    """Check the machine and the application, and say how to fix what is wrong; exit with 1 if something fails."""
    from rich.text import Text

    from serve.cli.machine_checks import check_machine
    from serve.cli.project_checks import check_project

    findings, target = [], console()
    for finding in chain(check_machine(), check_project(folder, environment(), probed=probe)):
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
