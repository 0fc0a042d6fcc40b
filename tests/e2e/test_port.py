"""What senders see while the processes between them and the store are killed, or hang."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from itertools import product

import httpx
import pytest

from serve.processes import command_line, lives

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

GENEROUS = 240.0
HAPROXY, SERVER = "bin/haproxy", "ray::ServeReplica"


class Sender:
    """Triggers an agent again and again, and counts the statuses of the answers; 0 is none at all."""

    def __init__(self, installation):
        self._url = f"http://127.0.0.1:{installation.port}/v1/agents/watch/triggers"
        self.seen, self.worst, self._over = Counter(), 0.0, threading.Event()
        self._last_accepted = time.monotonic()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _send(self):
        while not self._over.wait(0.02):
            try:
                status = httpx.post(self._url, json={}, timeout=5).status_code
            except httpx.TransportError:
                status = 0
            self.seen[status] += 1
            if status == 202:
                self.worst = max(self.worst, time.monotonic() - self._last_accepted)
                self._last_accepted = time.monotonic()

    def wait_for_accepted(self, more=3):
        wanted, end = self.seen[202] + more, time.monotonic() + GENEROUS
        while self.seen[202] < wanted:
            assert time.monotonic() < end, self.seen
            time.sleep(0.01)


def process(installation, name):
    return next((each for each in installation.family() if any(name in word for word in command_line(each)[:5])), None)


def test_a_proxy_or_server_process_that_dies_or_hangs_is_replaced_and_no_path_is_denied_meanwhile(installation):
    installation.define("watch", {"turns": [{"text": "done"}]})
    installation.up()
    for blow, name in product((signal.SIGKILL, signal.SIGSTOP), (HAPROXY, SERVER)):
        with Sender(installation) as sender:
            sender.wait_for_accepted()
            before = process(installation, name)
            before.send_signal(blow)
            while lives(before):
                time.sleep(0.05)
            sender.wait_for_accepted(10)
        print(f"{name} {blow.name}: nothing accepted for {sender.worst:.1f} s, answers {dict(sender.seen)}")  # noqa: T201 - the measurement
        assert sender.seen.keys() <= {0, 202, 502, 503}
    assert installation.interrupt() == 0
