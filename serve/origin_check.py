"""Refuses requests from web pages of other origins: this server trusts every process on its machine.

A page can send requests to 127.0.0.1 from its visitor's browser, and by DNS rebinding (its own name, resolved to 127.0.0.1) read the
answers too. Browsers say where such requests come from: in `Host`, `Origin` and `Sec-Fetch-Site`, which pages cannot forge.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from serve.problems import ProblemDetails

_OWN_SITES = {"", "same-origin", "none"}
_REMEMBERED = 64
"""Hosts in the cache: most requests name the same."""


class OriginCheck:
    """ASGI middleware: another `Host` than a loopback name or one of `hosts` is answered 421, another origin 403."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset({"localhost", *(host.lower() for host in hosts)})
        self._is_own = lru_cache(_REMEMBERED)(self._names_this_server)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http" and (problem := self._problem(scope)):
            await problem.response(scope["path"])(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _problem(self, scope: Scope) -> ProblemDetails | None:
        host = origin = site = ""
        for name, value in scope["headers"]:
            match name:
                case b"host":
                    host = value.decode("latin-1")
                case b"origin":
                    origin = value.decode("latin-1")
                case b"sec-fetch-site":
                    site = value.decode("latin-1").lower()
        if host and not self._is_own(host):
            detail = (
                f"this server is not {host!r}: ask it by a loopback address, or name the host under http.allowed_hosts in "
                "owlclaw.yaml if a proxy in front of it is known by that name"
            )
            return ProblemDetails(421, "misdirected-request", "The request is for another host", detail)
        if (origin and origin.lower().partition("://")[2] != host.lower()) or site not in _OWN_SITES:
            detail = f"pages of {origin or 'other sites'} must not use this server"
            return ProblemDetails(403, "foreign-origin", "Requests of other origins are refused", detail)
        return None

    def _names_this_server(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name in self._hosts:
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False
