from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import orjson
import psutil
import pytest

from benchmarks.chaos.killer import Killer
from benchmarks.chaos.strikes import Role, Strike
from serve.launch import LOST_RAY
from serve.processes import lives


@pytest.fixture
def victim():
    """A process that waits to be hit."""
    code = "import signal; print('here', flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield psutil.Process(process.pid)
        process.kill()


class Requests:
    """A client whose next request never comes; the victim may die while it is waited for."""

    accepted = 0

    def __init__(self, meanwhile):
        self._meanwhile = meanwhile

    def open_until(self, _number):
        pass

    async def has_accepted(self, _number):
        pass

    async def next_request(self, _seconds):
        self._meanwhile()


async def struck(tmp_path, victim, role, meanwhile):
    """Return what the killer wrote down of one strike."""

    async def ready(_seconds):
        return True

    installation = SimpleNamespace(processes=lambda _: [victim], ready=ready)
    killer = Killer(installation, Requests(meanwhile), blows=tmp_path / "blows", say=lambda _: None)
    await killer.run((Strike(0, role, after_runs=0, delay=0, choice=0, hold=0, overlaps=True),), 1)
    return [(line["what"], line["title"]) for line in map(orjson.loads, (tmp_path / "blows").read_bytes().splitlines())]


async def test_a_kill_is_written_down_with_who_was_hit(tmp_path, victim):
    assert await struck(tmp_path, victim, Role.KEEPER, lambda: None) == [("killed", Path(sys.executable).name)]
    assert victim.wait(5) is not None


@pytest.mark.parametrize("reap", [True, False])
async def test_a_strike_at_a_process_that_died_before_it_is_a_miss_not_a_kill(tmp_path, victim, reap):
    def dies():
        victim.kill()
        while lives(victim):
            pass
        if reap:
            victim.wait(5)

    assert await struck(tmp_path, victim, Role.KEEPER, dies) == [("missed", "")]


class Node:
    """A runtime whose `owlclaw up` ends with a code when the victim is killed, and leaves processes behind or not."""

    def __init__(self, victim, code, left):
        self.starts = 0
        self._victim, self._code, self._left = victim, code, left

    def processes(self, _role):
        return [self._victim]

    def family(self):
        return self._left

    async def ended(self, _seconds):
        return self._code

    async def kill(self):
        pass

    def start(self):
        self.starts += 1

    async def ready(self, _seconds=0.0):
        return True


async def struck_node(tmp_path, victim, code, *left):
    node = Node(victim, code, left)
    killer = Killer(node, Requests(lambda: None), blows=tmp_path / "blows", say=lambda _: None)
    await killer.run((Strike(0, Role.RAYLET, after_runs=0, delay=0, choice=0, hold=0, overlaps=True),), 1)
    assert node.starts == 1
    return killer.problems


async def test_a_runtime_that_ends_with_an_error_when_its_node_is_dead_is_started_again(tmp_path, victim):
    assert await struck_node(tmp_path, victim, LOST_RAY, victim) == []


@pytest.mark.parametrize(("code", "told"), [(0, "ended with code 0"), (None, "was still there")])
async def test_a_runtime_that_does_not_say_that_its_node_is_dead_is_a_problem(tmp_path, victim, code, told):
    [problem] = await struck_node(tmp_path, victim, code)

    assert told in problem


async def test_a_process_that_a_dead_node_leaves_behind_is_a_problem(tmp_path, victim, monkeypatch):
    monkeypatch.setattr("benchmarks.chaos.killer._ORPHAN_SECONDS", 0.01)

    [problem] = await struck_node(tmp_path, victim, LOST_RAY, psutil.Process())

    assert str(psutil.Process().pid) in problem
