from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from serve.cli.connection import environment
from serve.processes import child_ended, command_line, lives, title_of

ORPHANED = """
import subprocess, sys, time
from serve.processes import OrphanReaper, adopt_orphans, descendants, end_descendants

WAITS = [sys.executable, "-IS", "-c", "import time; time.sleep(900)"]
adopt_orphans()
parent = "import subprocess as s; print(s.Popen(%r, stdout=s.DEVNULL, start_new_session=True, env={}).pid)" % WAITS
orphan = int(subprocess.run([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, check=True).stdout)
"""
ENDED = """
stopped = subprocess.Popen(WAITS)
stopped.send_signal(19)
assert orphan in [each.pid for each in descendants()]
assert end_descendants() == 2
assert descendants() == []
print(orphan)
"""
BURIED = """
import os, psutil
reaper = OrphanReaper()
os.kill(orphan, 9)
while orphan in [each.pid for each in psutil.Process().children()]:
    reaper.look()
    time.sleep(0.01)
print(orphan)
"""


def run(script):
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def test_orphans_in_sessions_of_their_own_are_found_and_ended_and_so_are_the_stopped():
    orphan = run(ORPHANED + ENDED)

    assert not psutil.pid_exists(orphan) or not lives(psutil.Process(orphan))


def test_an_orphan_that_died_does_not_stay_in_the_process_table():
    assert not psutil.pid_exists(run(ORPHANED + BURIED))


@pytest.mark.parametrize("waited_for", [False, True])
def test_a_child_has_ended_whether_or_not_somebody_waited_for_it(waited_for):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert not child_ended(child.pid)

    child.stdin.close()
    if waited_for:
        child.wait()
    else:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child_ended(child.pid)
    assert child.wait() == 1


def test_a_process_that_has_ended_has_no_command_line_and_no_title():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"])
    process = psutil.Process(child.pid)
    while "-c" not in command_line(process):  # the kernel sets it a moment after Popen has returned
        pass
    title = title_of(process)

    child.kill()
    while lives(process):
        pass
    dead = command_line(process), title_of(process)
    child.wait()

    assert title == Path(sys.executable).name
    assert dead == ([], "")
    assert (command_line(process), title_of(process)) == ([], "")
