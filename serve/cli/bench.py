"""`owlclaw bench`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer

from owlclaw_ray.errors import ConfigurationError, Problem

_INSTALLED_IN = Path(__file__).resolve().parents[2]


def register(cli: typer.Typer) -> None:
    """Add the command; every argument and option is the benchmarks' own."""
    everything = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    cli.command(context_settings=everything, add_help_option=False)(bench)


def bench(context: typer.Context) -> None:
    """Measure OwlClaw on this machine, each figure beside a baseline: python -m benchmarks. Needs a checkout of the source."""
    if not (_INSTALLED_IN / "benchmarks" / "__main__.py").exists():
        what = f"the benchmarks are part of the source, and this owlclaw is installed without it, in {_INSTALLED_IN}"
        fix = "in a checkout of the source: pip install -e '.[bench]' && owlclaw bench"
        raise ConfigurationError([Problem("owlclaw bench", what, fix)])
    command = [sys.executable, "-P", "-m", "benchmarks", *context.args]
    with subprocess.Popen(command) as process, _signals_left_to(process):  # noqa: S603 - the user's own arguments
        code = process.wait()
    raise typer.Exit(code)


@contextmanager
def _signals_left_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let the benchmarks, which clean up, be the ones that a signal ends: Ctrl-C reaches them anyway."""

    def pass_on(_number: int, _frame: FrameType | None) -> None:
        process.terminate()

    before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
