"""Callbacks over HTTP, to no address that they must not reach (SSRF).

The host name is resolved here, each of its addresses is checked, and the connection goes to one of these: a second lookup could
give another answer. Redirects and proxies of the environment are not followed.

A lookup cannot be interrupted, and takes half a minute where a name's servers are silent. So it has threads that tenants share out by
weight: names of one tenant do not keep another one's from being resolved.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from urllib.parse import urlsplit

import httpx
from typing_extensions import override

from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.kernel.fair_order import Weights, equal_weights
from owlclaw_ray.kernel.fair_threads import FairThreads
from owlclaw_ray.webhooks.outbox import CallbackAnswered, CallbackSender, CallbackUnanswered

_USER_AGENT = "owlclaw-ray"
_MAX_PAUSE = 86_400.0
_LOOKUPS, _LOOKUPS_OF_A_NAME = 16, 2
"""Names that are resolved at once: in all, and one name of a tenant."""
_LOOKUP_SECONDS = 10.0
"""How long an attempt waits for the addresses of a name."""


def addresses_of(name: str, port: int) -> Sequence[str]:
    """Return the addresses to which a name leads, the one to use first. Raises OSError, UnicodeError."""
    return [str(address[0]) for *_, address in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)]


class RefusedAddressError(Exception):
    """The URL leads where nothing may be sent, or nobody knows where."""


class HttpCallbackSender(CallbackSender):
    """Sends callbacks where their rules allow it."""

    def __init__(
        self,
        seconds: float,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        *,
        weight: Weights = equal_weights,
        look_up: Callable[[str, int], Sequence[str]] = addresses_of,
    ) -> None:
        """`seconds` is what an attempt may take once the name is resolved. `tls` replaces the default certificate authorities."""
        self._seconds, self._clock, self._look_up, self._tls = seconds, clock, look_up, tls or True
        self._lookups = FairThreads("owlclaw-lookups", _LOOKUPS, _LOOKUPS_OF_A_NAME, clock, weight)
        self._http: httpx.AsyncClient | None = None

    @override
    async def send(
        self, tenant: TenantId, url: str, headers: Mapping[str, str], body: bytes, rules: CallbackRules
    ) -> CallbackAnswered | CallbackUnanswered:
        try:
            address = await self._address(tenant, url, rules)
            async with deadline(self._clock, self._seconds):
                return await self._send(url, address, headers, body)
        except TimeoutError:
            return CallbackUnanswered(f"no answer within {self._seconds:g} s")
        except RefusedAddressError as error:
            return CallbackUnanswered(str(error))
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ssl.SSLError, UnicodeError) as error:
            return CallbackUnanswered(f"{type(error).__name__}: {error}".rstrip(": "))

    @override
    async def close(self) -> None:
        client, self._http = self._http, None
        if client is not None:
            await client.aclose()

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            self._http = httpx.AsyncClient(
                verify=self._tls,
                follow_redirects=False,
                trust_env=False,
                limits=httpx.Limits(max_connections=64, max_keepalive_connections=0),
                timeout=self._seconds,
                headers={"user-agent": _USER_AGENT},
            )
        return self._http

    async def _address(self, tenant: TenantId, url: str, rules: CallbackRules) -> str:
        problem = rules.problem(url)
        if problem:
            raise RefusedAddressError(f"the address {problem}")
        parts = httpx.URL(url)
        name, port = parts.raw_host.decode("ascii"), parts.port or (443 if parts.scheme == "https" else 80)
        try:
            async with deadline(self._clock, _LOOKUP_SECONDS):
                look_up = partial(self._look_up, name, port)
                addresses = await self._lookups.run((tenant, name), look_up, _LOOKUP_SECONDS)
        except TimeoutError:
            raise RefusedAddressError(f"the name {name} was not resolved within {_LOOKUP_SECONDS:g} s") from None
        for each in addresses:
            refusal = rules.refusal(each)
            if refusal:
                raise RefusedAddressError(f"{name} {refusal}")
        return addresses[0]

    async def _send(self, url: str, address: str, headers: Mapping[str, str], body: bytes) -> CallbackAnswered:
        parts, client = httpx.URL(url), self._client()
        request = client.build_request(
            "POST",
            parts.copy_with(host=address),
            headers={**headers, "host": urlsplit(url).netloc},
            content=body,
            extensions={"sni_hostname": parts.raw_host.decode("ascii")},
        )
        response = await client.send(request, stream=True)
        await response.aclose()
        pause = response.headers.get("retry-after", "")
        retry_after = min(float(pause), _MAX_PAUSE) if pause.isascii() and pause.isdecimal() else None
        return CallbackAnswered(response.status_code, retry_after)
