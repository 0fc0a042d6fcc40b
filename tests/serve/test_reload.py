"""Starting again when code changes, with a real process and real changes of files."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from serve.cli.connection import environment

RELOADER = """
import sys
from pathlib import Path

from serve.reload import Reloader

command = [sys.executable, "app.py"]
sys.exit(Reloader(command, Path(), lambda line: print(line, flush=True)).run())
"""
STAYS = "import time\nprint('{}', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def reloading(tmp_path):
    """Starts a Reloader of app.py."""
    started = []

    def start(text):
        (tmp_path / "app.py").write_text(text)
        process = subprocess.Popen(
            [sys.executable, "-c", RELOADER],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},  # noqa: TID251
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=60)


def said(process, text):
    """Read lines until one has the text; return it."""
    for line in process.stdout:
        if text in line:
            return line
    raise AssertionError(f"it never said {text!r}")


def unread(process):
    """Return what it has written by now: a text stream that is empty for a moment raises TypeError."""
    try:
        return process.stdout.read() or ""
    except TypeError:
        return ""


def change_until(process, path, text, expected):
    """Change a file until the change is noticed: watching begins some time after the start."""
    os.set_blocking(process.stdout.fileno(), False)
    heard, end = "", time.monotonic() + 60
    while expected not in heard:
        assert time.monotonic() < end, heard
        path.write_text(text)
        time.sleep(0.5)
        heard += unread(process)
    os.set_blocking(process.stdout.fileno(), True)
    return heard


def test_a_change_of_code_starts_it_again_and_one_of_definitions_or_data_does_not(reloading, tmp_path):
    process = reloading(STAYS.format("one"))
    said(process, "one")
    change_until(process, tmp_path / "app.py", STAYS.format("two"), "two")
    for folder in ("agents", ".owlclaw"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "script.py").write_text("x = 1\n")
    (tmp_path / "notes.md").write_text("x")

    heard = change_until(process, tmp_path / "app.py", STAYS.format("three"), "three")

    assert set(re.findall(r"(\S+) changed", heard)) == {"app.py"}


def test_what_failed_waits_for_a_change(reloading, tmp_path):
    process = reloading("raise SystemExit(3)\n")

    assert "code 3" in said(process, "exited with")
    change_until(process, tmp_path / "app.py", STAYS.format("mended"), "mended")


def test_it_ends_with_what_ends_well(reloading):
    process = reloading("print('done', flush=True)\n")

    process.communicate(timeout=60)

    assert process.returncode == 0


ENDS_WITH_7 = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("up", flush=True)
time.sleep(600)
"""


def test_a_signal_ends_both(reloading):
    process = reloading(ENDS_WITH_7)
    said(process, "up")

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert process.returncode == 7


INTERRUPTED_ANYWHERE = """
import itertools, signal, sys
from pathlib import Path
from serve import reload

reload.watch = lambda *_, **__: itertools.chain([set(), {(1, "app.py")}], itertools.repeat(set()))


class Interruption:
    def __init__(self, left):
        self.left = left

    def __call__(self, frame, event, argument):
        if event == "line" and frame.f_code.co_name in {"_run_again", "_start"}:
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGTERM)
        return self


for line in range(1, 40):
    sys.settrace(Interruption(line))
    code = reload.Reloader(["sleep", "600"], Path(), lambda line: None).run()
    sys.settrace(None)
    print(line, code, flush=True)
"""


def test_a_signal_that_comes_while_the_command_is_started_ends_it(tmp_path):
    """Whichever line it interrupts, of the first start and of one after a change."""
    command = [sys.executable, "-c", INTERRUPTED_ANYWHERE]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        watchdog = threading.Timer(60, end_with_children, [process.pid])
        watchdog.start()
        told = process.stdout.read()
        watchdog.cancel()

    assert [line.split() for line in told.splitlines()] == [[str(line), str(-signal.SIGTERM)] for line in range(1, 40)]


def end_with_children(pid):
    for each in [*(found := psutil.Process(pid)).children(recursive=True), found]:
        each.kill()
