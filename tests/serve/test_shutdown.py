from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from serve.cli.connection import environment
from serve.launch import LOST_RAY
from serve.shutdown import SignalEvent, StopStep, run_stop_steps

GENEROUS = 60.0
STOPPING = """
import os, sys, threading, time
from serve import shutdown
from serve.shutdown import StopStep, StopSignals, run_stop_steps

shutdown._ONE_WISH_SECONDS = float(sys.argv[1])
signals = StopSignals(lambda: (print("at once", flush=True), os._exit(3)))
signals.install()
try:
    with signals.signals_deferred():
        print("held back", flush=True)
        signals.asked.wait()
        print("noted", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
signals.only_note()
print(run_stop_steps([StopStep("waiting for ever", threading.Event().wait, float(sys.argv[2]))]), flush=True)
"""


LOSING_RAY = """
import pathlib, sys, threading
from serve.launch import ServerLifecycle


def announce(line):
    print(line, flush=True)
    if "ended" in line:
        late = threading.Thread(target=life.announce, args=["tool workers are ready"], daemon=True)
        late.start()
        late.join(1.0)


folder = pathlib.Path(sys.argv[1])
life = ServerLifecycle(folder, folder / "scratch", announce, as_json=False)
life.lose("Ray's raylet")
"""

INTERRUPTED_ANYWHERE = """
import signal, sys
from serve import shutdown
from serve.shutdown import StopSignals

shutdown._LOOK_SECONDS = 0.001


class Interruption:
    def __init__(self, left):
        self.left = left

    def __call__(self, frame, event, argument):
        if event == "line" and "importlib" not in frame.f_code.co_filename:
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGTERM)
        return self


for line in range(1, 30):
    signals = StopSignals(lambda: None)
    signals.install()
    signals.only_note()
    sys.settrace(Interruption(line))
    signals.asked.wait()
    sys.settrace(None)
    assert signals.asked.is_set()
    print(line, flush=True)
"""


def test_a_signal_may_interrupt_the_wait_for_it_at_each_of_its_lines():
    command = [sys.executable, "-c", INTERRUPTED_ANYWHERE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        watchdog = threading.Timer(GENEROUS, process.kill)
        watchdog.start()
        told = process.stdout.read()
        watchdog.cancel()

    assert [int(line) for line in told.split()] == list(range(1, 30))


def test_an_event_that_a_handler_sets_wakes_all_who_wait_and_stays_set():
    event, woken = SignalEvent(), []
    waiting = [threading.Thread(target=lambda: woken.append(event.wait())) for _ in range(3)]
    for each in waiting:
        each.start()
    event.set()
    event.set()
    for each in waiting:
        each.join()
    event.wait()

    assert len(woken) == 3
    assert event.is_set()


def test_a_step_that_blocks_is_given_up_one_that_raises_is_logged_and_the_others_are_done_in_order(caplog):
    done, free = [], threading.Event()

    def fail():
        done.append("fails")
        raise ValueError("no store")

    late = run_stop_steps(
        [
            StopStep("first", lambda: done.append("first"), GENEROUS),
            StopStep("fails", fail, GENEROUS),
            StopStep("blocks", free.wait, 0.01),
            StopStep("last", lambda: done.append("last"), GENEROUS),
        ]
    )
    free.set()

    assert late == ["blocks"]
    assert done == ["first", "fails", "last"]
    assert "fails failed" in caplog.text
    assert "no store" in caplog.text


@pytest.fixture
def stopping():
    started = []

    def start(one_wish, deadline):
        command = [sys.executable, "-u", "-c", STOPPING, str(one_wish), str(deadline)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
        started.append(process)
        assert process.stdout.readline() == "held back\n"
        process.send_signal(signal.SIGINT)
        assert [process.stdout.readline() for _ in range(2)] == ["noted\n", "interrupted\n"]
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_does_not_wait_for_a_step_that_blocks(stopping, second):
    process = stopping(0, 900)
    process.send_signal(second)

    assert process.communicate(timeout=GENEROUS)[0] == "at once\n"
    assert process.returncode == 3


def test_signals_in_quick_succession_are_one(stopping):
    process = stopping(900, 1)
    process.send_signal(signal.SIGTERM)

    assert process.communicate(timeout=GENEROUS)[0] == "['waiting for ever']\n"
    assert process.returncode == 0


def test_the_last_line_of_a_runtime_that_lost_ray_says_so_whatever_other_threads_have_to_say(tmp_path):
    losing = subprocess.run(
        [sys.executable, "-c", LOSING_RAY, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=GENEROUS,
        env=environment(),
        check=False,
    )

    assert losing.returncode == LOST_RAY, losing.stderr
    [line] = losing.stdout.splitlines()
    assert line.startswith("ended: Ray's raylet has ended")
