"""`owlclaw bench`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from owlclaw_ray.errors import ConfigurationError, Problem

_INSTALLED_IN = Path(__file__).resolve().parents[2]


def register(cli: typer.Typer) -> None:
    """Add the command; every argument and option is the benchmarks' own."""
    everything = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    cli.command(context_settings=everything, add_help_option=False)(bench)


def _benchmark(arguments: Sequence[str]) -> list[str]:
    """Return the module and its arguments: chaos has options of its own, of which the suites know nothing."""
    own = arguments[:1] == ["chaos"] and len(arguments) > 1 and not arguments[1].startswith(("--size", "--out"))
    return ["benchmarks.chaos", *arguments[1:]] if own else ["benchmarks", *arguments]


def bench(context: typer.Context) -> None:
    """Measure OwlClaw on this machine, each figure beside a baseline: python -m benchmarks. Needs a checkout of the source."""
    if not (_INSTALLED_IN / "benchmarks" / "__main__.py").exists():
        what = f"the benchmarks are part of the source, and this owlclaw is installed without it, in {_INSTALLED_IN}"
        fix = "in a checkout of the source: pip install -e '.[bench]' && owlclaw bench"
        raise ConfigurationError([Problem("owlclaw bench", what, fix)])
    command = [sys.executable, "-P", "-m", *_benchmark(context.args)]
    with subprocess.Popen(command) as process:  # noqa: S603 - the user's own arguments
        # The benchmarks clean up after a signal, so this process waits for them: Ctrl-C reaches them anyway.
        interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
        terminated = signal.signal(signal.SIGTERM, lambda _number, _frame: process.terminate())
        try:
            code = process.wait()
        finally:
            signal.signal(signal.SIGINT, interrupted)
            signal.signal(signal.SIGTERM, terminated)
    raise typer.Exit(code)
