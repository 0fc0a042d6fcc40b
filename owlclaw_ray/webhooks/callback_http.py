"""Callbacks over HTTP, to no address that they must not reach (SSRF).

The host name is resolved here, each of its addresses is checked, and the connection goes to one of these: a second lookup could
give another answer. Redirects and proxies of the environment are not followed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx
from typing_extensions import override

from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.webhooks.outbox import CallbackAnswered, CallbackSender, CallbackUnanswered

_USER_AGENT = "owlclaw-ray"
_MAX_PAUSE = 86_400.0


class RefusedAddressError(Exception):
    """The URL leads where nothing may be sent."""


class HttpCallbackSender(CallbackSender):
    """Sends callbacks where their rules allow it."""

    def __init__(self, seconds: float, tls: ssl.SSLContext | None = None) -> None:
        """`tls` replaces the default certificate authorities."""
        self._seconds, self._tls = seconds, tls or True
        self._http: httpx.AsyncClient | None = None

    @override
    async def send(
        self, url: str, headers: Mapping[str, str], body: bytes, rules: CallbackRules
    ) -> CallbackAnswered | CallbackUnanswered:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._send(url, headers, body, rules)
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

    async def _send(self, url: str, headers: Mapping[str, str], body: bytes, rules: CallbackRules) -> CallbackAnswered:
        problem = rules.problem(url)
        if problem:
            raise RefusedAddressError(f"the address {problem}")
        parts = httpx.URL(url)
        name = parts.raw_host.decode("ascii")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
        addresses = [str(sockaddr[0]) for _, _, _, _, sockaddr in found]
        for each in addresses:
            refusal = rules.refusal(each)
            if refusal:
                raise RefusedAddressError(f"{name} {refusal}")
        client = self._client()
        request = client.build_request(
            "POST",
            parts.copy_with(host=addresses[0]),
            headers={**headers, "host": urlsplit(url).netloc},
            content=body,
            extensions={"sni_hostname": name},
        )
        response = await client.send(request, stream=True)
        await response.aclose()
        pause = response.headers.get("retry-after", "")
        retry_after = min(float(pause), _MAX_PAUSE) if pause.isascii() and pause.isdecimal() else None
        return CallbackAnswered(response.status_code, retry_after)
