from __future__ import annotations

import subprocess
import sys
import threading
import time
from queue import Queue

import psutil
import pytest

from serve import ray_watch
from serve.ray_watch import RayWatch

GENEROUS = 60.0
WAITS = "import time; time.sleep(900)"


@pytest.fixture
def ray(tmp_path, monkeypatch):
    """Processes of this one that look like Ray's, by name."""
    monkeypatch.setattr(ray_watch, "_CHECK_INTERVAL", 0.01)
    commands = {name: [str(tmp_path / name), "-c", WAITS] for name in ("raylet", "gcs_server")}
    for path, *_ in commands.values():
        (tmp_path / path).symlink_to(sys.executable)
    started = {name: subprocess.Popen(command, stderr=subprocess.DEVNULL) for name, command in commands.items()}
    for process in started.values():
        while not psutil.Process(process.pid).cmdline():  # the kernel sets it a moment after Popen has returned
            time.sleep(0.001)
    yield started
    for process in started.values():
        process.kill()
        process.wait()


@pytest.fixture
def watch():
    told: Queue = Queue()
    made = RayWatch(lambda part: told.put(f"lost {part}"))
    yield made, told
    made.stop()


@pytest.mark.parametrize(("victim", "name"), [("raylet", "raylet"), ("gcs_server", "store")])
def test_what_nothing_goes_on_without_is_missed(ray, watch, victim, name):
    made, told = watch
    made.own_processes()

    ray[victim].kill()
    lost = told.get(timeout=GENEROUS)
    assert lost.startswith("lost Ray's")
    assert name in lost
    assert told.empty()


def test_after_the_stop_nothing_is_missed(ray, watch):
    made, told = watch
    made.own_processes()
    made.stop()
    ray["raylet"].kill()
    ray["raylet"].wait()

    for thread in threading.enumerate():
        if thread.name.startswith("ray-watch"):
            thread.join(GENEROUS)
    assert told.empty()


@pytest.mark.parametrize("how", ["says no", "raises", "blocks"])
def test_a_cluster_that_gives_no_sign_of_life_is_lost(watch, monkeypatch, how):
    made, told = watch
    monkeypatch.setattr(ray_watch, "_CHECK_INTERVAL", 0.01)
    asked, gone, never = threading.Event(), threading.Event(), threading.Event()

    def is_there():
        asked.set()
        if gone.is_set() and how == "raises":
            raise ConnectionError
        if gone.is_set() and how == "blocks":
            never.wait()
        return not gone.is_set()

    monkeypatch.setattr(ray_watch, "_SILENCE_SECONDS", GENEROUS)
    made.cluster(is_there)
    assert asked.wait(GENEROUS)
    assert told.empty()
    gone.set()
    monkeypatch.setattr(ray_watch, "_SILENCE_SECONDS", 0.05)
    assert told.get(timeout=GENEROUS) == "lost the Ray cluster"
    never.set()
