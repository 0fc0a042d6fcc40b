from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import orjson
import psutil
import pytest

from benchmarks.chaos.killer import Killer
from benchmarks.chaos.strikes import Role, Strike


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
    assert await struck(tmp_path, victim, Role.KEEPER, lambda: None) == [("killed", sys.executable)]
    assert victim.wait(5) is not None


@pytest.mark.parametrize("reap", [True, False])
async def test_a_strike_at_a_process_that_died_before_it_is_a_miss_not_a_kill(tmp_path, victim, reap):
    def dies():
        victim.kill()
        while victim.is_running() and victim.status() != psutil.STATUS_ZOMBIE:
            pass
        if reap:
            victim.wait(5)

    assert await struck(tmp_path, victim, Role.KEEPER, dies) == [("missed", "")]
