"""The gateway to all models: fallback chain, retries, time limits, and how many calls run at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import zip_longest

from msgspec import Struct, field
from msgspec.structs import replace

from owlclaw_ray.domain.concurrency_limit import ConcurrencyLimit
from owlclaw_ray.domain.endpoint import endpoint_of, provider_of
from owlclaw_ray.domain.model import FailedAttempt, ModelReply, ModelRequest, NextAttempt
from owlclaw_ray.errors import (
    ContextWindowExceededError,
    ModelRefusedError,
    ModelTimeoutError,
    ModelUnavailableError,
    NoSlotError,
)
from owlclaw_ray.ids import AgentId, RunId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.kernel.fair_order import Weights, equal_weights
from owlclaw_ray.kernel.log_context import about
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.models.adaptive_limit import START, AdaptiveLimit
from owlclaw_ray.models.api import Listener, ModelClient, Waiting, ignore_news
from owlclaw_ray.models.prices import PriceRules, priced
from owlclaw_ray.models.provider_slots import ProviderSlots, SlotCounts
from owlclaw_ray.models.tenant_keys import TenantKeys

MAX_CONCURRENT = 4_000
"""Calls of one provider at once: what one process bears in memory and connections."""


async def _unknown(_provider: str) -> None:
    return None


class _Attempts(Struct):
    """What has become of a call so far."""

    failed: list[FailedAttempt] = field(default_factory=list)
    began: float | None = None
    """When the first attempt did."""

    def add(self, model: str, error: str, *, retryable: bool, now: float) -> None:
        """Note one more that failed."""
        self.failed.append(FailedAttempt(model, error, retryable, self.milliseconds(now)))

    def milliseconds(self, now: float) -> int:
        """Return for how long it has been asked."""
        return 0 if self.began is None else round((now - self.began) * 1_000)


class ModelGateway:
    """Implements `Models` over clients, of which the first that serves a model is asked.

    Each provider, each address of one, and there each tenant that has a key of its own, has slots of its own: as many attempts at
    once as it seems to bear, `max_concurrent` at most, shared out fairly: to tenants by `weight`, then between their definitions and
    agents. The others wait, and their time limit starts when they run, with their client loaded. A call that waits for its next
    attempt holds no slot. `jitter` returns numbers in
    [0, 1). What a reply cost is what `prices` says, if they name its model. `known_limit` returns with how many slots a provider begins,
    which its name stands for, that of the tenant with a key of its own included; None: as of one of which nothing is known.
    """

    def __init__(
        self,
        clients: Sequence[ModelClient],
        *,
        clock: Clock,
        retry: RetryPolicy,
        max_concurrent: int = MAX_CONCURRENT,
        jitter: Callable[[], float],
        prices: PriceRules = (),
        weight: Weights = equal_weights,
        keys: TenantKeys | None = None,
        known_limit: Callable[[str], Awaitable[ConcurrencyLimit | None]] = _unknown,
    ) -> None:
        self._keys, self._known_limit = keys, known_limit
        self._opening: defaultdict[tuple[str, TenantId | None], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._prices, self._weight = prices, weight
        self._clients = tuple(clients)
        self._clock = clock
        self._retry = retry
        self._max_concurrent = max_concurrent
        self._slots: dict[tuple[str, TenantId | None], ProviderSlots] = {}
        """By place, and by the tenant whose own key is used there."""
        self._jitter = jitter

    async def complete(self, request: ModelRequest, listener: Listener = ignore_news) -> ModelReply:
        """Return the first reply of the chain, with its own duration and the attempts that failed before it.

        When the chain is exhausted and no attempt of it might have been mended by a retry, raises ModelRefusedError,
        else ModelUnavailableError. It is a ContextWindowExceededError if a model of the chain refused the prompt for its length.
        """
        attempts = _Attempts()
        last: ModelUnavailableError | ModelRefusedError | None = None
        too_long = False
        chain = request.model.chain
        with about(RunId(request.run_id), AgentId(request.agent_id)):
            for model, fallback in zip_longest(chain, chain[1:]):
                before = len(attempts.failed)
                try:
                    reply = await self._ask(request, model, attempts, listener)
                except (ModelUnavailableError, ModelRefusedError) as error:
                    last, too_long = error, too_long or isinstance(error, ContextWindowExceededError)
                    if fallback is not None:
                        listener(NextAttempt(attempts.failed[-1], len(attempts.failed) - before, fallback))
                else:
                    if not attempts.failed:
                        return reply
                    asked_ms = attempts.milliseconds(self._clock.monotonic())
                    return replace(reply, failed_attempts=tuple(attempts.failed), asked_ms=asked_ms)
        raise _exhausted(attempts.failed, last, too_long=too_long) from last

    @property
    def slots(self) -> tuple[SlotCounts, ...]:
        """How the calls of each provider stand that was asked, those with tenants' own keys among them."""
        places: dict[str, SlotCounts] = {}
        for (place, _), slots in self._slots.items():
            now, before = slots.counts, places.get(place, SlotCounts(place, 0, 0, 0))
            places[place] = SlotCounts(
                place, before.limit + now.limit, before.running + now.running, before.waiting + now.waiting
            )
        return tuple(places.values())

    @property
    def learned(self) -> Mapping[str, ConcurrencyLimit]:
        """The limits of the providers that calls are asked of just now."""
        return {slots.counts.provider: slots.learned for slots in self._slots.values() if slots.counts.running}

    async def _open(self, place: str, tenant: TenantId | None) -> ProviderSlots:
        """Return the slots, as many as are known to be borne."""
        async with self._opening[place, tenant]:
            if (place, tenant) not in self._slots:
                name = place if tenant is None else f"{place} with the key of {tenant}"
                known = await self._known_limit(name)
                limit = AdaptiveLimit(ceiling=self._max_concurrent, start=known or START)
                self._slots[place, tenant] = ProviderSlots(name, limit, self._clock, self._weight)
            return self._slots[place, tenant]

    async def _ask(self, request: ModelRequest, model: str, attempts: _Attempts, listener: Listener) -> ModelReply:
        client = next((each for each in self._clients if each.serves(model)), None)
        if client is None:
            message = "no client serves it; write scripted:<path or name>, or a litellm name such as openai/gpt-4o"
            attempts.add(model, message, retryable=False, now=self._clock.monotonic())
            raise ModelRefusedError(message)
        attempt = 1
        while True:
            try:
                return await self._attempt(client, request, model, attempts, listener)
            except ModelRefusedError as error:
                attempts.add(model, str(error), retryable=False, now=self._clock.monotonic())
                raise
            except ModelUnavailableError as error:
                attempts.add(model, str(error), retryable=True, now=self._clock.monotonic())
                if attempt == self._retry.attempts or isinstance(error, NoSlotError):
                    raise
                delay = self._retry.delay(attempt, self._jitter(), error.retry_after)
                listener(NextAttempt(attempts.failed[-1], attempt, model, delay))
                await self._clock.sleep(delay)
            attempt += 1

    async def _attempt(
        self, client: ModelClient, request: ModelRequest, model: str, attempts: _Attempts, waiting: Waiting
    ) -> ModelReply:
        await client.load()
        endpoint = endpoint_of(model, request.model.endpoints)
        own = self._keys is not None and await self._keys.key(request.tenant, endpoint)
        place, tenant = provider_of(model) if endpoint is None else endpoint.place, request.tenant if own else None
        slots = self._slots.get((place, tenant)) or await self._open(place, tenant)
        owner = (request.tenant, request.agent_id.partition(":")[0], request.agent_id)
        async with slots.slot(owner, model, request.timeout, waiting):
            started = self._clock.monotonic()
            attempts.began = started if attempts.began is None else attempts.began
            try:
                async with deadline(self._clock, request.timeout):
                    reply = await client.complete(request, model)
            except TimeoutError:
                raise ModelTimeoutError(f"did not answer within {request.timeout:g} s") from None
            usage = priced(reply.usage, self._prices, reply.model) if self._prices else reply.usage
            duration_ms = round((self._clock.monotonic() - started) * 1_000)
            return replace(reply, usage=usage, duration_ms=duration_ms)


def _exhausted(
    failed: Sequence[FailedAttempt], last: ModelUnavailableError | ModelRefusedError | None, *, too_long: bool
) -> ModelUnavailableError | ModelRefusedError:
    if not failed:
        return ModelRefusedError("the definition names no model; set `model:` in its agent.yaml")
    attempts: dict[str, list[FailedAttempt]] = {}
    for attempt in failed:
        attempts.setdefault(attempt.model, []).append(attempt)
    summaries = [
        f"{model} ({len(tries)} attempts): {tries[-1].error}" if len(tries) > 1 else f"{model}: {tries[-1].error}"
        for model, tries in attempts.items()
    ]
    message = f"no model answered: {'; '.join(summaries)}"
    if too_long:
        return ContextWindowExceededError(message)
    if any(attempt.retryable for attempt in failed):
        return ModelUnavailableError(message, last.retry_after if isinstance(last, ModelUnavailableError) else None)
    return ModelRefusedError(message)
