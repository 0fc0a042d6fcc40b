"""The commands put together. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from owlclaw_ray.errors import ConfigurationError, OwlClawError
from serve.cli import (
    agents,
    approvals,
    bench,
    doctor,
    init,
    ledger,
    mcp,
    memory,
    runs,
    schedules,
    server,
    skill,
    top,
    trigger,
    webhooks,
)
from serve.cli.output import complain


class _Commands(TyperGroup):
    """Says what went wrong in one place, for all commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error of ours becomes its message and exit code 1."""
        try:
            return super().invoke(ctx)
        except OwlClawError as error:
            complain(_sentence(error))
            raise typer.Exit(1) from error


def build_cli() -> typer.Typer:
    """Return the command line."""
    cli = typer.Typer(
        name="owlclaw",
        cls=_Commands,
        help="Run agents durably: start a runtime, trigger agents, follow their runs.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    cli.callback()(_options)
    for module in (
        init,
        server,
        trigger,
        runs,
        top,
        agents,
        memory,
        skill,
        schedules,
        approvals,
        webhooks,
        ledger,
        mcp,
        doctor,
        bench,
    ):
        module.register(cli)
    return cli


def main() -> None:
    """Run the command line of this process."""
    build_cli()()


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the flag
    if wanted:
        from importlib.metadata import version

        typer.echo(f"owlclaw {version('owlclaw-ray')}")
        raise typer.Exit


def _options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run agents durably: start a runtime, trigger agents, follow their runs."""


def _sentence(error: OwlClawError) -> str:
    if getattr(error, "refused", False):
        url = getattr(error, "url", "")
        return f"nothing is listening at {url}\n  → start it with: owlclaw up, or name a server that runs with --url or OWLCLAW_URL"
    if isinstance(error, ConfigurationError) and len(error.problems) > 1:
        return "\n".join([f"{len(error.problems)} problems:", *(f"  {problem}" for problem in error.problems)])
    return str(error)
