"""The commands put together. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from owlclaw_ray.domain.access_key import KEY_VARIABLE
from owlclaw_ray.errors import ConfigurationError, NotFoundError, OwlClawError, UnauthenticatedError
from serve.cli.output import complain

MODULES = {
    "init": ("init",),
    "server": ("up", "down"),
    "console": ("console",),
    "node": ("node",),
    "drain": ("drain",),
    "trigger": ("trigger",),
    "runs": ("runs", "tail"),
    "top": ("top",),
    "usage": ("usage",),
    "agents": ("agents", "reload"),
    "memory": ("memory",),
    "skill": ("skill",),
    "schedules": ("schedules",),
    "approvals": ("approvals",),
    "webhooks": ("webhooks",),
    "keys": ("keys",),
    "tenants": ("tenants",),
    "ledger": ("ledger",),
    "secrets": ("secrets",),
    "mcp": ("mcp",),
    "doctor": ("doctor",),
    "bench": ("bench",),
}
"""Which module of this package has which commands, in the order of `owlclaw --help`."""


class _OnDemand(MutableMapping[str, Any]):
    """The commands by name. A module is imported, and its commands are built, when one of them is asked for."""

    def __init__(self) -> None:
        self._modules = {name: module for module, names in MODULES.items() for name in names}
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built and name in self._modules:
            part = typer.Typer()
            import_module(f"serve.cli.{self._modules[name]}").register(part)
            self._built |= typer.main.get_group(part).commands
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._modules[name]
        self._built.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


_LISTS = {
    "run": "runs",
    "approval": "approvals list",
    "schedule": "schedules list",
    "memory": "memory list AGENT",
    "node": "doctor --cluster",
    "secret": "secrets list",
    "delivery": "webhooks deliveries",
    "callback": "webhooks callbacks",
    "webhook source": "webhooks sources",
    "key": "keys list",
    "tenant": "tenants list",
}
"""The command that lists each kind of resource."""


class _Commands(TyperGroup):
    """Builds its commands on demand, and reports the errors of all of them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _OnDemand()

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an OwlClawError becomes its message and exit code 1."""
        try:
            return super().invoke(ctx)
        except OwlClawError as error:
            text = str(error)
            if getattr(error, "refused", False):
                url = getattr(error, "url", "")
                text = f"nothing is listening at {url}\n  → start it with: owlclaw up, or name a server that runs with --url or OWLCLAW_URL"
            elif isinstance(error, UnauthenticatedError):
                text += f"\n  → put a key into the variable {KEY_VARIABLE}; on its machine make one with: owlclaw keys create --first"
            elif isinstance(error, NotFoundError) and error.kind in _LISTS:
                text += f"\n  → list them with: owlclaw {_LISTS[error.kind]}"
            elif isinstance(error, ConfigurationError) and len(error.problems) > 1:
                text = "\n  ".join([f"{len(error.problems)} problems:", *map(str, error.problems)])
            complain(text)
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
