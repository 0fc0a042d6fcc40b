"""The clients that play open pages, and the past that pages are measured over."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from benchmarks import console
from benchmarks.console_clients import Poll, RunPageStream, keep_open, with_streams_open
from benchmarks.run_lists import fill_sqlite, searches
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.store.queries import JournalTail, RunById
from owlclaw_ray.store.sql.factory import open_store
from tests.benchmarks.test_load import Server, answer

_STREAM = b"HTTP/1.1 200 OK\r\n\r\n"


@asynccontextmanager
async def saying(said: bytes):
    """A server that says that to whoever asks, and closes the connection."""

    async def talk(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_what_open_pages_ask_for_is_counted_by_what_became_of_it():
    async with Server(answer(200), b"", answer(500), answer(200, body="twelve bytes")) as server:
        polled = await keep_open(server.url, [[Poll("/rows", 0.01)]], 0.3)

    assert set(server.paths) == {"/rows"}
    assert polled.failed == 2
    assert polled.answered == len(server.paths) - 2 > 1
    assert polled.bytes == 8 + 8 + 12 * (polled.answered - 1)
    assert server.connections == 2


async def test_a_stream_is_followed_until_its_run_is_over_and_says_when_entries_came():
    events = b"id: 5\nevent: entries\ndata: <p>\n\n: keep-alive\n\nid: 7\nevent: entries\ndata: <p>\n\n"
    async with saying(_STREAM + events + b"event: end\ndata: completed\n\nid: 8\n\n") as url:
        stream = RunPageStream(url, "/stream")
        await stream.follow()

    assert [*stream.heard] == [5, 7]


async def test_streams_of_which_one_is_refused_are_no_measurement():
    async with saying(b"HTTP/1.1 503 Service Unavailable\r\n\r\n") as url:
        with pytest.raises(ExceptionGroup) as refused:
            await with_streams_open(url, ["/stream"], 1.0)

    assert refused.group_contains(ConnectionError, match="503")


async def test_the_past_has_a_run_of_ten_thousand_entries_before_many_others_in_the_list(tmp_path):
    await console._write_past(tmp_path / "owlclaw.db", 300)

    store = await open_store(f"sqlite:///{tmp_path / 'owlclaw.db'}", writer="reader")
    run = await store.read(RunById(DEFAULT_TENANT, console._LONG_RUN))
    [last] = await store.read(JournalTail(DEFAULT_TENANT, console._LONG_RUN, None, 1))
    await store.close()

    assert (run.status, run.seq) == (RunStatus.COMPLETED, 301)
    assert last.seq == console.ENTRIES


async def test_every_list_of_the_benchmark_of_lists_is_answered(tmp_path):
    url = f"sqlite:///{tmp_path / 'owlclaw.db'}"
    await (await open_store(url, writer="keeper")).close()
    fill_sqlite(tmp_path / "owlclaw.db", 2_000)
    store = await open_store(url, writer="keeper")

    found = {name: len((await store.read(search)).runs) for name, search in searches(2_000).items()}
    await store.close()

    assert found["all"] == found["text refund (a tenth)"] == 50
    assert found["not over"] == 50
    assert found["text of no run"] == 0
