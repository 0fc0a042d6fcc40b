"""What nobody sends who means well: each is refused as a problem, on every route of its kind, and the server serves on."""

from __future__ import annotations

import asyncio
import gzip
from urllib.parse import urlencode

import httpx
import pytest

from owlclaw_ray.kernel.system_clock import SystemClock
from serve.api import build_api
from tests.serve.conftest import BODY_LIMIT, posted

TRIGGERS = "/v1/agents/assistant/triggers"
LONG = "x" * 20_000


@pytest.fixture
async def document(http):
    return (await http.get("/openapi.json")).json()


def operations(document):
    """Each operation with its path, filled in with the examples of the document."""
    for template, methods in document["paths"].items():
        for method, operation in methods.items():
            path = template
            for each in operation.get("parameters", ()):
                if each["in"] == "path":
                    path = path.replace(f"{{{each['name']}}}", str(each.get("example", "assistant")))
            yield method.upper(), template, path, operation


def with_hostile_text(document, text, encoded):
    """Each operation with the text in the place of each of its texts in path and query."""
    for method, template, path, operation in operations(document):
        for each in operation.get("parameters", ()):
            if each["in"] == "path":
                yield method, template.replace(f"{{{each['name']}}}", encoded).replace("{agent}", "assistant")
            elif each["in"] == "query":
                yield method, f"{path}?{urlencode({each['name']: text})}"


def refused(response):
    return 400 <= response.status_code < 500 and response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("text", "encoded"), [("a\0b", "a%00b"), (LONG, LONG), ("\N{REPLACEMENT CHARACTER}", "%ff%fe")], ids=ascii
)
async def test_no_text_in_a_path_or_query_fails_the_server(http, document, text, encoded):
    requests = list(with_hostile_text(document, text, encoded))
    assert len(requests) > 80
    for method, url in requests:
        response = await http.request(method, url)

        assert response.status_code < 500, (method, url[:80], response.text)
        if text != "\N{REPLACEMENT CHARACTER}" and "{" not in url:
            assert refused(response), (method, url[:80], response.text)


async def test_a_body_that_comes_in_pieces_is_cut_off_at_the_limit_on_every_route(server, document):
    async def pieces():
        for _ in range(4):
            yield b" " * (BODY_LIMIT // 3)

    async with httpx.AsyncClient(base_url=server) as client:
        for method, template, path, operation in operations(document):
            if "requestBody" in operation:
                response = await client.request(method, path, content=pieces())
                if template.startswith("/v1/webhooks/"):  # of a source that is not there: nothing of it is read
                    assert response.status_code == 401
                else:
                    assert (response.status_code, response.json()["limit_bytes"]) == (413, BODY_LIMIT), path


async def test_bodies_that_are_no_text_in_utf_8_are_no_json_on_every_route(http, document):
    for method, template, path, operation in operations(document):
        if "400" in operation["responses"]:
            response = await http.request(method, path, content=b'{"a": "\xff"}')
            assert response.status_code == 400, template


@pytest.mark.parametrize("levels", [99, 100, 101, 252, 254, 500, 1_000])
async def test_payloads_are_taken_to_99_levels_and_those_taken_can_be_listed(http, levels):
    response = await http.post(TRIGGERS, content='{"payload": ' + "[" * levels + "]" * levels + "}")

    assert response.status_code == (202 if levels == 99 else 422)
    assert (await http.get("/v1/runs")).status_code == 200


@pytest.mark.parametrize("number", ["9223372036854775808", "-9223372036854775808", "18446744073709551615"])
async def test_integers_of_64_bits_stay_what_they_are(http, number):
    accepted = await http.post(TRIGGERS, content=f'{{"payload": {number}}}')

    assert f'"payload":{number}' in (await http.get(accepted.headers["location"])).text


@pytest.mark.parametrize("path", [TRIGGERS, "/v1/triggers:batch"])
async def test_a_body_that_is_compressed_is_not_unpacked(http, path):
    response = await http.post(path, content=gzip.compress(b'{"payload": 1}'), headers={"Content-Encoding": "gzip"})

    assert (response.status_code, response.json()["type"]) == (400, "urn:owlclaw:problem:malformed-json")


async def test_of_two_fields_of_one_name_the_last_counts(http):
    accepted = await http.post(TRIGGERS, content='{"payload": 1, "payload": {"a": 1, "a": 2}}')

    run = (await http.get(accepted.headers["location"])).json()
    assert run["trigger"]["payload"] == {"a": 2}


async def raw(url, request):
    """What the server answers to these bytes, to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(request)
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()


HEAD = f"POST {TRIGGERS} HTTP/1.1\r\nHost: localhost\r\n".encode()


@pytest.mark.parametrize(
    "request_",
    [
        HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        HEAD + b"Content-Length: -1\r\n\r\n{}",
        b"GET /" + b"x" * 2_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["two lengths", "negative length", "long path", "TLS"],
)
async def test_what_is_no_http_is_refused_and_the_connection_closed(server, request_):
    try:
        answer = await raw(server, request_ + b"\r\n\r\n")
    except ConnectionError:
        answer = b"HTTP/1.1 400 "

    assert answer.startswith(b"HTTP/1.1 4")
    async with httpx.AsyncClient(base_url=server) as client:
        assert (await client.post(TRIGGERS, json={})).status_code == 202


async def test_a_long_header_that_no_proxy_has_refused_does_no_harm(server):
    async with httpx.AsyncClient(base_url=server) as client:
        response = await client.post(TRIGGERS, json={}, headers={"Idempotency-Key": LONG, "X-Long": LONG * 10})

    assert refused(response)


@pytest.mark.parametrize("source", ["nobody", "github"])
async def test_of_a_webhook_without_a_source_or_a_signature_no_body_is_read(runtime, source):
    api = build_api(runtime, clock=SystemClock(), body_limit_bytes=BODY_LIMIT)
    sent, asked = [], []

    async def receive():
        asked.append("body")
        return {"type": "http.request", "body": b"{", "more_body": True}

    async def send(message):
        sent.append(message)

    await api(posted(f"/v1/webhooks/{source}", (b"content-length", b"5000")), receive, send)

    assert (sent[0]["status"], asked) == (401, [])


@pytest.mark.parametrize("path", [TRIGGERS, "/v1/triggers:batch", "/v1/webhooks/github"])
async def test_a_body_that_never_ends_is_cut_off_after_a_time(runtime, path):
    api = build_api(runtime, clock=SystemClock(), body_limit_bytes=BODY_LIMIT, body_timeout_seconds=0.05)
    sent = []
    pieces = iter([{"type": "http.request", "body": b'{"payload": "', "more_body": True}])
    scope = posted(path, (b"content-length", b"5000"), (b"x-hub-signature-256", b"sha256=00"))

    async def receive():
        piece = next(pieces, None)
        if piece is None:
            await asyncio.Event().wait()
        return piece

    async def send(message):
        sent.append(message)

    await api(scope, receive, send)

    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    assert b"http.body_timeout_seconds" in sent[1]["body"]
