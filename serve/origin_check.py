"""Refuses requests from web pages of other origins: this server trusts every process on its machine.

A page can send requests to 127.0.0.1 from its visitor's browser, and by DNS rebinding (its own name, resolved to 127.0.0.1) read the
answers too. Browsers say where such requests come from: in `Host`, `Origin` and `Sec-Fetch-Site`, which pages cannot forge.
Links are another thing: whoever follows one to a page for people, from a chat or a ticket, is shown it, and nobody else sees what it says.
Origins that the settings name may use the server, but never as somebody without a key.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from owlclaw_ray.configuration.server_location import is_loopback
from serve.problems import ProblemDetails
from serve.surfaces import is_below

_OWN_SITES = {"", "same-origin", "none"}
_FETCH = (b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest")
_ASKED = frozenset({b"host", b"origin", *_FETCH})
"""The headers that tell where a request comes from."""
FOREIGN = "owlclaw.foreign"
"""In the ASGI scope: the request may come from another machine, or from a page of another origin."""
_REMEMBERED = 64
"""Hosts in the cache: most requests name the same."""
_REMEMBERED_CLIENTS = 1_024


class OriginCheck:
    """ASGI middleware: another `Host` than a loopback name or one of `hosts` is answered 421, another origin than one of `origins` 403.

    With `addresses` every IP address is right as a host: names can be made to lead here by whoever owns them, addresses cannot.
    `pages`: paths below which there are pages for people, to which links of other sites may lead.
    Requests of those origins, by other hosts than loopback ones, and of clients elsewhere are marked as FOREIGN.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str],
        origins: Collection[str] = (),
        *,
        addresses: bool = False,
        pages: Collection[str] = (),
    ) -> None:
        self._app, self._origins, self._addresses = app, frozenset(origins), addresses
        self._pages = tuple(pages)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._kind_of = lru_cache(_REMEMBERED)(self._named)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http" and (problem := self._problem(scope)):
            await problem.response(scope["path"])(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _problem(self, scope: Scope) -> ProblemDetails | None:
        said = {name: value.decode("latin-1") for name, value in scope["headers"] if name in _ASKED}
        host, origin = said.get(b"host", ""), said.get(b"origin", "")
        site, mode, target = (said.get(name, "").lower() for name in _FETCH)
        local, own = self._kind_of(host) if host else (True, True)
        if not own:
            detail = (
                f"this server is not {host!r}: ask it by a loopback address, or name the host under http.allowed_hosts in "
                "owlclaw.yaml if a proxy in front of it is known by that name"
            )
            return ProblemDetails(421, "misdirected-request", "The request is for another host", detail)
        listed = origin.lower() in self._origins
        if listed or not local or not _is_here(scope):
            scope[FOREIGN] = True
        if listed:
            return None
        if not origin and (mode, target) == ("navigate", "document") and self._is_page(scope):
            return None
        if (origin and origin.lower().partition("://")[2] != host.lower()) or site not in _OWN_SITES:
            detail = f"pages of {origin or 'other sites'} must not use this server"
            return ProblemDetails(403, "foreign-origin", "Requests of other origins are refused", detail)
        return None

    def _is_page(self, scope: Scope) -> bool:
        return scope["method"] == "GET" and any(is_below(each, scope["path"]) for each in self._pages)

    def _named(self, host: str) -> tuple[bool, bool]:
        """Return whether a host is a loopback name, and whether it is a right one."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False, False
        if is_loopback(name):
            return True, True
        return False, name in self._hosts or (self._addresses and _is_address(name))


def _is_here(scope: Scope) -> bool:
    client = scope.get("client")
    return client is None or _is_of_this_machine(client[0])


@lru_cache(_REMEMBERED_CLIENTS)
def _is_of_this_machine(client: str) -> bool:
    return not _is_address(client) or is_loopback(client)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
