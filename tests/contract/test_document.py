"""The OpenAPI document and the server agree: what either says of requests and responses holds for the other."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml")


UNITS = "examples,coverage,fuzzing"
SHARES = 4
"""Processes that divide the paths among them: most of the time an answer is waited for, not computed."""


@pytest.mark.timeout(900)
def test_the_server_takes_refuses_and_answers_what_its_document_says(server):
    paths = httpx.get(f"{server.url}/openapi.json").json()["paths"]
    shares = [["--phases", UNITS, *including([*paths][each::SHARES])] for each in range(SHARES)]
    shares.append(["--phases", "stateful"])

    with ThreadPoolExecutor(len(shares)) as threads:
        runs = list(threads.map(partial(ask, server), shares))

    assert [run.returncode for run in runs] == [0] * len(runs), "".join(run.stdout + run.stderr for run in runs)
    tested = [int(re.search(r"Tested: (\d+)", run.stdout)[1]) for run in runs[:SHARES]]
    assert sum(tested) == sum(map(len, paths.values()))


def including(paths):
    return [argument for path in paths for argument in ("--include-path", path)]


def ask(server, arguments):
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run", *arguments]
    command += ["--header", f"Authorization: Bearer {server.key}", f"{server.url}/openapi.json"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
