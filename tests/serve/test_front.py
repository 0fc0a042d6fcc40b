"""HAProxy as `owlclaw up` runs it, before a small HTTP server in this process."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import httpx
import psutil
import pytest

from actors import liveness
from owlclaw_ray.domain.json import LARGE
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.runtime.api import Runtime
from serve import front as front_module
from serve.api import build_api
from serve.front import Front
from serve.loopback import free_ports
from tests.serve.conftest import serving as api_served
from tests.serve.double import MemoryRuntime

GENEROUS = 60.0


@pytest.fixture
def front(request):
    with tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as folder:
        made = Front(getattr(request, "param", "127.0.0.1"), free_ports(1)[0], Path(folder))
        yield made
        made.stop()


class Api(BaseHTTPRequestHandler):
    """Answers every path, if it is called by a name that it knows."""

    protocol_version = "HTTP/1.1"
    names: tuple[str, ...]
    said: str

    def do_GET(self):
        known = self.headers["Host"].rpartition(":")[0] or self.headers["Host"]
        self.send_response(200 if known in self.names else 421)
        self.send_header("Content-Length", str(len(self.said)))
        self.end_headers()
        self.wfile.write(self.said.encode())

    def log_message(self, *_):
        pass


@contextmanager
def server(host, port, *names, said="ok"):
    with serving(type("Handler", (Api,), {"names": ("127.0.0.1", "[::1]", *names), "said": said}), host, port):
        yield


@contextmanager
def serving(handler, host, port):
    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

    with Server((host, port), handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield
        made.shutdown()
        thread.join()


BEHIND = "127.0.0.1"
"""Where the server process listens, wherever HAProxy does."""


def eventually(condition):
    end = time.monotonic() + GENEROUS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def answer(front):
    """Return the status of an answer, 0 if there is none."""
    try:
        return httpx.get(f"{front.url}/v1/anything", timeout=1).status_code
    except httpx.TransportError:
        return 0


def answers_until_ok(front):
    seen = []
    eventually(lambda: seen.append(answer(front)) or seen[-1] == 200)
    return set(seen)


def test_while_no_server_process_is_there_every_path_is_answered_with_503_and_when_to_try_again(front):
    front.start()

    refused = httpx.get(f"{front.url}/v1/runs")

    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.json()["type"] == "urn:owlclaw:problem:runtime-unavailable"


@pytest.mark.parametrize("front", ["127.0.0.1", "::1"], indirect=True)
def test_a_server_process_is_found_on_any_of_the_ports(front):
    front.start()
    for port in (front.ports[0], front.ports[-1]):
        with server(BEHIND, port, front.name):
            front.wait_until_served(GENEROUS)
            assert answer(front) == 200
        eventually(lambda: answer(front) == 503)
    with pytest.raises(RuntimeUnavailableError, match="did not answer within 0 s"):
        front.wait_until_served(0)


def test_the_server_process_of_another_runtime_is_not_taken_for_ours(front):
    front.start()
    with (
        server(BEHIND, front.ports[0], said="theirs"),
        server(BEHIND, front.ports[1], front.name, said="ours"),
    ):
        front.wait_until_served(GENEROUS)
        assert {httpx.get(f"{front.url}/").text for _ in range(50)} == {"ours"}


class Late(Api):
    """Answers probes when it is told to, and all else at once."""

    resumed: threading.Event
    probe: str

    def do_GET(self):
        if self.headers["Host"] == self.probe:
            self.resumed.wait(GENEROUS)
        super().do_GET()


def test_a_server_process_that_answers_no_probe_in_time_gets_no_more_requests_until_it_does(front, monkeypatch):
    monkeypatch.setattr(front_module, "_PROBE_SECONDS", 1)
    front.start()
    resumed = threading.Event()
    resumed.set()
    late = {"names": ("127.0.0.1", front.name), "said": "ok", "probe": front.name, "resumed": resumed}
    with serving(type("Handler", (Late,), late), BEHIND, front.ports[0]):
        front.wait_until_served(GENEROUS)
        resumed.clear()
        eventually(lambda: answer(front) == 503)
        resumed.set()
        assert answers_until_ok(front) <= {200, 503}


def test_the_root_has_killed_a_server_process_that_hangs_before_haproxy_takes_a_busy_one_for_such(front):
    assert f"timeout check {front_module._PROBE_SECONDS}s" in front._configured()
    hangs = liveness.CHECK_INTERVAL + liveness._MAX_MISSED_CHECKS * liveness._BUSY_TIMEOUT_SECONDS

    assert hangs + liveness._AGAIN_SECONDS < front_module._PROBE_SECONDS


def test_a_killed_haproxy_is_back_and_never_says_that_a_path_does_not_exist(front):
    front.start()
    with server(BEHIND, front.ports[2], front.name):
        front.wait_until_served(GENEROUS)
        for _ in range(3):
            before = front._process
            before.kill()
            assert answers_until_ok(front) <= {0, 200, 503}
            assert front._process is not before


def test_a_stopped_haproxy_is_killed_and_replaced(front, monkeypatch):
    monkeypatch.setattr(front_module, "_CHECK_INTERVAL", 0.1)
    monkeypatch.setattr(front_module, "_TIMEOUT_SECONDS", 1.0)
    front.start()
    with server(BEHIND, front.ports[2], front.name):
        front.wait_until_served(GENEROUS)
        before = front._process

        os.kill(before.pid, signal.SIGSTOP)

        assert answers_until_ok(front) <= {0, 200, 503}
        assert before.wait(GENEROUS) == -signal.SIGKILL


def test_a_haproxy_that_is_given_up_is_not_started_again(front):
    front.start()
    front.give_up()
    front._process.kill()

    for thread in threading.enumerate():
        if thread.name.startswith("front"):
            thread.join(GENEROUS)
    assert answer(front) == 0


def test_a_port_that_is_taken_is_said(front):
    with server(front._host, front._port), pytest.raises(RuntimeUnavailableError, match="Address already in use"):
        front.start()


def test_after_the_stop_nothing_listens_or_runs(front):
    front.start()
    process = psutil.Process(front._process.pid)
    front.stop()

    assert psutil.wait_procs([process], timeout=GENEROUS)[1] == []
    assert answer(front) == 0


class Sender:
    """Sends a request with a body of which most never comes."""

    def __init__(self, front, path, *headers, body=b"1\r\nx\r\n"):
        self._connection = socket.create_connection(("127.0.0.1", front._port), GENEROUS)
        lines = f"POST {path} HTTP/1.1", "Host: localhost", *headers, "", ""
        self._connection.sendall("\r\n".join(lines).encode() + body)

    def close(self):
        self._connection.close()


@pytest.fixture
def in_front(front):
    """HAProxy before a real API, which takes two large bodies at once, none of them of nobody's."""
    runtime = cast("Runtime", MemoryRuntime(SystemClock()))
    api = build_api(
        runtime, clock=SystemClock(), body_limit_bytes=2 * LARGE, bodies_limit_bytes=4 * LARGE, hosts=(front.name,)
    )
    front.start()
    with api_served(api, front.ports[0]):
        front.wait_until_served(GENEROUS)
        yield front


SIGNED = "X-Hub-Signature-256: sha256=00"
CHUNKED, SIZED = "Transfer-Encoding: chunked", f"Content-Length: {LARGE + 1}"
TRIGGERS = "/v1/agents/assistant/triggers"


@pytest.mark.parametrize("unsized", [True, False], ids=["chunked", "sized"])
@pytest.mark.parametrize(
    "slow",
    [
        ("/v1/webhooks/github", CHUNKED),
        ("/v1/webhooks/github", CHUNKED, SIGNED),
        ("/v1/webhooks/github", SIZED, SIGNED),
        (TRIGGERS, CHUNKED),
        (TRIGGERS, SIZED, "Authorization: Bearer owl_made_up"),
    ],
    ids=["unsigned", "signed and chunked", "signed", "of unknown size", "with a made-up key"],
)
def test_bodies_that_do_not_come_keep_no_large_body_of_others_out(in_front, slow, unsized):
    with ExitStack() as ended:
        for _ in range(40):
            ended.enter_context(closing(Sender(in_front, *slow)))
        content = b'{"payload": "%s"}' % (b"x" * (LARGE + 1))

        answer = httpx.post(
            f"{in_front.url}{TRIGGERS}", content=iter([content]) if unsized else content, timeout=GENEROUS
        )

    assert answer.status_code == 202


def asked(front, command):
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile() as answer:
        connection.connect(str(front._socket))
        connection.sendall(f"{command}\n".encode())
        return answer.read()


def test_haproxy_takes_so_many_connections_and_keeps_no_files_for_pipes():
    with tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as folder:
        front = Front("127.0.0.1", free_ports(1)[0], Path(folder), most_connections=1_234)
        front.start()
        said = asked(front, "show info")
        front.stop()

    assert "Maxconn: 1234" in said
    assert "Maxpipes: 64" in said
