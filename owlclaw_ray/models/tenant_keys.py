"""Tenants' own keys of providers, in a process that asks models."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from owlclaw_ray.domain.endpoint import Endpoint
from owlclaw_ray.errors import (
    ModelRefusedError,
    ModelUnavailableError,
    NotFoundError,
    OwlClawError,
    SecretsUnavailableError,
)
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.ledger.read_secrets import ReadSecrets

FRESH_SECONDS = 5.0
"""For how long what was read serves further calls."""
_Named: TypeAlias = tuple[TenantId, str]


class TenantKeys:
    """What this process has read of them. What it read it takes out of texts. One event loop."""

    def __init__(self, ask: Callable[[TenantId, str], Awaitable[str]], clock: Clock) -> None:
        """`ask` returns the value of a tenant's secret, and raises NotFoundError, SecretsUnavailableError or another OwlClawError."""
        self._ask, self._clock = ask, clock
        self._fresh: dict[_Named, tuple[str, float]] = {}
        self._reading: dict[_Named, asyncio.Task[str | OwlClawError]] = {}
        self.read = ReadSecrets()

    async def key(self, tenant: TenantId, endpoint: Endpoint | None) -> str:
        """Return the tenant's own key for the endpoint, as it is or was a few seconds ago; empty: the runtime's is meant.

        Where it cannot be known whether there is one, raises ModelUnavailableError, or ModelRefusedError if it cannot be decrypted:
        the runtime's is no substitute then.
        """
        if endpoint is None or not endpoint.key_secret:
            return ""
        named = tenant, endpoint.key_secret
        value, until = self._fresh.get(named, ("", 0.0))
        if self._clock.monotonic() < until:
            return value
        reading = self._reading.get(named)
        if reading is None:
            reading = self._reading[named] = asyncio.create_task(self._find(named))
            reading.add_done_callback(lambda _: self._reading.pop(named, None))
        found = await asyncio.shield(reading)
        if isinstance(found, SecretsUnavailableError):
            raise ModelRefusedError(f"the tenant's own key, secret {named[1]}, cannot be read: {found}")
        if isinstance(found, OwlClawError):
            raise ModelUnavailableError(
                f"whether the tenant has a key of its own, secret {named[1]}, is not known: {found}"
            )
        return found

    async def _find(self, named: _Named) -> str | OwlClawError:
        try:
            value = await self._ask(*named)
        except NotFoundError:
            value = ""
        except OwlClawError as error:
            return error
        if value:
            self.read.add(*named, value)
        self._fresh[named] = value, self._clock.monotonic() + FRESH_SECONDS
        return value
