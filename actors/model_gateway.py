"""The ModelGateway: the one front of its node to all models. It makes calls itself, and has helpers when that is too much."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Sequence

from actors.garbage import collect_rarely
from actors.keeper_client import KeeperClient, secrets_at_keeper
from actors.logs import configure
from actors.model_worker import ModelWorkers
from actors.plan import RuntimePlan
from actors.remote import here
from actors.remote_actor import RemoteActor
from actors.secrets import take_over
from owlclaw_ray.access.tenant_terms import TenantTerms
from owlclaw_ray.domain.embedding import EmbeddingReply, EmbeddingRequest
from owlclaw_ray.domain.endpoint import RealModel
from owlclaw_ray.domain.model import ContextWindow, Price
from owlclaw_ray.ids import RandomIds
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.models.embedding_gateway import EmbeddingGateway
from owlclaw_ray.models.learned_limits import LearnedLimits
from owlclaw_ray.models.model_gateway import ModelGateway
from owlclaw_ray.models.pooled_client import PooledClient
from owlclaw_ray.models.provider_slots import SlotCounts
from owlclaw_ray.models.reply_box import CallId, Received, ReplyBoxes
from owlclaw_ray.models.tenant_keys import TenantKeys


class ModelGatewayActor(RemoteActor):
    """Answers the links of all hosts. A restarted one begins empty: hosts notice, and send again."""

    def __init__(self, plan: RuntimePlan) -> None:
        from owlclaw_ray.models.litellm_client import LiteLLMClient
        from owlclaw_ray.models.scripted.client import ScriptedClient

        take_over()
        clock = SystemClock()
        keys = TenantKeys(secrets_at_keeper(plan.namespace), clock)
        configure(plan.worker.log, keys.read.hidden)
        collect_rarely()
        self._litellm = LiteLLMClient(keys)
        pooled = PooledClient(
            self._litellm,
            ModelWorkers(plan.worker.log, plan.namespace),
            most=(os.cpu_count() or 1) if plan.model_workers_max is None else plan.model_workers_max,
            growth=plan.model_growth,
            cpu_seconds=time.process_time,
            clock=clock,
        )
        store = KeeperClient(plan.namespace)
        weight, limits = TenantTerms(store, clock).weight, LearnedLimits(store, here(), clock)
        self._models = ModelGateway(
            [ScriptedClient(clock=clock), pooled],
            clock=clock,
            retry=plan.model_retry,
            max_concurrent=plan.max_concurrent_models,
            jitter=random.random,
            prices=plan.prices,
            weight=weight,
            keys=keys,
            known_limit=limits.limit,
        )
        self._embeddings = EmbeddingGateway(
            self._litellm,
            clock=clock,
            retry=plan.model_retry,
            jitter=random.random,
            prices=plan.prices,
            weight=weight,
        )
        self._boxes = ReplyBoxes(self._models.complete, clock, RandomIds())
        self._sweeper = asyncio.create_task(self._boxes.remove_abandoned())
        self._noter = asyncio.create_task(limits.keep(lambda: self._models.learned))

    async def post(self, link: str, calls: Sequence[tuple[CallId, bytes]], withdrawn: Sequence[CallId]) -> Received:
        """See RemoteReplyBox.post."""
        return await self._boxes.of(link).post(calls, withdrawn)

    async def receive(
        self, link: str, seconds: float, calls: Sequence[tuple[CallId, bytes]], withdrawn: Sequence[CallId]
    ) -> Received:
        """See RemoteReplyBox.receive."""
        return await self._boxes.of(link).receive(seconds, calls, withdrawn)

    async def embed(self, request: EmbeddingRequest) -> EmbeddingReply:
        """See EmbeddingGateway.embed."""
        return await self._embeddings.embed(request)

    async def count_tokens(self, model: str, texts: Sequence[str]) -> Sequence[int]:
        """See TokenCounter.count_tokens."""
        return await self._litellm.count_tokens(model, texts)

    async def context_window(self, model: str) -> ContextWindow | None:
        """See TokenCounter.context_window."""
        return await self._litellm.context_window(model)

    async def price(self, model: str) -> Price | None:
        """See TokenCounter.price."""
        return await self._litellm.price(model)

    async def warm(self, models: Sequence[RealModel]) -> dict[str, str]:
        """Import litellm now, beside everything else, instead of with the first call.

        Return which of these models lack a key, each with the environment variables to set. Those for which tenants may have keys of
        their own are not among them.
        """
        await self._litellm.load()
        asked = [each for each in models if each.endpoint is None or not each.endpoint.key_secret]
        missing = ((each.model, self._litellm.missing_key(each.model, each.endpoint)) for each in asked)
        return {model: variables for model, variables in missing if variables is not None}

    async def slots(self) -> tuple[SlotCounts, ...]:
        """See ModelGateway.slots."""
        return self._models.slots

    async def ready(self) -> bool:
        """Return as soon as calls are taken."""
        return True
