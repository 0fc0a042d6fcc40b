from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.suites import SUITES
from serve.cli.connection import environment
from tests.serve.cli.conftest import Run


def test_the_benchmarks_explain_themselves(cli: Run, capfd: pytest.CaptureFixture[str]):
    assert cli("bench", "--help").exit_code == 0

    said = capfd.readouterr().out
    assert said.startswith("usage: python -m benchmarks")
    assert all(f"{name} " in said for name in SUITES)


def test_arguments_and_the_exit_code_are_the_benchmarks_own(cli: Run, capfd: pytest.CaptureFixture[str]):
    assert cli("bench", "smoke", "nonsense", "--size", "full").exit_code == 2
    assert "'nonsense' is neither a suite" in capfd.readouterr().err


def test_sigterm_reaches_the_benchmarks_which_end_in_order(tmp_path):
    (tmp_path / "benchmarks.py").write_text("""
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
print("measuring", flush=True)
signal.pause()
""")
    with subprocess.Popen(
        [sys.executable, "-m", "serve.cli", "bench"],
        env={**environment(), "PYTHONPATH": f"{tmp_path}:{Path.cwd()}"},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"measuring\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 130
