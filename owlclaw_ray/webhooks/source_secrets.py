"""Secrets of tenants that sign webhooks, in a process that checks them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from dataclasses import replace

from owlclaw_ray.domain.webhook import SecretForm, WebhookSource
from owlclaw_ray.errors import NotFoundError, OwlClawError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.secrets.api import AskSecret

FRESH_SECONDS = 1.0
"""For how long what was read serves further webhooks: anybody can send one, and must not have the store read each time."""

_ASK_SECONDS = 5.0

logger = logging.getLogger(__name__)


class SourceSecrets:
    """Gives sources the secrets that their tenants have for them."""

    def __init__(self, ask: AskSecret, clock: Clock) -> None:
        self._ask, self._clock = ask, clock
        self._fresh: dict[str, tuple[tuple[str, ...], float]] = {}
        self._reading: dict[str, asyncio.Task[tuple[str, ...]]] = {}
        self._said: dict[str, str] = {}

    async def filled(self, source: WebhookSource) -> WebhookSource:
        """Return the source with those of its secrets that there are, as they are or were a second ago; what is wrong is logged."""
        if not source.tenant_secrets:
            return source
        found, until = self._fresh.get(source.name, ((), 0.0))
        if self._clock.monotonic() >= until:
            found = await self._read(source)
        return replace(source, secrets=found)

    async def _read(self, source: WebhookSource) -> tuple[str, ...]:
        """Return its secrets, read once for all webhooks that come meanwhile."""
        task = self._reading.get(source.name)
        if task is None:
            task = self._reading[source.name] = asyncio.create_task(self._values(source))
            task.add_done_callback(lambda _: self._reading.pop(source.name, None))
        return await asyncio.shield(task)

    async def _values(self, source: WebhookSource) -> tuple[str, ...]:
        found = tuple([value for name in source.tenant_secrets if (value := await self._value(source, name))])
        self._fresh[source.name] = found, self._clock.monotonic() + FRESH_SECONDS
        return found

    async def _value(self, source: WebhookSource, name: str) -> str:
        """Return the secret; empty if there is none that can be used."""
        try:
            async with deadline(self._clock, _ASK_SECONDS):
                value = await self._ask(source.tenant, name)
        except TimeoutError:
            problem = f"no answer within {_ASK_SECONDS:g} s"
        except NotFoundError:
            problem = "there is none of that name"
        except OwlClawError as error:
            problem = str(error)
        else:
            if source.secret_form is SecretForm.TEXT or _is_base64(value):
                self._said.pop(f"{source.name} {name}", None)
                return value
            problem = "it is not of the form that secret_encoding says"
        if self._said.get(f"{source.name} {name}") != problem:
            self._said[f"{source.name} {name}"] = problem
            logger.warning(
                "webhooks of %s are not checked with secret %s of tenant %s: %s",
                source.name,
                name,
                source.tenant,
                problem,
            )
        return ""


def _is_base64(secret: str) -> bool:
    try:
        return bool(base64.b64decode(secret.removeprefix("whsec_"), validate=True))
    except (binascii.Error, ValueError):
        return False
