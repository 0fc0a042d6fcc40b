"""A host's end of its duplex link to the ModelGateway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from actors.remote import GATEWAY, NamedActor
from owlclaw_ray.domain.embedding import EmbeddingReply, EmbeddingRequest
from owlclaw_ray.domain.model import ContextWindow, ModelReply, ModelRequest, Price
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.models.api import Listener, ignore_news
from owlclaw_ray.models.reply_box import CallId, Received
from owlclaw_ray.models.reply_link import LinkLostError, ReplyLink
from owlclaw_ray.models.tokens import EstimatedTokens

_FIRST_PAUSE, _MAX_PAUSE = 0.2, 2.0
_TRANSFER_SECONDS = 5.0
_COUNTING_SECONDS = 15.0
"""Long enough for litellm to be imported first."""
_UNCOUNTED_SECONDS = 60.0
"""For so long nothing is counted after the gateway gave no answer in time."""

logger = logging.getLogger(__name__)


class GatewayLink:
    """Implements `Models`. When the gateway dies, every call that has no answer yet is sent again to its successor."""

    def __init__(self, link: str, namespace: str) -> None:
        self._link: ReplyLink[ModelRequest] = ReplyLink(_GatewayBox(link, namespace))

    async def complete(self, request: ModelRequest, listener: Listener = ignore_news) -> ModelReply:
        """See Models.complete. Waits for a gateway for as long as the caller does."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return await self._link.ask(request, listener)
            except LinkLostError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _MAX_PAUSE)


class GatewayTokens:
    """Implements `TokenCounter`: the gateway counts, where the tokenizers are; while it is not there, tokens are estimated.

    When it does not answer in time it is left alone for a while, so that not every run waits for it anew.
    """

    def __init__(self, namespace: str, clock: Clock, seconds: float = _COUNTING_SECONDS) -> None:
        self._gateway = NamedActor(GATEWAY, namespace)
        self._clock, self._seconds = clock, seconds
        self._again_at = clock.monotonic()

    async def count_tokens(self, model: str, texts: Sequence[str]) -> Sequence[int]:
        """See TokenCounter.count_tokens."""
        if not model.startswith("scripted:") and self._clock.monotonic() >= self._again_at:
            try:
                async with asyncio.timeout(self._seconds):
                    return await self._gateway.call.count_tokens(model, tuple(texts))
            except RuntimeUnavailableError as error:
                logger.warning("tokens for %s are estimated: %s", model, error)
            except TimeoutError:
                self._again_at = self._clock.monotonic() + _UNCOUNTED_SECONDS
                message = "tokens for %s, and whatever else is counted in %g s, are estimated: no answer within %g s"
                logger.warning(message, model, _UNCOUNTED_SECONDS, self._seconds)
        return await EstimatedTokens().count_tokens(model, texts)

    async def context_window(self, model: str) -> ContextWindow | None:
        """See TokenCounter.context_window."""
        async with asyncio.timeout(self._seconds):
            return await self._gateway.call.context_window(model)

    async def price(self, model: str) -> Price | None:
        """See TokenCounter.price."""
        async with asyncio.timeout(self._seconds):
            return await self._gateway.call.price(model)


class GatewayEmbeddings:
    """Asks the gateway for vectors, from code that is not asynchronous: a tool worker."""

    def __init__(self, namespace: str) -> None:
        self._gateway = NamedActor(GATEWAY, namespace)

    def embed(self, request: EmbeddingRequest) -> EmbeddingReply:
        """See EmbeddingGateway.embed; also RuntimeUnavailableError when the gateway is not there, or does not answer."""
        seconds = request.patience + _TRANSFER_SECONDS
        return self._gateway.call_now(lambda gateway: gateway.embed(request), seconds)


class _GatewayBox:
    """Implements `RemoteReplyBox`: the box that the gateway keeps for this link."""

    def __init__(self, link: str, namespace: str) -> None:
        self._link, self._gateway = link, NamedActor(GATEWAY, namespace)

    async def post(self, calls: Sequence[tuple[CallId, bytes]], withdrawn: Sequence[CallId]) -> Received:
        return await self._gateway.call.post(self._link, calls, withdrawn)

    async def receive(
        self, seconds: float, calls: Sequence[tuple[CallId, bytes]] = (), withdrawn: Sequence[CallId] = ()
    ) -> Received:
        return await self._gateway.call.receive(self._link, seconds, calls, withdrawn)
