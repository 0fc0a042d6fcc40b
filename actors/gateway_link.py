"""A host's end of its duplex link to the ModelGateway."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from actors.remote import GATEWAY, Named
from owlclaw_ray.domain.model import ModelReply, ModelRequest
from owlclaw_ray.engine.reply_box import BoxId, CallId, Received
from owlclaw_ray.engine.reply_link import LinkLostError, ReplyLink

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 2.0


class GatewayLink:
    """Implements `Models`. When the gateway dies, every call that has no answer yet is sent again to its successor."""

    def __init__(self, link: str, namespace: str) -> None:
        self._link: ReplyLink[ModelRequest] = ReplyLink(_GatewayBox(link, namespace))

    async def complete(self, request: ModelRequest) -> ModelReply:
        """See Models.complete. Waits for a gateway for as long as the caller does."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return await self._link.ask(request)
            except LinkLostError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)


class _GatewayBox:
    """Implements `FarEnd`: the box that the gateway keeps for this link."""

    def __init__(self, link: str, namespace: str) -> None:
        self._link, self._gateway = link, Named(GATEWAY, namespace)

    async def post(self, calls: Sequence[tuple[CallId, ModelRequest]], withdrawn: Sequence[CallId]) -> BoxId:
        return cast("BoxId", await self._gateway.ask_packed("post", self._link, calls, withdrawn))

    async def receive(self, seconds: float) -> Received:
        return cast("Received", await self._gateway.ask_packed("receive", self._link, seconds))
