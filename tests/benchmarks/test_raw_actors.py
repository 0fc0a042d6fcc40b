import subprocess
import sys

import psutil
import pytest

from benchmarks.processes import ProcessTree
from benchmarks.raw_actors import pss_of_each

WAIT = "import signal; print('ready', flush=True); signal.pause()"
TITLE = "test-of-raw-actors"


@pytest.fixture
def waiting():
    """Two processes with the same title."""
    started = [
        subprocess.Popen([TITLE, "-c", WAIT], executable=sys.executable, stdout=subprocess.PIPE) for _ in range(2)
    ]
    assert [process.stdout.readline() for process in started] == [b"ready\n"] * 2
    yield [process.pid for process in started]
    for process in started:
        process.kill()
        process.communicate()


def test_memory_is_that_of_the_processes_that_are_meant_and_of_no_others_with_their_title(waiting):
    tree = ProcessTree(psutil.Process())

    assert len(pss_of_each(tree, TITLE)) == 2
    [size] = pss_of_each(tree, TITLE, {waiting[0]}.__contains__)
    assert size > 1_000_000
    assert pss_of_each(tree, f"no {TITLE}") == []
