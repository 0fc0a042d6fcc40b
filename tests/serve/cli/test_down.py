from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from serve.pid_file import NAME, PidFile
from tests.serve.cli.conftest import Run

URL = "http://127.0.0.1:1"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / ".owlclaw"
    folder.mkdir()
    return folder


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    code = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - compared with a real process


def test_the_runtime_of_the_folder_is_stopped(cli: Run, data_dir: Path, process: subprocess.Popen[str]):
    PidFile(process.pid, URL, now()).write(data_dir)
    result = cli("down")

    assert (result.exit_code, process.wait(timeout=5)) == (0, 0)
    assert result.output == f"stopping process {process.pid} at {URL}\nstopped\n"
    assert not (data_dir / NAME).exists()


def test_nothing_running_is_said(cli: Run, tmp_path: Path):
    result = cli("down")

    assert (result.exit_code, result.output) == (0, f"nothing is running for {tmp_path}\n")


def test_a_file_that_a_dead_process_left_is_removed(cli: Run, data_dir: Path, process: subprocess.Popen[str]):
    process.kill()
    process.wait()
    PidFile(process.pid, URL, now()).write(data_dir)
    result = cli("down")

    assert result.exit_code == 0
    assert f"process {process.pid} has ended without removing" in result.output
    assert not (data_dir / NAME).exists()


def test_a_process_that_has_the_pid_by_chance_is_left_alone(cli: Run, data_dir: Path, process: subprocess.Popen[str]):
    PidFile(process.pid, URL, now() - timedelta(days=1)).write(data_dir)
    result = cli("down")

    assert "nothing is running" in result.output
    assert process.poll() is None


def test_a_process_that_does_not_end_in_time_is_killed_with_what_it_started(cli: Run, data_dir: Path):
    waits = "import time; time.sleep(900)"
    code = f"import subprocess as s, sys; print(s.Popen([sys.executable, '-c', {waits!r}]).pid, flush=True); {waits}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)  # until it stands still: a signal that comes sooner would end it
        PidFile(process.pid, URL, now()).write(data_dir)
        result = cli("down", "--timeout", "0")

        assert result.exit_code == 0
        assert f"process {process.pid} did not end within 0 s and was killed" in result.output
        process.wait(timeout=60)
    assert psutil.wait_procs([child], timeout=60)[1] == []
    assert not (data_dir / NAME).exists()


def test_nothing_outlives_a_process_that_goes_on_starting_others_while_it_is_killed(cli: Run, data_dir: Path):
    waits = f"import time; time.sleep(900)  # {uuid4()}"
    code = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    subprocess.Popen([sys.executable, "-IS", "-c", {waits!r}])
    print("started", flush=True)
    time.sleep(0.01)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        PidFile(process.pid, URL, now()).write(data_dir)
        result = cli("down", "--timeout", "0")
        process.wait(timeout=60)

    left = [each for each in psutil.process_iter(["cmdline"]) if waits in (each.info["cmdline"] or ())]
    for each in left:
        each.kill()
    assert result.exit_code == 0
    assert left == []


def test_a_file_that_is_no_pid_file_is_reported(cli: Run, data_dir: Path):
    (data_dir / NAME).write_text("12")
    result = cli("down")

    assert result.exit_code == 1
    assert "is no pid file" in result.output
