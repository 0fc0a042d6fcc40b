"""What HAProxy keeps from the server process, and what it tells it: with real TLS, real sockets, and hostile requests."""

from __future__ import annotations

import json
import logging
import re
import socket
import ssl
import tempfile
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from owlclaw_ray.client import SyncClient
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.settings import HttpSettings
from serve import front as front_module
from serve.front import Front
from serve.loopback import free_ports
from serve.tls import read_certificate
from tests.certificates import make_certificate
from tests.serve.test_front import GENEROUS, eventually

OTHER = next(
    (
        each.address
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if name != "lo" and each.family == socket.AF_INET and not each.address.startswith("127.")
    ),
    None,
)
"""An address of this machine that is not loopback."""
needs_other = pytest.mark.skipif(OTHER is None, reason="this machine has loopback addresses only")


class Backend:
    """Answers every request with what it was, and keeps all that it was sent."""

    def __init__(self, port: int) -> None:
        self.requests: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(ConnectionError), connection, connection.makefile("rb") as stream:
            while line := stream.readline():
                head = line
                while (line := stream.readline()) not in {b"\r\n", b""}:
                    head += line
                if not head.startswith(b"GET /healthz "):
                    self.requests.append(head)
                length = re.search(rb"(?im)^content-length: *(\d+)", head)
                if length:
                    stream.read(int(length[1]))
                elif re.search(rb"(?im)^transfer-encoding:", head):
                    while (size := int(stream.readline(), 16)) or stream.readline():
                        if size:
                            stream.read(size + 2)
                        else:
                            break
                body = json.dumps(head.decode("latin-1").split("\r\n")[:-1]).encode()
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def start(folder):
    """Start HAProxy with these options, before a server process."""
    made = []

    def start(host="127.0.0.1", **options):
        front = Front(host, free_ports(1)[0], folder, **options)
        made.append((front, Backend(front.ports[0])))
        front.start()
        front.wait_until_served(GENEROUS)
        return made[-1]

    yield start
    for front, backend in made:
        front.stop()
        backend.close()


@pytest.fixture
def files(tmp_path):
    return make_certificate(tmp_path)


@pytest.fixture
def encrypted(start, files):
    http = HttpSettings(tls_certificate=files.certificate, tls_key=files.key)
    return start(certificate=partial(read_certificate, http), names=("localhost",))[0]


LAST = b"GET /last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def answered(front, *lines, host="127.0.0.1", body=b""):
    """All that comes back for these bytes and a last request, until the connection is closed."""
    with socket.create_connection((host, front._port), GENEROUS) as connection:
        connection.sendall("\r\n".join((*lines, "", "")).encode("latin-1") + body + LAST)
        said = b""
        with suppress(ConnectionError):  # what was not read is lost with the connection
            while piece := connection.recv(65_536):
                said += piece
        return said


def shown_serial(front, files):
    with (
        socket.create_connection(("localhost", front._port), GENEROUS) as plain,
        files.trusting.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        return connection.getpeercert()["serialNumber"]


def test_the_server_is_reached_by_tls_alone_and_its_name_is_that_of_its_certificate(encrypted, files):
    assert encrypted.url == f"https://localhost:{encrypted._port}"
    said = httpx.get(encrypted.url, verify=files.trusting).json()
    assert "x-forwarded-proto: https" in said

    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(encrypted.url)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://localhost:{encrypted._port}")


def speaking(files, version):
    """A client's context that offers this version alone, with all ciphers that it ever had."""
    context = files.trusting
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    return context


@pytest.mark.filterwarnings("ignore:.*TLSVersion:DeprecationWarning")
def test_tls_before_1_2_is_refused_for_its_version_and_not_for_want_of_a_cipher(encrypted, files):
    with pytest.raises(httpx.ConnectError, match="ALERT_PROTOCOL_VERSION"):
        httpx.get(encrypted.url, verify=speaking(files, "TLSv1_1"))


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_later_versions_of_tls_are_spoken(encrypted, files, version):
    assert httpx.get(encrypted.url, verify=speaking(files, version)).status_code == 200


def test_the_client_trusts_the_authority_of_ssl_cert_file(encrypted, files, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(files.authority))
    with SyncClient(encrypted.url, attempts=1) as client:
        assert "x-forwarded-proto: https" in client.health(), "what the server process of this test answers"

    monkeypatch.delenv("SSL_CERT_FILE")
    with (
        SyncClient(encrypted.url, attempts=1) as client,
        pytest.raises(OwlClawError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        client.runs()


def test_a_renewed_certificate_is_shown_without_a_restart_and_a_bad_one_changes_nothing(
    monkeypatch, start, files, caplog
):
    monkeypatch.setattr(front_module, "_RENEWAL_INTERVAL", 0.05)
    http = HttpSettings(tls_certificate=files.certificate, tls_key=files.key)
    front, _ = start(certificate=partial(read_certificate, http))
    process = front._process
    assert shown_serial(front, files) == "02"

    with caplog.at_level(logging.WARNING, logger=front_module.__name__):
        files.certificate.write_text("half a file")
        eventually(lambda: "the certificate is not renewed" in caplog.text)
    assert shown_serial(front, files) == "02"

    renewed = make_certificate(files.certificate.parent, serial=3)
    eventually(lambda: front._pem.read_text().startswith(renewed.certificate.read_text().strip()))
    eventually(lambda: shown_serial_or_none(front, renewed) == "03")
    assert front._process is process
    assert process.poll() is None
    assert front._pem.stat().st_mode & 0o077 == 0

    process.kill()
    eventually(lambda: front._process is not process)
    eventually(lambda: shown_serial_or_none(front, renewed) == "03")


def shown_serial_or_none(front, files):
    try:
        return shown_serial(front, files)
    except OSError:
        return None


SPOOFED = {
    "X-Forwarded-For": "1.2.3.4",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "evil.example",
    "X-Real-IP": "1.2.3.4",
    "Forwarded": "for=1.2.3.4;proto=https",
}


def passed_on(said):
    return sorted(line for line in said if line.startswith(("x-forwarded", "forwarded", "x-real")))


def test_what_strangers_say_of_their_origin_is_taken_away(start):
    front, _ = start()

    said = httpx.get(front.url, headers=SPOOFED).json()

    assert passed_on(said) == ["x-forwarded-for: 127.0.0.1", "x-forwarded-proto: http"]


def test_what_named_proxies_say_is_passed_on_with_who_they_are(start):
    front, _ = start(proxies=("127.0.0.0/8",))

    said = httpx.get(front.url, headers=SPOOFED).json()

    assert passed_on(said) == [
        "forwarded: for=1.2.3.4;proto=https",
        "x-forwarded-for: 1.2.3.4",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-host: evil.example",
        "x-forwarded-proto: https",
    ]


CHUNKED = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = ("POST /outer HTTP/1.1", "Host: localhost")


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        ((*POST, f"Content-Length: {len(CHUNKED)}", "Transfer-Encoding: chunked"), CHUNKED),
        ((*POST, "Transfer-Encoding: chunked", "Content-Length: 4"), b"1\r\nZ\r\nQ\r\n\r\n"),
        ((*POST, "Content-Length: 5", f"Content-Length: {len(CHUNKED)}"), CHUNKED),
        ((*POST, "Transfer-Encoding: xchunked", "Content-Length: 5"), CHUNKED),
        ((*POST, "Transfer-Encoding : chunked", f"Content-Length: {len(CHUNKED)}"), CHUNKED),
        ((*POST, "Transfer-Encoding: chunked", "Transfer-Encoding: identity"), CHUNKED),
        ((*POST, f"Content-Length: +{len(CHUNKED)}"), CHUNKED),
        ((*POST, "X: a\rGET /smuggled HTTP/1.1"), b""),
        ((*POST, "X: a\nTransfer-Encoding: chunked", f"Content-Length: {len(CHUNKED)}"), CHUNKED),
        ((*POST, "Host: evil.example", "Content-Length: 0"), b""),
    ],
    ids=[
        "length and chunks",
        "chunks and length",
        "two lengths",
        "unknown coding",
        "space before the colon",
        "two codings",
        "signed length",
        "bare CR",
        "bare LF",
        "two hosts",
    ],
)
def test_no_second_request_is_hidden_in_one(start, lines, body):
    front, backend = start()

    said = answered(front, *lines, body=body)

    paths = [each.split()[1] for each in backend.requests]
    if b"/outer" in b"".join(paths):
        [outer] = [each.lower() for each in backend.requests if b"/outer" in each]
        assert not (b"\r\ncontent-length:" in outer and b"\r\ntransfer-encoding:" in outer), "two ways to see its end"
        assert outer.count(b"\r\nhost:") == 1
        assert said.startswith(b"HTTP/1.1 200")
    else:
        assert said.startswith(b"HTTP/1.1 400"), said
    assert b"/smuggled" not in paths or said.count(b"HTTP/1.1 ") == len(paths), (
        "only what HAProxy itself took for a request"
    )


def test_http_2_is_not_spoken(start):
    front, backend = start()

    said = answered(front, "PRI * HTTP/2.0", "", "SM")

    assert (b"HTTP/1.1 4" in said, backend.requests) == (True, [])


@pytest.mark.parametrize(
    "lines",
    [
        ("GET / HTTP/1.1", "Host: localhost", "X: " + "x" * 16_000),
        ("GET /" + "x" * 16_000 + " HTTP/1.1", "Host: localhost"),
        ("GET / HTTP/1.1", "Host: localhost", *(f"X{n}: x" for n in range(100))),
    ],
    ids=["long header", "long request line", "many headers"],
)
def test_headers_beyond_the_limit_are_refused_before_anybody_reads_them(start, lines):
    front, backend = start()

    said = answered(front, *lines)

    assert said.startswith(b"HTTP/1.1 400")
    assert backend.requests == []


def test_headers_up_to_the_limit_are_passed_on(start):
    front, _ = start()

    assert httpx.get(front.url, headers={f"X{n}": "x" * 150 for n in range(80)}).status_code == 200


def test_headers_that_come_slowly_are_cut_off(start, monkeypatch):
    monkeypatch.setattr(
        front_module, "_TEMPLATE", front_module._TEMPLATE.replace("http-request 30s", "http-request 1s")
    )
    front, backend = start()
    with socket.create_connection(("127.0.0.1", front._port), GENEROUS) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")

        assert slow.recv(65_536).startswith(b"HTTP/1.1 408")
    assert backend.requests == []


def test_a_client_that_begins_no_handshake_is_cut_off(encrypted):
    timeout = re.search(r"timeout client (\d+)s", encrypted._configuration.read_text())

    assert int(timeout[1]) <= 90


@needs_other
def test_one_address_has_so_many_connections_and_this_machine_and_proxies_more(start):
    front, _ = start("0.0.0.0", per_address=3)
    open_ones = [socket.create_connection((OTHER, front._port), GENEROUS) for _ in range(3)]
    for each in open_ones:
        each.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert each.recv(100).startswith(b"HTTP/1.1 200")

    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://{OTHER}:{front._port}")
    assert httpx.get(f"http://127.0.0.1:{front._port}").status_code == 200

    for each in open_ones:
        each.close()
    eventually(lambda: is_answered(f"http://{OTHER}:{front._port}"))


def is_answered(url):
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


@needs_other
def test_proxies_may_have_more_connections_than_others(start):
    front, _ = start("0.0.0.0", per_address=1, proxies=(f"{OTHER}/32",))
    with socket.create_connection((OTHER, front._port), GENEROUS) as kept:
        kept.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert kept.recv(100).startswith(b"HTTP/1.1 200")
        assert is_answered(f"http://{OTHER}:{front._port}")


@needs_other
def test_the_server_process_is_on_loopback_wherever_haproxy_listens(start):
    front, _ = start("0.0.0.0")

    assert front.url == f"http://127.0.0.1:{front._port}"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((OTHER, front.ports[0]), GENEROUS)
