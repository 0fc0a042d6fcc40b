"""Where a request comes from: the client's address and scheme, through the proxies that are named and no others."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send

from serve.origin_check import FOREIGN

_HEADERS = frozenset({b"forwarded", b"x-real-ip"})
_PREFIX = b"x-forwarded-"
_PAIR = re.compile(r"\s*(for|proto)\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]*))\s*", re.IGNORECASE)
_REMEMBERED = 1_024
"""Addresses in the cache: clients and proxies come again."""
_SCHEMES = frozenset({"http", "https"})

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class ForwardedHeaders:
    """ASGI middleware: sets `client` and `scheme` of the scope, and takes the headers that say them away.

    HAProxy in front has put the address that it talks to at the end of X-Forwarded-For, and has taken such headers away from
    requests of everybody but `proxies`. The client is the last address that is none of a proxy. What a proxy passes on is FOREIGN.
    Behind another server than that HAProxy (`proxies` is None) nothing is believed.
    """

    def __init__(self, app: ASGIApp, proxies: Collection[str] | None) -> None:
        self._app, self._believes = app, proxies is not None
        self._proxies = tuple(ipaddress.ip_network(each) for each in proxies or ())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http":
            said: dict[bytes, list[str]] = {}
            kept = []
            for name, value in scope["headers"]:
                if name in _HEADERS or name.startswith(_PREFIX):
                    said.setdefault(name, []).append(value.decode("latin-1"))
                else:
                    kept.append((name, value))
            if said:
                scope["headers"] = kept
                if self._believes:
                    self._believe(scope, {name: ",".join(values) for name, values in said.items()})
        await self._app(scope, receive, send)

    def _believe(self, scope: Scope, said: dict[bytes, str]) -> None:
        *chain, peer = said.get(b"x-forwarded-for", "").split(",")
        scheme = said.get(b"x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        if forwarded := said.get(b"forwarded"):
            found = [(name.lower(), quoted or plain) for name, quoted, plain in _PAIR.findall(forwarded)]
            chain = chain or [value for name, value in found if name == "for"]
            scheme = scheme or next((value.lower() for name, value in reversed(found) if name == "proto"), "")
        if scheme in _SCHEMES:
            scope["scheme"] = scheme
        here = _address(peer)
        if self._is_proxy(here):
            scope[FOREIGN] = True  # whoever is behind it, and whatever it says of that one
            here = self._client([*chain, peer])
        client = here
        if client is not None:
            scope["client"] = (str(client), 0)

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
            hosts = [value.lower() for name, value in scope["headers"] if name == b"host"]
            if scheme == "https" and hosts == [place.lower().encode()]:
                scope["scheme"] = "https"
        await self._app(scope, receive, send)
