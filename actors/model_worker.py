"""ModelWorkerActor: a helper of the ModelGateway, one more process with litellm."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import psutil
from ray.actor import ActorHandle

from actors.keeper_client import secrets_at_keeper
from actors.logs import LogPlan, configure
from actors.remote import calls, kill, make, whereabouts
from actors.remote_actor import RemoteActor
from actors.secrets import take_over
from owlclaw_ray.domain.model import ModelReply
from owlclaw_ray.errors import ModelRefusedError, RuntimeUnavailableError
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.models.api import Listener
from owlclaw_ray.models.pooled_client import ClientCall, Helper
from owlclaw_ray.models.reply_box import BoxId, CallId, Received, ReplyBox
from owlclaw_ray.models.tenant_keys import TenantKeys

_STARTUP_SECONDS = 120.0
_TIMEOUT_SECONDS = 30.0


class ModelWorkerActor(RemoteActor):
    """Makes the calls that its gateway gives it: one attempt each, no retries, no limits."""

    def __init__(self, log: LogPlan, namespace: str) -> None:
        take_over()
        keys = TenantKeys(secrets_at_keeper(namespace), SystemClock())
        configure(log, keys.read.hidden)
        from owlclaw_ray.models.litellm_client import LiteLLMClient

        self._client = LiteLLMClient(keys)
        self._box = ReplyBox(BoxId("only"), self._complete, SystemClock())

    async def load(self) -> None:
        """See ModelClient.load."""
        await self._client.load()

    async def post(self, new: Sequence[tuple[CallId, bytes]], withdrawn: Sequence[CallId]) -> Received:
        """See RemoteReplyBox.post."""
        return await self._box.post(new, withdrawn)

    async def receive(
        self, seconds: float, new: Sequence[tuple[CallId, bytes]] = (), withdrawn: Sequence[CallId] = ()
    ) -> Received:
        """See RemoteReplyBox.receive."""
        return await self._box.receive(seconds, new, withdrawn)

    async def cpu_seconds(self) -> float:
        """See Helper.cpu_seconds."""
        return time.process_time()

    async def _complete(self, call: ClientCall, listener: Listener) -> ModelReply:
        del listener  # a slot was taken before the call came here
        return await self._client.complete(call.request, call.model)


class ModelWorker:
    """Implements `Helper` over a ModelWorkerActor of this machine."""

    def __init__(self, actor: ActorHandle[ModelWorkerActor]) -> None:
        self._actor = actor
        self._process: psutil.Process | None = None

    async def wait_until_ready_for_calls(self) -> None:
        """Return when it is ready for calls."""
        async with _wait_limit(_STARTUP_SECONDS):
            self._process = psutil.Process((await whereabouts(self._actor)).pid)
            await calls(self._actor).load()

    async def post(self, new: Sequence[tuple[CallId, bytes]], withdrawn: Sequence[CallId]) -> Received:
        """See RemoteReplyBox.post."""
        return await calls(self._actor).post(new, withdrawn)

    async def receive(
        self, seconds: float, new: Sequence[tuple[CallId, bytes]] = (), withdrawn: Sequence[CallId] = ()
    ) -> Received:
        """See RemoteReplyBox.receive."""
        return await calls(self._actor).receive(seconds, new, withdrawn)

    async def cpu_seconds(self) -> float:
        """See Helper.cpu_seconds."""
        async with _wait_limit(_TIMEOUT_SECONDS):
            return await calls(self._actor).cpu_seconds()

    def end(self) -> None:
        """Kill it, even if it hears nothing any more; harmless if it is dead."""
        kill(self._actor)
        try:
            if self._process is not None:
                self._process.kill()
        except psutil.NoSuchProcess:
            return


class ModelWorkers:
    """Implements `HelperSource`: makes them on the caller's node, as its children, so that none outlives its gateway."""

    def __init__(self, log: LogPlan, namespace: str) -> None:
        self._log, self._namespace = log, namespace

    async def spawn(self) -> Helper:
        """See HelperSource.spawn."""
        worker = ModelWorker(make(ModelWorkerActor, self._log, self._namespace, max_restarts=0))
        try:
            await worker.wait_until_ready_for_calls()
        except (RuntimeUnavailableError, ModelRefusedError, psutil.NoSuchProcess) as error:
            worker.end()
            raise RuntimeUnavailableError(f"the new helper did not start: {error}") from error
        return worker

    async def end(self, helper: Helper) -> None:
        """See HelperSource.end."""
        if isinstance(helper, ModelWorker):
            helper.end()


@asynccontextmanager
async def _wait_limit(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise RuntimeUnavailableError(f"no answer within {seconds:g} s") from error
