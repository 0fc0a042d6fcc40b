"""The ModelGateway: the one process that knows providers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from actors.logs import configure
from actors.plan import RuntimePlan
from owlclaw_ray.adapters.system_clock import SystemClock
from owlclaw_ray.domain.model import ModelRequest
from owlclaw_ray.engine.model_gateway import ModelGateway
from owlclaw_ray.engine.reply_box import Answer, ReplyBox
from owlclaw_ray.ids import RequestId


class ModelGatewayActor:
    """Answers the links of all hosts. A link that it does not know (it was restarted) begins empty: hosts send again."""

    def __init__(self, plan: RuntimePlan) -> None:
        from owlclaw_ray.adapters.litellm_client import LiteLLMClient
        from owlclaw_ray.adapters.scripted.client import ScriptedClient

        configure(plan.worker.log)
        clock = SystemClock()
        self._litellm = LiteLLMClient()
        self._models = ModelGateway(
            [ScriptedClient(clock=clock), self._litellm],
            clock=clock,
            retry=plan.model_retry,
            max_concurrent=plan.max_concurrent_models,
            jitter=random.random,
        )
        self._boxes: dict[str, ReplyBox] = {}

    async def submit(self, link: str, requests: Sequence[ModelRequest]) -> None:
        """Begin these calls."""
        self._box(link).submit(requests)

    async def receive(self, link: str, seconds: float) -> Sequence[Answer]:
        """Return the link's answers; see ReplyBox.receive."""
        return await self._box(link).receive(seconds)

    async def cancel(self, link: str, request_ids: Sequence[RequestId]) -> None:
        """Stop these calls."""
        self._box(link).cancel(request_ids)

    async def warm(self, models: Sequence[str]) -> dict[str, str]:
        """Import litellm now, beside everything else, instead of with the first call.

        Return which of these models lack a key, each with the environment variables to set.
        """
        await asyncio.to_thread(self._litellm.warm)
        missing = {model: self._litellm.missing_key(model) for model in models}
        return {model: variables for model, variables in missing.items() if variables is not None}

    async def ready(self) -> bool:
        """Return as soon as calls are taken."""
        return True

    def _box(self, link: str) -> ReplyBox:
        return self._boxes.setdefault(link, ReplyBox(self._models))
