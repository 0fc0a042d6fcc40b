import os
import subprocess
import sys
from collections import Counter

import psutil
import pytest

from benchmarks.measuring import Measured
from benchmarks.processes import CpuReading
from benchmarks.profile import Profile, details, figures, representatives, spent_by_process
from benchmarks.recorder import RecorderError, recording
from benchmarks.stacks import our_shares, self_shares

BUSY = """
import json

def dump():
    json.dumps(list(range(5_000)))

print("ready", flush=True)
while True:
    dump()
"""
HOST = Counter(
    {("loop (asyncio/events.py:1)", "wake (owlclaw_ray/placement/host.py:3)"): 3, ("run (ray/worker.py:9)",): 1}
)


@pytest.fixture
def busy():
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    yield process.pid
    process.kill()
    process.communicate()


@pytest.mark.long
def test_what_a_process_does_is_sampled_from_outside(busy):
    with recording([busy], 1) as recorded:
        try:
            found = recorded.stacks()[busy]
        except RecorderError as error:
            if os.geteuid() == 0 and "Permission" not in str(error):
                raise
            pytest.skip(f"this machine lets nobody trace processes: {error}")

    assert found.total() > 10
    assert next(iter(self_shares(found))) == "json"
    assert any("dump (" in frame for frames in found for frame in frames)
    assert our_shares(found) == {}


@pytest.mark.long
def test_a_process_that_cannot_be_sampled_is_named_with_what_sampling_needs():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    with (
        recording([ended.pid], 1) as recorded,
        pytest.raises(RecorderError, match=f"process {ended.pid}: .*SYS_PTRACE"),
    ):
        recorded.stacks()


@pytest.mark.long
def test_recorders_end_with_the_block(busy):
    own = psutil.Process()
    before = set(own.children())

    with recording([busy], 60):
        recorders = set(own.children()) - before

    assert len(recorders) == 1
    assert not any(each.is_running() for each in recorders)


def test_one_process_of_each_kind_that_took_enough_is_chosen():
    spent = {"a": ("Host", 1.0), "b": ("raylet", 40.0), "c": ("Host", 55.0), "d": ("gcs_server", 2.0)}

    assert representatives(spent) == ["c", "b"]


def test_a_process_that_came_meanwhile_counts_with_all_that_it_took():
    before = {"old": CpuReading("Keeper", 1, 2.0, 0.0)}
    after = {"old": CpuReading("Keeper", 1, 2.5, 9.0), "new": CpuReading("Host", 1, 0.7, 0.0)}

    assert spent_by_process(before, after) == {"old": ("Keeper", 0.5), "new": ("Host", 0.7)}


def test_a_figure_says_what_a_run_takes_in_a_process_of_what_it_takes_in_all():
    measured = Measured(100, 0, 0, 1.0, {"Host": 0.3, "raylet": 0.1, "gcs_server": 0.005}, 1.0)
    profile = Profile("8 agents", measured, {"Host": HOST})

    host, raylet = figures(profile)

    assert (host.name, host.value) == ("cpu_ms_per_run, Host, 8 agents", pytest.approx(3.0))
    assert (host.baseline, host.baseline_is) == (pytest.approx(4.05), "all processes")
    assert host.note == "in owlclaw_ray 75%, ray 25%; of ours wake (owlclaw_ray/placement/host.py:3) 75%"
    assert (raylet.value, raylet.note) == (pytest.approx(1.0), "not sampled")
    assert details(profile) == {
        "Host": {
            "samples": 4,
            "self": {"owlclaw_ray": 0.75, "ray": 0.25},
            "ours": {"wake (owlclaw_ray/placement/host.py:3)": 0.75},
        }
    }
