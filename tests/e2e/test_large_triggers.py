from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event

import httpx
import orjson
import psutil
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(900)]

TRIGGERS = 400
BODY_BYTES = 1_000_000
QUIET_TRIGGERS = 50
MOST_GROWTH = 1_000_000_000
MOST_SLOWER = 10
STEADY_LOOKS, STEADY_BYTES = 10, 5_000_000
TAKEN, REFUSED = 202, {429, 503}


def large_body() -> bytes:
    """Return a trigger of nearly 1 MiB whose objects take several times as much."""
    item = orjson.dumps({"price": 7, "name": "host-12"})
    return b'{"payload":[' + b",".join([item] * (BODY_BYTES // (len(item) + 1))) + b"]}"


class Memory(threading.Thread):
    """Watches what a process and all that it started take, in bytes."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.root, self.over = psutil.Process(pid), threading.Event()
        self.before = self.peak = self.settled()

    def settled(self) -> int:
        """Return what they take when all of them are warm: for some seconds it has grown no more."""
        found, quiet = self.now(), 0
        while quiet < STEADY_LOOKS:
            time.sleep(1)
            now = self.now()
            quiet = quiet + 1 if now < found + STEADY_BYTES else 0
            found = max(now, found)
        return found

    def now(self) -> int:
        total = 0
        for each in [self.root, *self.root.children(recursive=True)]:
            try:
                total += each.memory_full_info().pss
            except psutil.NoSuchProcess:
                continue
        return total

    def run(self) -> None:
        while not self.over.wait(0.1):
            self.peak = max(self.peak, self.now())


async def submitted(client: httpx.AsyncClient, agent: str, body: bytes, answers: Counter[int]) -> str:
    """Return the id of the run, sending the trigger again for as long as the server asks for that."""
    while True:
        answer = await client.post(f"/v1/agents/{agent}/triggers", content=body)
        answers[answer.status_code] += 1
        if answer.status_code == TAKEN:
            return str(answer.json()["run_id"])
        assert answer.status_code in REFUSED, answer.text
        await asyncio.sleep(float(answer.headers["Retry-After"]))


def small_ones(url: str, over: Event, found: Connection) -> None:
    """Send small triggers one after another, and tell how many seconds each took: first alone, then until it is over. The first that
    is refused, or gets no answer, is told instead, and ends it.

    In a process of their own: the one that sends the large ones is busy.
    """
    with httpx.Client(base_url=url, timeout=300) as client:

        def one() -> float:
            began = time.perf_counter()
            answer = client.post("/v1/agents/small/triggers", content=b'{"payload":1}')
            if answer.status_code != TAKEN:
                raise AssertionError(f"a small trigger got {answer.status_code}: {answer.text}")
            time.sleep(0.02)
            return time.perf_counter() - began - 0.02

        try:
            found.send([one() for _ in range(QUIET_TRIGGERS)])
            beside = []
            while not over.is_set():
                beside.append(one())
            found.send(beside)
        except (AssertionError, httpx.HTTPError) as error:
            found.send(f"{type(error).__name__}: {error}")


async def seconds(told: Connection) -> list[float]:
    """Return what `small_ones` tells next; raises AssertionError with what went wrong, also if it ended without a word."""
    try:
        found: list[float] | str = await asyncio.to_thread(told.recv)
    except EOFError:
        found = "the process that sends small triggers ended without a word"
    assert not isinstance(found, str), found
    return found


async def ended(client: httpx.AsyncClient, run_ids: Sequence[str]) -> Counter[str]:
    """Return how many runs ended how, and why."""
    statuses: Counter[str] = Counter()
    for run_id in run_ids:
        while (status := (await client.get(f"/v1/runs/{run_id}/events")).status_code) != httpx.codes.OK:
            assert status in REFUSED
        run = (await client.get(f"/v1/runs/{run_id}")).json()
        error = (run["result"] or {}).get("error")
        statuses[run["status"] + (f": {error}" if error else "")] += 1
    return statuses


async def wave(url: str, agents: list[str]) -> tuple[Counter[int], Counter[str], list[float], list[float]]:
    body, answers = large_body(), Counter[int]()
    limits, processes = httpx.Limits(max_connections=None), multiprocessing.get_context("spawn")
    over, (told, telling) = processes.Event(), processes.Pipe(duplex=False)
    small = processes.Process(target=small_ones, args=(url, over, telling))
    small.start()
    telling.close()  # so that the end of the process is the end of what it tells
    try:
        quiet = await seconds(told)
        async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as client, asyncio.TaskGroup() as group:
            beside = group.create_task(seconds(told))
            sent = [group.create_task(submitted(client, agent, body, answers)) for agent in agents]
            large = [await each for each in sent]
            over.set()
            return answers, await ended(client, large), quiet, await beside
    finally:
        over.set()
        small.join()


@pytest.mark.parametrize("agents", [["one"] * TRIGGERS, [f"many:{at}" for at in range(TRIGGERS)]], ids=["one", "many"])
def test_400_triggers_of_a_mebibyte_at_once_cost_less_than_a_gigabyte_and_all_of_them_run(
    installation, agents, record_property
):
    installation.define("one", {"turns": [{"text": "done"}]})
    installation.define("many", {"turns": [{"text": "done"}]})
    installation.define("small", {"turns": [{"text": "done"}]})
    with (installation.folder / "agents/many/agent.yaml").open("a") as file:
        file.write("isolation: shared\n")
    installation.up()
    memory = Memory(installation.process.pid)
    memory.start()
    try:
        answers, statuses, quiet, beside = asyncio.run(wave(f"http://127.0.0.1:{installation.port}", agents))
    finally:
        memory.over.set()
        memory.join()

    growth = memory.peak - memory.before
    ratio = statistics.median(beside) / statistics.median(quiet)
    found = {"growth_mb": growth // 1_000_000, "answers": dict(answers), "small_ones_slower": ratio}
    found |= {
        "quiet_ms": 1_000 * statistics.median(quiet),
        "worst_beside_ms": 1_000 * max(beside),
        "small": len(beside),
    }
    record_property("large triggers", found)
    sys.stderr.write(f"{found}\n")
    assert growth < MOST_GROWTH
    assert ratio < MOST_SLOWER
    assert answers[TAKEN] == TRIGGERS
    assert statuses == {"completed": TRIGGERS}
