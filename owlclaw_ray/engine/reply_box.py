"""The gateway's end of a duplex link: requests come in batches, replies leave in batches as soon as any is ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from owlclaw_ray.domain.model import ModelReply, ModelRequest
from owlclaw_ray.domain.pickling import fast_pickle
from owlclaw_ray.errors import ModelRefusedError, OwlClawError
from owlclaw_ray.ids import RequestId
from owlclaw_ray.ports.models import Models

logger = logging.getLogger(__name__)


@fast_pickle
@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request."""

    request_id: RequestId
    outcome: ModelReply | OwlClawError


class ReplyBox:
    """The requests of one link that are under way, and the answers that nobody has fetched yet."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._calls: dict[RequestId, asyncio.Task[None]] = {}
        self._answers: list[Answer] = []
        self._ready = asyncio.Event()

    def submit(self, requests: Sequence[ModelRequest]) -> None:
        """Begin these calls. One whose id is under way already is the same call, sent again."""
        for request in requests:
            if request.request_id not in self._calls:
                self._calls[request.request_id] = asyncio.create_task(self._call(request))

    def cancel(self, request_ids: Sequence[RequestId]) -> None:
        """Stop these calls; they get no answer."""
        for request_id in request_ids:
            task = self._calls.pop(request_id, None)
            if task is not None:
                task.cancel()

    async def receive(self, seconds: float) -> Sequence[Answer]:
        """Return all answers that are ready: at once if there are any, else with the first one, or none after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._ready.wait()
        except TimeoutError:
            return ()
        answers, self._answers = self._answers, []
        self._ready.clear()
        return answers

    async def _call(self, request: ModelRequest) -> None:
        try:
            outcome: ModelReply | OwlClawError = await self._models.complete(request)
        except OwlClawError as error:
            outcome = error
        except BaseException as error:
            if request.request_id not in self._calls:
                raise
            logger.exception("the model call %s failed in a way that no client should", request.request_id)
            outcome = ModelRefusedError(f"internal error: {type(error).__name__}: {error}")
        self._calls.pop(request.request_id, None)
        self._answers.append(Answer(request.request_id, outcome))
        self._ready.set()
