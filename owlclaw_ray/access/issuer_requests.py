"""What is asked of issuers over HTTP: where their parts are, and what these answer. Nothing is followed to where an answer leads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

FETCH_SECONDS = 5.0
"""For how long an issuer is waited for."""
MAX_BYTES = 1024 * 1024
"""Of an answer."""
_DISCOVERY = "/.well-known/openid-configuration"


class Metadata(Struct, frozen=True):
    """What an issuer says of itself (OpenID Connect Discovery 1.0)."""

    issuer: str


_M = TypeVar("_M", bound=Metadata)
_T = TypeVar("_T")


async def discovered(issuer: str, form: type[_M]) -> _M:
    """Return what the issuer says of itself; raises ValueError."""
    found = decoded(await download(f"{issuer.rstrip('/')}{_DISCOVERY}"), form)
    if found.issuer != issuer:
        raise ValueError("its OpenID configuration is another issuer's")
    return found


def decoded(content: bytes, form: type[_T]) -> _T:
    """Return what the JSON of an issuer says; raises ValueError."""
    try:
        return msgspec.json.decode(content, type=form)
    except RecursionError:
        raise ValueError("it answered JSON that is nested too deeply") from None


def is_as_safe(url: str, issuer: str) -> bool:
    """Return whether an address is https, or the issuer itself, which is of this machine, is not."""
    return url.startswith("https://" if issuer.startswith("https://") else ("https://", "http://"))


async def download(url: str) -> bytes:
    """Return what is at the URL; raises ValueError."""
    status, content = await ask(url)
    if status != 200:
        raise ValueError(f"{url} answered {status}")
    return content


async def ask(
    url: str, form: Mapping[str, str] | None = None, basic: tuple[str, str] | None = None
) -> tuple[int, bytes]:
    """Return the status and the content of the answer, to a POST if there is a form; raises ValueError.

    `basic`: name and password. How long it may take is for the caller to say.
    """
    import httpx

    try:
        async with (
            httpx.AsyncClient(timeout=httpx.Timeout(None), follow_redirects=False) as client,
            client.stream(
                "GET" if form is None else "POST",
                url,
                headers={"Accept": "application/json"},
                data=form,
                auth=basic,
            ) as response,
        ):
            content = b""
            async for part in response.aiter_bytes():
                content = limited(content + part)
            return response.status_code, content
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ValueError(f"{url}: {str(error) or type(error).__name__}") from error


def limited(content: bytes) -> bytes:
    """Return the content; raises ValueError if it is too much."""
    if len(content) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    return content
