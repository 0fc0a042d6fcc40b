"""The Python client of the HTTP API: `Client` for asyncio, `SyncClient` for everything else."""

from owlclaw_ray.client.asynchronous import DEFAULT_URL, Client
from owlclaw_ray.client.blocking import SyncClient
from owlclaw_ray.client.failures import ClientError, ServerUnreachableError
from owlclaw_ray.client.receiving import verify_callback

__all__ = ["DEFAULT_URL", "Client", "ClientError", "ServerUnreachableError", "SyncClient", "verify_callback"]
