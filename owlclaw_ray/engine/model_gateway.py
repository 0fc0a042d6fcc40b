"""The gateway to all models: fallback chain, retries, time limits, and how many calls run at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from owlclaw_ray.domain.model import FailedAttempt, ModelReply, ModelRequest
from owlclaw_ray.engine.deadline import deadline
from owlclaw_ray.engine.log_context import about
from owlclaw_ray.engine.retry import RetryPolicy
from owlclaw_ray.errors import ContextWindowExceededError, ModelRefusedError, ModelUnavailableError
from owlclaw_ray.ids import AgentId, RunId
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.models import ModelClient


class ModelGateway:
    """Implements `Models` over clients, of which the first that serves a model is asked.

    At most `max_concurrent` attempts run at once; the others wait in the order of their coming, and their time limit starts
    when they run, with their client loaded. A call that waits for its next attempt holds no place. `jitter` returns numbers
    in [0, 1).
    """

    def __init__(
        self,
        clients: Sequence[ModelClient],
        *,
        clock: Clock,
        retry: RetryPolicy,
        max_concurrent: int = 64,
        jitter: Callable[[], float],
    ) -> None:
        self._clients = tuple(clients)
        self._clock = clock
        self._retry = retry
        self._places = asyncio.Semaphore(max_concurrent)
        self._jitter = jitter

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the first reply of the chain, with its own duration and the attempts that failed before it.

        When the chain is exhausted and no attempt of it might have been mended by a retry, raises ModelRefusedError,
        else ModelUnavailableError. It is a ContextWindowExceededError if a model of the chain refused the prompt for its length.
        """
        with about(RunId(request.run_id), AgentId(request.agent_id)):
            return await self._complete(request)

    async def _complete(self, request: ModelRequest) -> ModelReply:
        failed: list[FailedAttempt] = []
        last: ModelUnavailableError | ModelRefusedError | None = None
        too_long = False
        for model in request.model.chain:
            try:
                reply = await self._ask(request, model, failed)
            except (ModelUnavailableError, ModelRefusedError) as error:
                last, too_long = error, too_long or isinstance(error, ContextWindowExceededError)
            else:
                return replace(reply, failed_attempts=tuple(failed)) if failed else reply
        raise _exhausted(failed, last, too_long=too_long) from last

    async def _ask(self, request: ModelRequest, model: str, failed: list[FailedAttempt]) -> ModelReply:
        client = self._client(model, failed)
        attempt = 1
        while True:
            try:
                return await self._attempt(client, request, model)
            except ModelRefusedError as error:
                failed.append(FailedAttempt(model, str(error), retryable=False))
                raise
            except ModelUnavailableError as error:
                failed.append(FailedAttempt(model, str(error), retryable=True))
                if attempt == self._retry.attempts:
                    raise
                await self._clock.sleep(self._retry.delay(attempt, self._jitter(), error.retry_after))
            attempt += 1

    async def _attempt(self, client: ModelClient, request: ModelRequest, model: str) -> ModelReply:
        await client.load()
        async with self._places:
            started = self._clock.monotonic()
            try:
                async with deadline(self._clock, request.timeout):
                    reply = await client.complete(request, model)
            except TimeoutError:
                raise ModelUnavailableError(f"did not answer within {request.timeout:g} s") from None
            return replace(reply, duration_ms=round((self._clock.monotonic() - started) * 1_000))

    def _client(self, model: str, failed: list[FailedAttempt]) -> ModelClient:
        for client in self._clients:
            if client.serves(model):
                return client
        message = "no client serves it; write scripted:<path or name>, or a litellm name such as openai/gpt-4o"
        failed.append(FailedAttempt(model, message, retryable=False))
        raise ModelRefusedError(message)


def _exhausted(
    failed: Sequence[FailedAttempt], last: ModelUnavailableError | ModelRefusedError | None, *, too_long: bool
) -> ModelUnavailableError | ModelRefusedError:
    if not failed:
        return ModelRefusedError("the definition names no model; set `model:` in its agent.yaml")
    message = f"no model answered: {'; '.join(_stories(failed))}"
    if too_long:
        return ContextWindowExceededError(message)
    if any(attempt.retryable for attempt in failed):
        return ModelUnavailableError(message, last.retry_after if isinstance(last, ModelUnavailableError) else None)
    return ModelRefusedError(message)


def _stories(failed: Sequence[FailedAttempt]) -> list[str]:
    """One line a model, with its last error and how often it was asked."""
    attempts: dict[str, list[FailedAttempt]] = {}
    for attempt in failed:
        attempts.setdefault(attempt.model, []).append(attempt)
    return [
        f"{model} ({len(tries)} attempts): {tries[-1].error}" if len(tries) > 1 else f"{model}: {tries[-1].error}"
        for model, tries in attempts.items()
    ]
