"""Large bodies that have no place yet are not read by the server process, so that they take none of its memory and time."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from contextlib import closing

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

LIMIT = 32 * 1024 * 1024
PIECE = b" " * 65_536
GENEROUS = 120
SMALL_ONES = 10


class Sender:
    """Sends a trigger of the largest size."""

    def __init__(self, port):
        self.connection = socket.create_connection(("127.0.0.1", port), GENEROUS)
        self.sent = 0
        head = "POST /v1/agents/calm/triggers HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {LIMIT}", "", ""
        self.connection.sendall("\r\n".join(head).encode())

    def send(self, size):
        while self.sent < size:
            self.connection.sendall(PIECE)
            self.sent += len(PIECE)

    def answer(self):
        answer = http.client.HTTPResponse(self.connection)
        answer.begin()
        return answer.status, json.load(answer)["type"]


def small_triggers(port):
    """Send some small triggers, one after another, and return what they were answered."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=GENEROUS)) as connection:
        answers = set()
        for _ in range(SMALL_ONES):
            connection.request("POST", "/v1/agents/calm/triggers", b"{}")
            answer = connection.getresponse()
            answer.read()
            answers.add(answer.status)
        return answers


def test_a_large_body_stays_with_its_sender_until_it_has_a_place_and_small_ones_are_served(installation):
    installation.define("calm", {"turns": [{"text": "done"}]})
    installation.variables |= {
        "OWLCLAW_HTTP__BODY_LIMIT_BYTES": str(LIMIT),
        "OWLCLAW_HTTP__BODIES_LIMIT_BYTES": str(LIMIT),
    }
    installation.up()
    first = Sender(installation.port)
    first.send(LIMIT - len(PIECE))  # more than lies in buffers on its way: it has the place
    second = Sender(installation.port)
    sending = threading.Thread(target=second.send, args=(LIMIT,))
    with closing(first.connection), closing(second.connection):
        sending.start()

        before = -1
        while second.sent != before:  # what lies in buffers on its way
            before = second.sent
            assert small_triggers(installation.port) == {202}
        assert second.sent < LIMIT

        first.connection.close()
        sending.join(GENEROUS)
        assert second.answer() == (400, "urn:owlclaw:problem:malformed-json")
    assert installation.interrupt() == 0
