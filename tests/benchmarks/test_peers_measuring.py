import asyncio
import itertools
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.child import Child, running
from benchmarks.peers.in_process import keep_in_flight
from benchmarks.peers.job import LAST_WORD, TOOL, ask_model, log_decision
from benchmarks.peers.measuring import in_process, over_http
from benchmarks.peers.sample import Done, take
from benchmarks.processes import ProcessTree
from tests.benchmarks.test_load import Server, answer

ROOT = Path(__file__).parents[2]
STAND_IN = """
import asyncio, sys
from benchmarks.peers.in_process import serve_load

async def run(number):
    print("x" * 1_000)  # as a chatty library does
    await asyncio.sleep(0)
    return "{word}"

asyncio.run(serve_load(run))
"""


@pytest.fixture
def stand_in(tmp_path):
    """Returns the context manager of a peer whose runs end with the given word."""

    def start(word=LAST_WORD):
        (tmp_path / "stand_in.py").write_text(STAND_IN.format(word=word))
        return running("stand_in", environment={"PYTHONPATH": f"{tmp_path}:{ROOT}"})

    return start


async def test_the_job_is_one_tool_call_between_two_model_calls():
    first = await ask_model([])
    [call] = first["calls"]
    result = await log_decision(**call["arguments"])
    last = await ask_model([{"price": 7}, dict(first), result])

    assert call["name"] == TOOL
    assert last == {"text": LAST_WORD, "calls": []}


async def test_as_many_runs_as_asked_for_are_under_way_and_all_that_ended_count():
    under_way, most, ended = 0, 0, 0

    async def run(_number):
        nonlocal under_way, most, ended
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        ended += 1
        return LAST_WORD

    runs, seconds = await keep_in_flight(run, itertools.count(), 5, 0.05)

    assert most == 5
    assert under_way == 0
    assert runs == ended >= 5
    assert seconds >= 0.05


async def test_a_run_that_ends_otherwise_is_an_error():
    async def run(_number):
        return "not yet"

    with pytest.raises(RuntimeError, match="not yet"):
        await keep_in_flight(run, itertools.count(), 1, 0.01)


def test_a_peer_is_loaded_in_its_own_process_again_and_again(stand_in):
    with stand_in() as child:
        first, second = in_process(child, 3, 0.1), in_process(child, 3, 0.1)

    assert first.runs >= 3
    assert second.runs >= 3
    assert first.seconds >= 0.1


def test_a_peer_whose_runs_fail_gives_no_figure_but_its_traceback(stand_in):
    with stand_in("not yet") as child, pytest.raises(RuntimeError, match="a run ended with 'not yet'"):
        in_process(child, 3, 0.1)


def test_what_a_peers_interpreter_runs_besides_the_peer_is_standard_library():
    code = "import benchmarks.peers.in_process, benchmarks.peers.job"

    found = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert found.stderr == ""


@pytest.fixture
def child(tmp_path):
    return lambda url: Child(url, ProcessTree(psutil.Process()), 0.0, tmp_path)


async def test_runs_over_http_are_calls_that_end_with_the_run(child):
    async with Server(answer(200)) as server:
        done = await asyncio.to_thread(over_http, child(server.url), 2, 0.05)

    assert done.runs == len(server.paths)
    assert server.paths[:2] == ["/agent/a0/run", "/agent/a1/run"]


async def test_a_refused_run_over_http_gives_no_figure(child):
    async with Server(answer(500)) as server:
        with pytest.raises(RuntimeError, match="refused"):
            await asyncio.to_thread(over_http, child(server.url), 2, 0.05)


@pytest.mark.long
def test_a_sample_holds_what_the_load_got_done_and_what_the_processes_used(stand_in):
    with stand_in() as child:
        sample = take(child.tree, 3, lambda: in_process(child, 3, 0.3))

    assert sample.in_flight == 3
    assert sample.runs_per_second == sample.runs / sample.seconds
    assert 0 < sum(sample.cpu_seconds.values()) < 2 * sample.seconds
    assert sample.cpu_ms_per_run == pytest.approx(1_000 * sum(sample.cpu_seconds.values()) / sample.runs)
    assert sample.others_cores >= 0


def test_nothing_done_costs_nothing_a_run():
    assert take(ProcessTree(psutil.Process()), 1, lambda: Done(0, 1.0)).runs_per_second == 0
