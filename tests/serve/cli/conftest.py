from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from serve.cli.entry import build_cli

Run = Callable[..., Result]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command line in an empty folder, with no OWLCLAW_ variables but those that a test sets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OWLCLAW_URL", raising=False)

    def run(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(build_cli(), [*arguments], input=stdin)

    return run


@pytest.fixture
def owlclaw(cli: Run, server: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line against the server of the test."""
    monkeypatch.setenv("OWLCLAW_URL", server)
    return cli
