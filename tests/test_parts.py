"""The parts of the suite, with parts of one small file each."""

from __future__ import annotations

import re

import psutil
import pytest

from serve.processes import lives
from tests.parts import Part, run, run_in_turn

PASSES = "def test_it():\n    pass\n"
FAILS = "def test_it():\n    assert 1 == 2\n"
HANGS = """
import pathlib
import subprocess
import time

def test_it():
    started = subprocess.Popen(["sleep", "3600"])
    written = pathlib.Path(__file__).with_name("pid")
    written.write_text(str(started.pid))
    written.rename(written.with_name("started"))
    time.sleep(3600)
"""


def alive(pid):
    return psutil.pid_exists(pid) and lives(psutil.Process(pid))


@pytest.fixture
def part(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def of(name, text, **options):
        file = tmp_path / f"test_{name}.py"
        file.write_text(text)
        return Part(
            name, ("-c", "/dev/null", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(file)), **options
        )

    return of


def test_all_parts_are_run_and_their_summaries_stand_together_at_the_end(part, capfd):
    status = run([part("one", PASSES), part("two", PASSES, nice=1)])

    assert status == 0
    assert re.search(r"\none: =+ 1 passed in .*=\ntwo: =+ 1 passed in .*=\n$", capfd.readouterr().out)


def test_one_part_that_fails_is_shown_and_makes_the_whole_fail(part, capfd):
    status = run([part("good", PASSES), part("bad", FAILS)])

    said = capfd.readouterr().out
    assert status == 1
    assert "assert 1 == 2" in said
    assert re.search(r"\ngood: =+ 1 passed in .*=\nbad: =+ 1 failed in .*=\n$", said)


def test_a_part_that_found_no_test_makes_the_whole_fail(part):
    assert run([part("none", "")]) == 1


def test_a_part_that_hangs_is_ended_with_all_that_it_started(part, tmp_path, capfd):
    started = tmp_path / "started"

    status = run([part("hanging", HANGS, limit=60.0)], clock=lambda: 61.0 if started.exists() else 0.0)

    assert status == 1
    assert capfd.readouterr().out.endswith("\nhanging: ended: not over after 60 s\n")
    assert not alive(int(started.read_text()))


def test_in_turn_all_parts_are_run_and_one_that_fails_makes_the_whole_fail(part, capfd):
    assert run_in_turn([part("bad", FAILS), part("good", PASSES)]) == 1

    said = capfd.readouterr().out
    assert re.search(r"\nbad: =+ 1 failed in .*=\n", said)
    assert re.search(r"\ngood: =+ 1 passed in .*=\n$", said)
