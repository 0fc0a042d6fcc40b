"""Where the console is, with a sign-in that works once."""

from __future__ import annotations

from owlclaw_ray.client import SyncClient


def console_link(client: SyncClient) -> str:
    """Return a link that signs in with the client's key, once and within a minute; where nobody needs a key, the address alone.

    Raises UnauthenticatedError if a key is needed and the client's is none that is good.
    """
    code, address = client.console_code(), f"{client.client.url}/console"
    return address if code is None else f"{address}/sign-in?link=yes#{code}"
