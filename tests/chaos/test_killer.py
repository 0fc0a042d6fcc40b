from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import httpx
import orjson
import psutil
import pytest

from benchmarks.chaos.client import _is_final
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


async def struck(tmp_path, victim, role, meanwhile, **means):
    """Return what the killer wrote down of one strike, after what it found wrong."""

    async def ready(_seconds=0):
        return True

    installation = SimpleNamespace(processes=lambda _: [victim], ready=ready, **means)
    killer = Killer(installation, Requests(meanwhile), blows=tmp_path / "blows", say=lambda _: None)
    await killer.run((Strike(0, role, after_runs=0, delay=0, choice=0, hold=0, overlaps=True),), 1)
    return killer.problems + [
        (line["what"], line["title"]) for line in map(orjson.loads, (tmp_path / "blows").read_bytes().splitlines())
    ]


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


@pytest.mark.parametrize("problem", ["", "owlclaw up left raylet behind"])
async def test_a_runtime_that_ends_without_ray_is_started_again_and_what_was_wrong_with_its_end_is_kept(
    tmp_path, victim, problem
):
    started = []

    async def lost_ray():
        assert victim.wait(5) is not None
        return problem

    told = await struck(
        tmp_path, victim, Role.RAYLET, lambda: None, lost_ray=lost_ray, start=lambda: started.append(True)
    )

    assert told == [*([problem] if problem else []), ("killed", sys.executable), ("ready", "")]
    assert started == [True]


@pytest.mark.parametrize(("status", "final"), [(404, True), (421, True), (429, False), (500, False), (503, False)])
def test_a_refusal_for_good_counts_as_one_whoever_answers(status, final):
    assert _is_final(httpx.Response(status, text="Path not found")) is final
