from __future__ import annotations

import asyncio
import json
from itertools import cycle

import httpx
import pytest

from benchmarks.chaos.client import Client, _is_final
from benchmarks.chaos.streams import follow_all
from benchmarks.chaos.workload import orders


@pytest.fixture
def answering():
    """A server that accepts triggers, and answers everything else with these heads in turn."""

    async def start(*heads, trigger=b"HTTP/1.1 202 Accepted\r\nContent-Type: application/json\r\n"):
        turns = cycle(heads)

        async def answer(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST"):
                body = json.dumps({"run_id": "run_1", "duplicate": False}).encode()
                writer.write(trigger + b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body))
            else:
                writer.write(next(turns))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    return start


async def followed(start, tmp_path, *heads):
    server, url = await start(*heads)
    async with server:
        client = Client([url], iter(()), rate=1.0, answers=tmp_path / "answers")
        return await follow_all(url, client, 0, 0.2, lambda _: None, streams=4)


async def test_streams_may_be_opened_or_refused_for_a_while(answering, tmp_path):
    opened, refused = b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\n\r\n"

    assert await followed(answering, tmp_path, opened, refused) == []


@pytest.mark.parametrize("head", [b"HTTP/1.1 503 Busy\r\n\r\n", b"HTTP/1.1 404 Not Found\r\n\r\n"])
async def test_a_stream_that_is_refused_without_a_hint_or_for_good_is_a_problem(answering, tmp_path, head):
    [problem] = await followed(answering, tmp_path, head)

    assert problem == f"4 event streams were answered {head[9:12].decode()}"


async def test_a_proxy_that_does_not_know_a_valid_route_refuses_a_trigger_for_good(answering, tmp_path):
    server, url = await answering(trigger=b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n")
    client = Client([url], iter(()), rate=1.0, answers=tmp_path / "answers")

    async with server:
        run_id = await client.submit_now(next(orders(7, 1)))

    assert run_id is None
    assert json.loads((tmp_path / "answers").read_text())["what"] == "refused"


@pytest.mark.parametrize(("status", "final"), [(404, True), (421, True), (429, False), (500, False), (503, False)])
def test_a_refusal_for_good_counts_as_one_whoever_answers(status, final):
    assert _is_final(httpx.Response(status, text="Path not found")) is final
