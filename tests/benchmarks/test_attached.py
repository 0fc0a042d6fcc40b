import subprocess
import sys

import psutil
import pytest

from benchmarks.attached import AttachedError, ask_inside, cluster_of
from benchmarks.processes import ProcessTree, clean_environment

WAIT = "import signal; print('ready', flush=True); signal.pause()"


class System:
    """A process that looks like one of a Ray cluster."""

    def __init__(self, process):
        self.tree = ProcessTree(psutil.Process(process.pid))


@pytest.fixture
def start():
    """Starts a process with these arguments that waits for its end."""
    started = []

    def run(*arguments, **variables):
        process = subprocess.Popen(
            [sys.executable, "-c", WAIT, *arguments],
            stdout=subprocess.PIPE,
            env={**clean_environment(), **variables},
        )
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return System(process)

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_a_cluster_is_found_by_a_process_of_it_with_what_attaching_needs(start):
    system = start("--gcs-address=127.0.0.1:6379", RAY_AUTH_MODE="token", RAY_LOG_LEVEL="info")

    assert cluster_of(system.tree) == ("127.0.0.1:6379", {"RAY_AUTH_MODE": "token"})


def test_processes_without_a_cluster_are_an_error(start):
    with pytest.raises(AttachedError, match="names its cluster"):
        cluster_of(start().tree)


@pytest.mark.long
def test_a_program_is_told_the_cluster_says_how_far_it_is_and_finds_something(start):
    said = []

    found = ask_inside(start("--gcs-address=127.0.0.1:6379"), "tests.benchmarks.inside", said.append, "/a folder", 40)

    assert found == {"arguments": ["/a folder", "40"]}
    assert said == ["attached to 127.0.0.1:6379"]


@pytest.mark.long
def test_a_program_that_finds_nothing_is_an_error_with_what_it_wrote(start):
    with pytest.raises(AttachedError, match="the ray is bent"):
        ask_inside(start("--gcs-address=127.0.0.1:6379"), "tests.benchmarks.inside", print, "fail")
