"""The OpenAPI document and the server agree: what either says of requests and responses holds for the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml")


@pytest.mark.timeout(900)
def test_the_server_takes_refuses_and_answers_what_its_document_says(server):
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run", f"{server}/openapi.json"]
    paths = httpx.get(f"{server}/openapi.json").json()["paths"]

    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout + run.stderr
    assert f"Tested: {sum(map(len, paths.values()))}" in run.stdout
