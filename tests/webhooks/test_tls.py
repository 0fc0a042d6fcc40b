"""Callbacks over TLS: the connection goes to an address, and the certificate must be that of the name."""

from __future__ import annotations

import asyncio
import ssl
import subprocess

import pytest

from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.webhooks.callback_http import HttpCallbackSender
from owlclaw_ray.webhooks.outbox import CallbackAnswered, CallbackUnanswered
from tests.webhooks.receiver import Receiver

LOOPBACK = CallbackRules(("127.0.0.0/8",))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """The files of a key and of a certificate of told.example.org that it signed itself."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    name = ("-subj", "/CN=told.example.org", "-addext", "subjectAltName=DNS:told.example.org")
    made = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    )
    subprocess.run([*made, *name, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return key, certificate


@pytest.fixture
async def listening(certificate):
    key, path = certificate
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path, key)
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=context)
    receiver.port = server.sockets[0].getsockname()[1]
    yield receiver
    server.close()
    await server.wait_closed()


@pytest.fixture
async def sender(certificate):
    """Trusts the certificate, and finds every name at 127.0.0.1."""
    tls = ssl.create_default_context(cafile=certificate[1])
    made = HttpCallbackSender(5.0, SystemClock(), tls, look_up=lambda *_: ["127.0.0.1"])
    yield made
    await made.close()


async def test_a_receiver_with_the_certificate_of_its_name_is_told(listening, sender):
    answer = await sender.send(DEFAULT_TENANT, f"https://told.example.org:{listening.port}/ended", {}, b"{}", LOOPBACK)

    assert answer == CallbackAnswered(200)
    assert listening.received[0].headers["host"] == f"told.example.org:{listening.port}"


async def test_a_receiver_with_a_certificate_of_another_name_is_not(listening, sender):
    answer = await sender.send(DEFAULT_TENANT, f"https://other.example.org:{listening.port}/ended", {}, b"{}", LOOPBACK)

    assert isinstance(answer, CallbackUnanswered)
    assert "certificate verify failed" in answer.why
    assert listening.received == []


async def test_a_certificate_that_nobody_vouches_for_is_refused(listening, sender):
    strict = HttpCallbackSender(5.0, SystemClock(), look_up=lambda *_: ["127.0.0.1"])

    answer = await strict.send(DEFAULT_TENANT, f"https://told.example.org:{listening.port}/ended", {}, b"{}", LOOPBACK)
    await strict.close()

    assert "certificate verify failed" in answer.why
