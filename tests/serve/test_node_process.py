"""A machine's Ray as a child: drained before it is stopped, with real processes in the places of Ray and of the drain."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import psutil
import pytest

from serve.processes import lives

RUN = """
import json, sys
from serve.node_process import run_node
command, drain, environ, asking = json.loads(sys.argv[1])
sys.exit(run_node(command, drain, environ=environ, asking=asking))
"""
TOLD_WHILE_IT_STARTS_THE_DRAIN = """
import os, signal, subprocess
class Popen(subprocess.Popen):
    made = 0
    def __init__(self, *arguments, **options):
        Popen.made += 1
        if Popen.made == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        super().__init__(*arguments, **options)
subprocess.Popen = Popen
"""
NODE = """
import os, signal, sys
def stop(number, frame):
    os.write(1, b"node stopped\\n")
    os._exit(1)
signal.signal(signal.SIGTERM, stop)
print("node", os.getpid(), os.environ.get("FOR", ""), flush=True)
if sys.argv[1:]:
    sys.exit(int(sys.argv[1]))
while True:
    signal.pause()
"""
DRAIN = """
import os, signal, sys
print("drain begins", os.environ.get("FOR", ""), flush=True)
if sys.argv[1] == "hangs":
    signal.pause()
print("drain ends", flush=True)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def start():
    """Run a node, and return the process that does; its lines tell what happens."""
    made = []

    def started(*ends, drain="0", before=""):
        plain = {"PATH": os.defpath}
        asked = [
            [sys.executable, "-c", NODE, *ends],
            [sys.executable, "-c", DRAIN, drain],
            plain | {"FOR": "ray"},
            plain | {"FOR": "asking"},
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", before + RUN, json.dumps(asked)], stdout=subprocess.PIPE, text=True, process_group=0
        )
        made.append(process)
        return process

    yield started
    for process in made:
        if process.poll() is None:
            process.kill()
        process.communicate()


def said(process):
    """The next line."""
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("drain", ["0", "1"])
def test_a_node_that_is_told_to_stop_is_drained_first_and_stopped_however_that_ended(start, number, drain):
    process = start(drain=drain)
    assert said(process).endswith(" ray")

    process.send_signal(number)

    assert [said(process) for _ in range(3)] == ["drain begins asking", "drain ends", "node stopped"]
    assert process.wait(60) == 1


def test_a_node_that_is_told_twice_stops_at_once_and_its_drain_ends_with_it(start):
    process = start(drain="hangs")
    said(process)
    process.terminate()
    assert said(process) == "drain begins asking"
    children = psutil.Process(process.pid).children(recursive=True)

    process.terminate()

    assert said(process) == "node stopped"
    assert process.wait(60) == 1
    assert [each for each in psutil.wait_procs(children, 60)[1] if lives(each)] == []


def test_a_node_that_is_told_again_while_its_drain_is_started_stops_at_once(start):
    process = start(drain="hangs", before=TOLD_WHILE_IT_STARTS_THE_DRAIN)
    said(process)

    process.terminate()

    assert process.wait(60) == 1
    lines = process.stdout.read().splitlines()
    assert lines[-1] == "node stopped"
    assert lines[:-1] in ([], ["drain begins asking"])


@pytest.mark.parametrize("code", [0, 3])
def test_a_node_that_ends_by_itself_is_not_drained_and_gives_its_exit_code(start, code):
    process = start(str(code))

    assert process.wait(60) == code
    assert process.stdout.read().count("\n") == 1


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs util-linux")
def test_a_node_whose_parent_is_killed_stops(start):
    process = start()
    said(process)

    process.kill()

    assert said(process) == "node stopped"


def test_a_node_that_a_signal_ends_gives_the_code_that_shells_give(start):
    process = start()
    os.kill(int(said(process).split()[1]), signal.SIGKILL)

    assert process.wait(60) == 128 + signal.SIGKILL
