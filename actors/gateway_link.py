"""A host's end of its duplex link to the ModelGateway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from actors.remote import GATEWAY, Named
from owlclaw_ray.domain.model import ModelReply, ModelRequest
from owlclaw_ray.engine.batching import Batcher
from owlclaw_ray.errors import OwlClawError, RuntimeUnavailableError
from owlclaw_ray.ids import RequestId

_LONG_POLL = 20.0
_PAUSE = 0.2

logger = logging.getLogger(__name__)


class GatewayLink:
    """Implements `Models`. When the gateway dies, every call that has no answer yet is sent again to its successor."""

    def __init__(self, link: str, namespace: str) -> None:
        self._link = link
        self._gateway = Named(GATEWAY, namespace)
        self._pending: dict[RequestId, tuple[ModelRequest, asyncio.Future[ModelReply]]] = {}
        self._submit: Batcher[ModelRequest, None] = Batcher(self._submit_batch)
        self._receiver: asyncio.Task[None] | None = None
        self._farewells: set[asyncio.Task[None]] = set()

    async def complete(self, request: ModelRequest) -> ModelReply:
        """See Models.complete."""
        answer: asyncio.Future[ModelReply] = asyncio.get_running_loop().create_future()
        self._pending[request.request_id] = (request, answer)
        try:
            await self._submit(request)
            if self._receiver is None:
                self._receiver = asyncio.create_task(self._receive())
            return await answer
        except asyncio.CancelledError:
            farewell = asyncio.create_task(self._cancel(request.request_id))
            self._farewells.add(farewell)
            farewell.add_done_callback(self._farewells.discard)
            raise
        finally:
            self._pending.pop(request.request_id, None)

    async def _submit_batch(self, requests: Sequence[ModelRequest]) -> Sequence[None]:
        while True:
            try:
                await self._gateway.ask("submit", self._link, requests)
            except RuntimeUnavailableError:
                await asyncio.sleep(_PAUSE)
            else:
                return [None] * len(requests)

    async def _receive(self) -> None:
        try:
            while self._pending:
                await self._receive_batch()
        finally:
            self._receiver = None

    async def _receive_batch(self) -> None:
        """Resolve what is ready. What the gateway does not know any more is sent again; what it knows it ignores."""
        try:
            answers = await self._gateway.ask("receive", self._link, _LONG_POLL)
        except RuntimeUnavailableError as error:
            logger.warning("the model gateway is gone, %d calls are sent to the next: %s", len(self._pending), error)
            await asyncio.sleep(_PAUSE)
            answers = ()
        if not answers:
            await self._submit_batch([request for request, _ in self._pending.values()])
        for each in answers:
            self._resolve(each.request_id, each.outcome)

    def _resolve(self, request_id: RequestId, outcome: ModelReply | OwlClawError) -> None:
        _, answer = self._pending.pop(request_id, (None, None))
        if answer is None or answer.done():
            return
        if isinstance(outcome, OwlClawError):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    async def _cancel(self, request_id: RequestId) -> None:
        try:
            await self._gateway.ask("cancel", self._link, [request_id])
        except RuntimeUnavailableError:
            logger.info("the call %s ended with its gateway", request_id)
