"""Short sessions with two clusters on one database, and with one cluster of several machines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from benchmarks.chaos.machines import why_not
from owlclaw_ray.testing.postgres import find_binaries

pytestmark = [pytest.mark.ray, pytest.mark.postgres, pytest.mark.long, pytest.mark.timeout(900)]


def session(tmp_path: Path, *arguments: str) -> dict:
    """Return the report of a session in which no promise was broken."""
    if find_binaries() is None:
        pytest.skip("needs PostgreSQL's server binaries")
    output = tmp_path / "report.json"
    command = [sys.executable, "-m", "serve.cli", "bench", "chaos", *arguments, "--output", str(output)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return orjson.loads(output.read_bytes())


def test_no_promise_is_broken_when_the_cluster_that_holds_the_lease_is_killed_or_stopped(tmp_path):
    report = session(tmp_path, "--clusters", "2", "--runs", "150", "--kills", "2", "--pace", "10", "--slowness", "3")

    assert report["accepted"] == 150
    assert report["strikes"].keys() == {"handover", "cluster"}
    assert report["resumed"]


def test_no_promise_is_broken_when_machines_are_lost(tmp_path):
    if reason := why_not():
        pytest.skip(reason)
    roles = "machine,from_database,from_cluster"

    report = session(tmp_path, "--nodes", "3", "--runs", "150", "--kills", "3", "--pace", "15", "--roles", roles)

    assert report["accepted"] == 150
    assert sum(strike.get("stopped", 0) for strike in report["strikes"].values()) == 3
