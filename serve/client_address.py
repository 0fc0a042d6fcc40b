"""Where a request comes from: the client's address and scheme, through the proxies that are named and no others."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.origin_check import FOREIGN

_HEADERS = frozenset({b"forwarded", b"x-real-ip"})
_PREFIX = b"x-forwarded-"
_READ = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-proto"})
_PAIR = re.compile(r"\s*(for|proto)\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]*))\s*", re.IGNORECASE)
_REMEMBERED = 1_024
"""What headers say, in the cache: clients and proxies come again."""
_SCHEMES = frozenset({"http", "https"})

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class _Said(Struct, frozen=True):
    """What the headers of a request say that is believed."""

    scheme: str | None
    client: str | None
    foreign: bool


class ForwardedHeaders:
    """ASGI middleware: sets `client` and `scheme` of the scope, and takes the headers that say them away.

    HAProxy in front has put the address that it talks to at the end of X-Forwarded-For, and has taken such headers away from
    requests of everybody but `proxies`. The client is the last address that is none of a proxy. What a proxy passes on is FOREIGN.
    Behind another server than that HAProxy (`proxies` is None) nothing is believed.
    """

    def __init__(self, app: ASGIApp, proxies: Collection[str] | None) -> None:
        self._app, self._believes = app, proxies is not None
        self._proxies = tuple(ipaddress.ip_network(each) for each in proxies or ())
        self._said_by = lru_cache(_REMEMBERED)(self._read)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http":
            headers = scope["headers"]
            kept = [each for each in headers if not (each[0] in _HEADERS or each[0].startswith(_PREFIX))]
            if len(kept) < len(headers):
                scope["headers"] = kept
                if self._believes:
                    said = self._said_by(tuple([(name, value) for name, value in headers if name in _READ]))
                    if said.scheme is not None:
                        scope["scheme"] = said.scheme
                    if said.client is not None:
                        scope["client"] = (said.client, 0)
                    if said.foreign:
                        scope[FOREIGN] = True
        await self._app(scope, receive, send)

    def _read(self, headers: Sequence[tuple[bytes, bytes]]) -> _Said:
        values: dict[bytes, list[str]] = {}
        for name, value in headers:
            values.setdefault(name, []).append(value.decode("latin-1"))
        said = {name: ",".join(each) for name, each in values.items()}
        *chain, peer = said.get(b"x-forwarded-for", "").split(",")
        scheme = said.get(b"x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        if forwarded := said.get(b"forwarded"):
            found = [(name.lower(), quoted or plain) for name, quoted, plain in _PAIR.findall(forwarded)]
            chain = chain or [value for name, value in found if name == "for"]
            scheme = scheme or next((value.lower() for name, value in reversed(found) if name == "proto"), "")
        here = _address(peer)
        foreign = self._is_proxy(here)  # whoever is behind it, and whatever it says of that one
        client = self._client([*chain, peer]) if foreign else here
        return _Said(scheme if scheme in _SCHEMES else None, None if client is None else str(client), foreign)

    def _client(self, chain: Sequence[str]) -> _Address | None:
        """Return the last address that is no proxy's; what is behind one that cannot be read is not believed either."""
        client = None
        for text in reversed(chain):
            address = _address(text)
            if address is None:
                break
            client = address
            if not self._is_proxy(address):
                break
        return client

    def _is_proxy(self, address: _Address | None) -> bool:
        return address is not None and any(address in network for network in self._proxies)


@lru_cache(_REMEMBERED)
def _address(text: str) -> _Address | None:
    """Return the address that stands there, perhaps with a port."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


class PublicScheme:
    """ASGI middleware: what calls the server by its public name came over https, if that is how it is reached, whatever the proxy that ends
    TLS says. So cookies and links are right behind one whose word is not believed.
    """

    def __init__(self, app: ASGIApp, url_of: Callable[[], str]) -> None:
        """`url_of` returns the public origin as it is by now; empty: none is known."""
        self._app, self._url_of = app, url_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http" and scope["scheme"] == "http":
            scheme, _, place = self._url_of().partition("://")
            if scheme == "https":
                hosts = [value.lower() for name, value in scope["headers"] if name == b"host"]
                if hosts == [place.lower().encode()]:
                    scope["scheme"] = "https"
        await self._app(scope, receive, send)
