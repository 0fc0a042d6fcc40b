"""Where a request comes from is believed from named proxies only."""

from __future__ import annotations

import pytest

from serve.client_address import ForwardedHeaders, PublicScheme
from serve.origin_check import FOREIGN

PEER = "203.0.113.9"
PROXY = "10.0.0.5"


async def seen(headers, proxies=("10.0.0.0/8", "fd00::/8")):
    """What the application behind it sees: the client, the scheme, and the names of the headers."""
    scopes = []

    async def app(scope, receive, send):
        scopes.append(scope)

    scope = {"type": "http", "scheme": "http", "client": ("127.0.0.1", 5)}
    sent = [(name.encode(), value.encode()) for name, value in headers]
    await ForwardedHeaders(app, proxies)(scope | {"headers": sent}, None, None)
    [scope] = scopes
    return scope["client"][0], scope["scheme"], [name.decode() for name, _ in scope["headers"]]


@pytest.mark.parametrize(
    ("chain", "client"),
    [
        (PEER, PEER),
        (f"198.51.100.7, {PEER}", PEER),
        (f"198.51.100.7, {PROXY}", "198.51.100.7"),
        (f"1.2.3.4, 198.51.100.7, 10.9.9.9, {PROXY}", "198.51.100.7"),
        (f"1.2.3.4, unknown, {PROXY}", PROXY),
        (f"[2001:db8::1]:4711, fd00::1, {PROXY}", "2001:db8::1"),
        (f"198.51.100.7:4711, {PROXY}", "198.51.100.7"),
        (f"198.51.100.7, ::ffff:{PROXY}", "198.51.100.7"),
        ("unix:", "127.0.0.1"),
    ],
)
async def test_the_client_is_the_last_address_that_is_no_proxy(chain, client):
    assert await seen([("x-forwarded-for", chain), ("accept", "*/*")]) == (client, "http", ["accept"])


@pytest.mark.parametrize(
    ("chain", "proxies", "foreign"),
    [
        ("127.0.0.1", ("127.0.0.1/32",), True),
        ("127.0.0.1, 127.0.0.1", ("127.0.0.1/32",), True),
        ("127.0.0.1", ("10.0.0.0/8",), False),
        (f"127.0.0.1, {PROXY}", ("10.0.0.0/8",), True),
        ("127.0.0.1, ::ffff:10.0.0.5", ("10.0.0.0/8",), True),
    ],
)
async def test_what_a_proxy_passes_on_is_never_of_this_machine(chain, proxies, foreign):
    scopes = []

    async def app(scope, receive, send):
        scopes.append(scope)

    scope = {"type": "http", "scheme": "http", "client": ("127.0.0.1", 5)}
    await ForwardedHeaders(app, proxies)(scope | {"headers": [(b"x-forwarded-for", chain.encode())]}, None, None)

    assert (FOREIGN in scopes[0]) is foreign


async def test_each_request_is_told_of_its_own_client_scheme_and_proxy():
    scopes = []

    async def app(scope, receive, send):
        scopes.append((scope["client"][0], scope["scheme"], FOREIGN in scope))

    told = ForwardedHeaders(app, ("10.0.0.0/8",))
    requests = [(PEER, "https"), ("127.0.0.1", "http"), (f"{PEER}, {PROXY}", "http"), (PEER, "https"), ("", "")]
    for chain, scheme in requests:
        headers = [(b"x-forwarded-for", chain.encode()), (b"x-forwarded-proto", scheme.encode())]
        scope = {"type": "http", "scheme": "http", "client": ("127.0.0.1", 5), "headers": headers if chain else []}
        await told(scope, None, None)

    assert scopes == [
        (PEER, "https", False),
        ("127.0.0.1", "http", False),
        (PEER, "http", True),
        (PEER, "https", False),
        ("127.0.0.1", "http", False),
    ]


async def test_headers_whose_names_begin_likewise_are_others():
    sent = [("forwarded-to", "x"), ("x-real-ip-of", "y"), ("x-forwarded-of", "z"), ("x-real-ip", PEER)]

    assert (await seen(sent))[2] == ["forwarded-to", "x-real-ip-of"]


async def test_addresses_of_several_headers_are_one_list():
    assert (await seen([("x-forwarded-for", "1.2.3.4, 198.51.100.7"), ("x-forwarded-for", PROXY)]))[0] == "198.51.100.7"


@pytest.mark.parametrize(
    ("headers", "scheme"),
    [
        ([("x-forwarded-proto", "https")], "https"),
        ([("x-forwarded-proto", "http, HTTPS")], "https"),
        ([("x-forwarded-proto", "javascript")], "http"),
        ([("forwarded", 'for="[2001:db8::1]:80";proto=https')], "https"),
    ],
)
async def test_the_scheme_is_that_of_the_nearest_proxy(headers, scheme):
    assert (await seen([*headers, ("x-forwarded-for", PROXY)]))[1:] == (scheme, [])


@pytest.mark.parametrize(
    "forwarded", ["for=1.2.3.4, For=198.51.100.7;proto=https", 'proto=https;for="198.51.100.7:80"']
)
async def test_the_standard_header_says_the_same(forwarded):
    assert await seen([("forwarded", forwarded), ("x-forwarded-for", PROXY)]) == ("198.51.100.7", "https", [])


async def test_without_our_haproxy_in_front_nothing_is_believed_and_nobody_behind_can_believe_it():
    said = [
        ("x-forwarded-for", "1.2.3.4"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "for=1.2.3.4"),
        ("x-real-ip", "1.2.3.4"),
    ]

    assert await seen(said, None) == ("127.0.0.1", "http", [])


@pytest.mark.parametrize(
    ("url", "host", "scheme"),
    [
        ("https://agents.example.com", "Agents.example.com", "https"),
        ("https://agents.example.com:8443", "agents.example.com:8443", "https"),
        ("https://agents.example.com", "127.0.0.1:8700", "http"),
        ("http://agents.example.com", "agents.example.com", "http"),
        ("", "agents.example.com", "http"),
    ],
)
async def test_who_calls_the_server_by_its_public_name_came_by_the_public_scheme(url, host, scheme):
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["scheme"])

    scope = {"type": "http", "scheme": "http", "headers": [(b"host", host.encode())]}
    await PublicScheme(app, lambda: url)(scope, None, None)

    assert seen == [scheme]
