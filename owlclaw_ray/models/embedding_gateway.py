"""The gateway to embedding models: retries, time limits, and how many calls run at once."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.embedding import EmbeddingReply, EmbeddingRequest
from owlclaw_ray.domain.model import FailedAttempt
from owlclaw_ray.errors import ModelUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.kernel.fair_order import Weights, equal_weights
from owlclaw_ray.kernel.fair_queue import FairQueue
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.models.api import EmbeddingClient
from owlclaw_ray.models.prices import PriceRules, priced


class EmbeddingGateway:
    """Asks one client. At most `max_concurrent` attempts run at once, beside those of chat models, shared out fairly: to tenants by
    `weight`, then between their agents. `jitter` is in [0, 1).
    """

    def __init__(
        self,
        client: EmbeddingClient,
        *,
        clock: Clock,
        retry: RetryPolicy,
        max_concurrent: int = 8,
        jitter: Callable[[], float],
        prices: PriceRules = (),
        weight: Weights = equal_weights,
    ) -> None:
        self._prices = prices
        self._client, self._clock, self._retry, self._jitter = client, clock, retry, jitter
        self._places = FairQueue(max_concurrent, None, weight)

    async def embed(self, request: EmbeddingRequest) -> EmbeddingReply:
        """Return the vectors, with the attempts that failed before.

        Raises ModelRefusedError at once, ModelUnavailableError when the attempts, or the request's patience, are used up.
        The patience starts when the client is loaded.
        """
        await self._client.load()
        failed: list[FailedAttempt] = []
        try:
            async with deadline(self._clock, request.patience):
                reply = await self._persist(request, failed)
        except TimeoutError:
            last = f": {failed[-1].error}" if failed else ""
            raise ModelUnavailableError(
                f"{request.model} returned no vectors within {request.patience:g} s{last}"
            ) from None
        return replace(reply, failed_attempts=tuple(failed)) if failed else reply

    async def _persist(self, request: EmbeddingRequest, failed: list[FailedAttempt]) -> EmbeddingReply:
        attempt = 1
        while True:
            try:
                place = self._places.place((request.tenant, request.agent_id))
                async with place, deadline(self._clock, request.timeout):
                    reply = await self._client.embed(request)
                    return replace(reply, usage=priced(reply.usage, self._prices, request.model))
            except (ModelUnavailableError, TimeoutError) as raised:
                late = ModelUnavailableError(f"did not answer within {request.timeout:g} s")
                error = late if isinstance(raised, TimeoutError) else raised
                failed.append(FailedAttempt(request.model, str(error), retryable=True))
                if attempt == self._retry.attempts:
                    raise ModelUnavailableError(f"{request.model} ({counted(attempt, 'attempt')}): {error}") from error
                await self._clock.sleep(self._retry.delay(attempt, self._jitter(), error.retry_after))
            attempt += 1
