"""Callbacks over HTTP, to no address that they must not reach (SSRF).

The host's name is looked up here, every address that it has is judged, and the connection goes to one of those: looking it up
a second time could give another answer. Redirects and proxies of the environment are not followed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.webhooks.api import CallbackAnswered, CallbackUnanswered

_USER_AGENT = "owlclaw-ray"
_MAX_PAUSE = 86_400.0


class RefusedAddressError(Exception):
    """The URL leads where nothing may be sent."""


class HttpCallbackSender:
    """Implements `CallbackSender`."""

    def __init__(self, rules: CallbackRules, seconds: float, tls: ssl.SSLContext | None = None) -> None:
        """`tls` says whose certificates are good, if not those that everybody's browser takes."""
        self._rules, self._seconds = rules, seconds
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=0)
        self._http = httpx.AsyncClient(
            verify=tls or True,
            follow_redirects=False,
            trust_env=False,
            limits=limits,
            timeout=seconds,
            headers={"user-agent": _USER_AGENT},
        )

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> CallbackAnswered | CallbackUnanswered:
        """See CallbackSender.send."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._send(url, headers, body)
        except TimeoutError:
            return CallbackUnanswered(f"no answer within {self._seconds:g} s")
        except RefusedAddressError as error:
            return CallbackUnanswered(str(error))
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ssl.SSLError, UnicodeError) as error:
            return CallbackUnanswered(f"{type(error).__name__}: {error}".rstrip(": "))

    async def close(self) -> None:
        """See CallbackSender.close."""
        await self._http.aclose()

    async def _send(self, url: str, headers: Mapping[str, str], body: bytes) -> CallbackAnswered:
        problem = self._rules.problem(url)
        if problem:
            raise RefusedAddressError(f"the address {problem}")
        parts = httpx.URL(url)
        name = parts.raw_host.decode("ascii")
        address = await self._address(name, parts.port or (443 if parts.scheme == "https" else 80))
        request = self._http.build_request(
            "POST",
            parts.copy_with(host=address),
            headers={**headers, "host": urlsplit(url).netloc},
            content=body,
            extensions={"sni_hostname": name},
        )
        response = await self._http.send(request, stream=True)
        await response.aclose()
        return CallbackAnswered(response.status_code, _pause(response.headers.get("retry-after", "")))

    async def _address(self, name: str, port: int) -> str:
        """Return an address of the host; raises RefusedAddressError if any of them may not be reached, OSError if it has none."""
        found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
        addresses = [str(sockaddr[0]) for _, _, _, _, sockaddr in found]
        for each in addresses:
            refusal = self._rules.refusal(each)
            if refusal:
                raise RefusedAddressError(f"{name} {refusal}")
        return addresses[0]


def _pause(text: str) -> float | None:
    return min(float(text), _MAX_PAUSE) if text.isascii() and text.isdecimal() else None
