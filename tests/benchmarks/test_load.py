import asyncio
import itertools
import signal
import subprocess
import sys

import pytest

from benchmarks import load
from benchmarks.load import post_at, post_for
from serve.cli.connection import environment


class Server:
    """A tiny HTTP server whose answers, the bytes after the request was read, are given; the last one repeats."""

    def __init__(self, *answers: bytes):
        self.answers = list(answers)
        self.paths: list[str] = []
        self.heads: list[str] = []
        self.connections = 0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        self._server.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _talk(self, reader, writer):
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
                await reader.readexactly(length)
                self.paths.append(head.decode().split()[1])
                self.heads.append(head.decode())
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if not answer:
                    return
                for byte in (answer[:20], answer[20:]):
                    writer.write(byte)
                    await writer.drain()
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()


def answer(status: int, *headers: str, body: str = '{"a": 1}') -> bytes:
    lines = [f"HTTP/1.1 {status} Said", *headers, f"Content-Length: {len(body)}", "", body]
    return "\r\n".join(lines).encode()


def paths(count):
    return (f"/{number}" for number in range(count))


async def test_every_path_is_posted_once_on_the_connections_that_there_are():
    async with Server(answer(202)) as server:
        result = await post_for(server.url, paths(10), body=b"{}", connections=3)

    assert sorted(server.paths) == sorted(paths(10))
    assert server.connections == 3
    assert (result.accepted, result.refused, result.broken) == (10, 0, 0)
    assert len(result.latencies) == 10


async def test_a_key_is_sent_with_every_request_if_there_is_one():
    async with Server(answer(202)) as server:
        await post_for(server.url, paths(2), body=b"{}", connections=1, key="owl_1")
        await post_for(server.url, paths(1), body=b"{}", connections=1)

    assert ["Authorization: Bearer owl_1\r\n" in each for each in server.heads] == [True, True, False]


async def test_requests_are_sent_at_their_times_and_waited_for_since_then():
    async with Server(answer(202)) as server:
        result = await post_at(server.url, paths(9), body=b"{}", connections=1, times=iter([0.0, 0.0, -10.0, 0.02]))

    assert server.paths == ["/0", "/1", "/2", "/3"]
    assert result.accepted == 4
    assert [each >= 10 for each in result.latencies] == [False, False, True, False]


async def test_an_answer_that_brings_the_result_counts_as_an_acceptance_does():
    async with Server(answer(200)) as server:
        result = await post_for(server.url, paths(2), body=b"{}", connections=1)

    assert (result.accepted, result.refused) == (2, 0)


async def test_a_connection_whose_end_the_server_announces_is_replaced_and_nothing_counts_as_broken():
    async with Server(answer(202), answer(202, "connection: close"), answer(202)) as server:
        result = await post_for(server.url, paths(5), body=b"{}", connections=1)

    assert (result.accepted, result.broken) == (5, 0)
    assert server.paths == list(paths(5))
    assert server.connections == 2


async def test_what_is_refused_counts_apart_and_the_connection_waits_as_long_as_it_is_told():
    async with Server(answer(429, "Retry-After: 0"), answer(503), answer(202)) as server:
        result = await post_for(server.url, paths(4), body=b"{}", connections=1)

    assert (result.accepted, result.refused) == (2, 2)
    assert len(result.latencies) == 2


async def test_a_connection_that_ends_without_an_answer_counts_as_broken_and_is_made_anew():
    async with Server(b"", answer(202)) as server:
        result = await post_for(server.url, paths(3), body=b"{}", connections=1)

    assert (result.accepted, result.broken, server.connections) == (2, 1, 2)


async def test_an_answer_of_unknown_length_is_not_taken_for_one():
    async with Server(b"HTTP/1.1 202 Said\r\n\r\n", answer(202)) as server:
        result = await post_for(server.url, paths(2), body=b"{}", connections=1)

    assert (result.accepted, result.broken) == (1, 1)


async def test_nothing_is_sent_while_there_is_no_room():
    seen = []

    def room(result):
        seen.append(result.accepted)
        return len(seen) != 2

    async with Server(answer(202)) as server:
        result = await post_for(server.url, paths(2), body=b"{}", connections=1, room=room)

    assert result.accepted == 2
    assert seen[:3] == [0, 1, 1]


async def test_it_ends_when_the_time_is_up():
    async with Server(answer(202)) as server:
        result = await post_for(server.url, itertools.repeat("/"), body=b"{}", connections=2, seconds=0.05)

    assert result.accepted == len(server.paths) > 0


@pytest.mark.parametrize("installed", [True, False])
def test_it_runs_in_whatever_event_loop_is_installed(installed, monkeypatch):
    if not installed:
        monkeypatch.setitem(sys.modules, "uvloop", None)

    async def drive():
        async with Server(answer(202)) as server:
            return await post_for(server.url, paths(2), body=b"{}", connections=2)

    assert load.run(drive()).accepted == 2


SIGNALLED_AMID_AN_ANSWER = """
import itertools, os, sys
from benchmarks import load
from benchmarks.child import running
from benchmarks.interruption import interrupt_on_signals

number, receive = int(sys.argv[1]), load._Connection.data_received


def data_received(self, data):
    os.kill(os.getpid(), number)
    receive(self, data)


load._Connection.data_received = data_received
interrupt_on_signals()
try:
    with running("benchmarks.openai_stub") as stub:
        load.run(load.post_for(stub.url, itertools.repeat("/"), body=b"{}", connections=2, seconds=5))
except KeyboardInterrupt:
    print("interrupted", stub.folder.exists())
"""


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_amid_an_answer_ends_the_load(number):
    ended = subprocess.run(
        [sys.executable, "-c", SIGNALLED_AMID_AN_ANSWER, str(int(number))],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=False,
    )

    assert ended.stdout == "interrupted False\n", ended.stderr
