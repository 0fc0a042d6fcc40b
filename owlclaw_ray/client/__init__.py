"""The Python client of the HTTP API: `Client` for asyncio, `SyncClient` for everything else."""

from typing import TYPE_CHECKING, Any

from owlclaw_ray.client.asynchronous import DEFAULT_URL, Client
from owlclaw_ray.client.blocking import SyncClient
from owlclaw_ray.client.failures import ClientError, ServerUnreachableError

if TYPE_CHECKING:
    from owlclaw_ray.client.callbacks import verify_callback

__all__ = ["DEFAULT_URL", "Client", "ClientError", "ServerUnreachableError", "SyncClient", "verify_callback"]


def __getattr__(name: str) -> Any:
    """Return what receives callbacks, which programs that only send requests need not load."""
    if name == "verify_callback":
        from owlclaw_ray.client.callbacks import verify_callback

        return verify_callback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
