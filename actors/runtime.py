"""The runtime over Ray, as an ingress replica uses it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from actors.artifacts import artifact_home
from actors.fleet_metrics import FleetMetrics
from actors.fleet_nodes import FleetNodes
from actors.keeper_client import KeeperClient, KeeperNow, KeeperSecrets, secrets_at_keeper
from actors.keeper_run_updates import Keepers
from actors.mcp_link import McpLink
from actors.memory_link import MemoryLink
from actors.plan import RuntimePlan
from actors.remote import DIRECTORY, EXPORTER, GATEWAY, KEEPER, SCHEDULER, AgentHandle, NamedActor, calls, in_time
from owlclaw_ray.configuration.access import filled_sign_in
from owlclaw_ray.configuration.webhooks import filled_keys, filled_sources
from owlclaw_ray.definitions.api import plain_name
from owlclaw_ray.definitions.folder import DefinitionFolder
from owlclaw_ray.definitions.skills.host_facts import Machine
from owlclaw_ray.domain.agent import AgentDefinition, AgentRef
from owlclaw_ray.domain.memory import MemoryHomeKind
from owlclaw_ray.domain.node import NodeCondition
from owlclaw_ray.domain.quota import uncounted_quotas
from owlclaw_ray.domain.score import Score
from owlclaw_ray.domain.tracing import Destination
from owlclaw_ray.domain.webhook import WebhookSource
from owlclaw_ray.errors import ConfigurationError, OwlClawError, RuntimeUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, RandomIds, RunId, TenantId
from owlclaw_ray.kernel.batcher import Batcher
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.ledger.chain_heads import ChainHeadFolder
from owlclaw_ray.memory.folders import MemoryFolders
from owlclaw_ray.runtime.api import Health, Runtime, refuse_score
from owlclaw_ray.runtime.memory_home import memory_home
from owlclaw_ray.store.followers import FollowerRegistry

_HEALTH_SECONDS = 3.0
_REST_SECONDS = 0.004
"""Between commits of many triggers at once: fewer and larger ones accept more of them, sooner (`owlclaw bench ingress`)."""
_COMMITS_AT_ONCE = 2
"""While one is under way, the next is made and sent: with one alone, this process and the Keeper wait for each other in turn."""
_WAKE_SECONDS = 3.0
"""How long a host may take to answer a wake before the Directory is asked instead."""
_CANCEL_PAUSE, _CANCEL_TRIES = 1.0, 30
"""How long, in seconds, and how often a cancellation is tried again that reached nobody: a Directory is back within seconds."""
_FILES_SECONDS = 10.0
"""How long another process may have an agent's memory files locked before a request gives up."""
_MAX_CACHED_HOSTS = 100_000
_FRESH_SECONDS = 1.0
_LOOK_SECONDS = 3.0
"""How long a look at a definition's files may take before the last known version serves."""

logger = logging.getLogger(__name__)


class DirectoryDispatcher:
    """Implements `Dispatcher`: wakes of all requests in this process leave in one message to each host.

    Where an agent is, is remembered; a host that does not have it any more says so, and the Directory is asked again. It is asked
    at once for an agent that was last woken `idle` seconds ago, for its host has probably let it go; but while there is no Directory,
    no host lets anybody go.
    """

    def __init__(self, namespace: str, clock: Clock, idle: float) -> None:
        self._directory, self._clock, self._idle = NamedActor(DIRECTORY, namespace), clock, idle
        self._late: set[asyncio.Task[None]] = set()
        self._unknown: Batcher[AgentRef, bool] = Batcher(self._wake_through_directory)
        self._homes: dict[AgentRef, tuple[str, float]] = {}
        """The host of each agent, and when the agent was woken there."""
        self._hosts: dict[str, HostWaker] = {}

    async def wake(self, agents: Sequence[AgentRef]) -> None:
        """See Dispatcher.wake. A wake that does not get through is made good by the Directory's sweep."""
        if len(agents) == 1:
            await self._wake(agents[0])
        else:
            await asyncio.gather(*(self._wake(agent) for agent in agents))

    async def cancel(self, agent: AgentRef, run_id: RunId) -> None:
        """See Dispatcher.cancel. While nobody answers it is tried again behind the caller; the run also learns it with its next commit."""
        if not await self._signal(agent, run_id):
            task = asyncio.create_task(self._signal_later(agent, run_id))
            self._late.add(task)
            task.add_done_callback(self._late.discard)

    async def _signal_later(self, agent: AgentRef, run_id: RunId) -> None:
        for _ in range(_CANCEL_TRIES):
            await self._clock.sleep(_CANCEL_PAUSE)
            if await self._signal(agent, run_id):
                return

    async def _signal(self, agent: AgentRef, run_id: RunId) -> bool:
        host_id, _ = self._homes.get(agent, ("", 0.0))
        host = self._hosts.get(host_id)
        try:
            async with asyncio.timeout(_WAKE_SECONDS):
                if host is None or not await host.cancel(agent, run_id):
                    await self._directory.call.cancel(agent, run_id)
        except (RuntimeUnavailableError, TimeoutError) as error:
            logger.warning("the cancellation of %s did not get through yet: %s", run_id, error)
            return False
        return True

    async def _wake(self, agent: AgentRef) -> None:
        host_id, woken = self._homes.get(agent, ("", 0.0))
        host, now = self._hosts.get(host_id), self._clock.monotonic()
        let_go = host is None or now - woken >= self._idle
        if let_go and await self._unknown(agent):
            return
        if host is not None and await host.wake(agent):
            self._homes[agent] = host_id, now
        elif not let_go:
            await self._unknown(agent)

    async def _wake_through_directory(self, agents: Sequence[AgentRef]) -> Sequence[bool]:
        """Return for each whether the Directory was told."""
        try:
            async with asyncio.timeout(_WAKE_SECONDS):
                await self._learn(await self._directory.call.wake(tuple(dict.fromkeys(agents))))
        except (RuntimeUnavailableError, TimeoutError) as error:
            logger.warning("%d agents are woken by the next sweep: %s", len(agents), error)
            return [False] * len(agents)
        return [True] * len(agents)

    async def _learn(self, homes: dict[AgentRef, str]) -> None:
        for host_id in set(homes.values()) - self._hosts.keys():
            actor = await self._directory.call.handle(host_id)
            if actor is not None:
                self._hosts[host_id] = HostWaker(actor)
        if len(self._homes) + len(homes) > _MAX_CACHED_HOSTS:
            self._homes.clear()
        now = self._clock.monotonic()
        self._homes.update((agent, (host_id, now)) for agent, host_id in homes.items())
        self._hosts = {host_id: host for host_id, host in self._hosts.items() if not host.gone}


class HostWaker:
    """Wakes agents on one host."""

    def __init__(self, actor: AgentHandle) -> None:
        self.gone = False
        self._actor = actor
        self._wakes: Batcher[AgentRef, bool] = Batcher(self._wake_batch)

    async def wake(self, agent: AgentRef) -> bool:
        """Return whether the agent is there, and woken."""
        return not self.gone and await self._wakes(agent)

    async def cancel(self, agent: AgentRef, run_id: RunId) -> bool:
        """Return whether the agent is there, and was told to end the run."""
        try:
            return not self.gone and await calls(self._actor).cancel(agent, run_id)
        except RuntimeUnavailableError:
            self.gone = True
            return False

    async def _wake_batch(self, agents: Sequence[AgentRef]) -> Sequence[bool]:
        try:
            async with asyncio.timeout(_WAKE_SECONDS):
                unknown_agents = set(await calls(self._actor).wake(tuple(dict.fromkeys(agents))))
        except (RuntimeUnavailableError, TimeoutError):
            self.gone = True
            return [False] * len(agents)
        return [agent not in unknown_agents for agent in agents]


class RecentDefinitions:
    """Implements `NamedDefinitions`: looks at a definition's files at most once a second, because every trigger asks.

    While the files do not answer, the last known version serves.
    """

    def __init__(self, folder: DefinitionFolder, clock: Clock, namespace: str) -> None:
        self._folder, self._clock = folder, clock
        self._directory = NamedActor(DIRECTORY, namespace)
        self._known: dict[str, tuple[AgentDefinition, float]] = {}

    async def names(self, tenant: TenantId = DEFAULT_TENANT) -> Sequence[str]:
        """See NamedDefinitions.names."""
        return await self._folder.names(tenant)

    async def own(self) -> Mapping[TenantId, Sequence[str]]:
        """See NamedDefinitions.own."""
        return await self._folder.own()

    async def get(self, name: str) -> AgentDefinition:
        """See Definitions.get; raises RuntimeUnavailableError if nothing is known and the files do not answer."""
        known, looked = self._known.get(name, (None, 0.0))
        now = self._clock.monotonic()
        if known is not None and now - looked < _FRESH_SECONDS:
            return known
        try:
            async with deadline(self._clock, _LOOK_SECONDS):
                definition = await self._folder.get(name)
        except TimeoutError:
            if known is None:
                message = f"the files of {name} do not answer within {_LOOK_SECONDS:g} s"
                raise RuntimeUnavailableError(message) from None
            definition = known
        except OwlClawError:
            self._known.pop(name, None)
            raise
        self._known[name] = (definition, now)
        return definition

    async def reload(self, name: str) -> None:
        """See NamedDefinitions.reload."""
        for known in [each for each in self._known if plain_name(each) == plain_name(name)]:
            del self._known[known]
        await self._folder.reload(name)
        await self._directory.call.reload(name)


class NodeMarker:
    """Drains nodes, and takes them back."""

    def __init__(self, namespace: str) -> None:
        self._directory = NamedActor(DIRECTORY, namespace)

    async def __call__(self, nodes: Sequence[str], state: NodeCondition) -> None:
        """Mark these nodes as active or draining. Raises UserError, StoreUnavailableError, RuntimeUnavailableError."""
        if state is NodeCondition.DRAINING:
            await self._directory.call.drain(nodes)
        else:
            await self._directory.call.undrain(nodes)


class PartsHealth:
    """Asks every part of the runtime whether it answers."""

    def __init__(self, namespace: str) -> None:
        keeper, directory = NamedActor(KEEPER, namespace), NamedActor(DIRECTORY, namespace)
        gateway, scheduler = NamedActor(GATEWAY, namespace), NamedActor(SCHEDULER, namespace)
        self._lease = directory.call.lease
        self._probes: dict[str, Callable[[], Awaitable[object]]] = {
            str(KEEPER): keeper.call.ready,
            str(DIRECTORY): directory.call.hosts,
            str(GATEWAY): gateway.call.ready,
            str(SCHEDULER): scheduler.call.ready,
        }

    async def __call__(self) -> Health:
        """Return `ok` or what is wrong for each part; ready when all are ok."""
        *answers, holder = await asyncio.gather(*(_probe(each) for each in self._probes.values()), self._holder())
        parts = dict(zip(self._probes, answers, strict=True))
        return Health(ready=all(answer == "ok" for answer in answers), parts=parts, holder=holder)

    async def _holder(self) -> str:
        """Return the other cluster that runs the agents, if there is one and this one knows it."""
        lease = await in_time(self._lease(), _HEALTH_SECONDS)
        return "" if lease is None else lease.holder


async def stands_by(namespace: str) -> bool:
    """Return whether another cluster runs the agents of the store, or none; not if the Directory does not answer."""
    try:
        async with asyncio.timeout(_HEALTH_SECONDS):
            lease = await NamedActor(DIRECTORY, namespace).call.lease()
    except (OwlClawError, TimeoutError):
        return False
    return lease is not None and not lease.held


async def _probe(probe: Callable[[], Awaitable[object]]) -> str:
    try:
        async with asyncio.timeout(_HEALTH_SECONDS):
            await probe()
    except TimeoutError:
        return f"no answer within {_HEALTH_SECONDS:g} s"
    except OwlClawError as error:
        return str(error)
    return "ok"


def ray_runtime(plan: RuntimePlan, *, keys_required: bool = False) -> Runtime:
    """Return the runtime that a running root with this plan offers. `keys_required`: see Authenticator."""
    clock, ids = SystemClock(), RandomIds()
    keeper = KeeperClient(plan.namespace, rest=partial(clock.sleep, _REST_SECONDS), at_once=_COMMITS_AT_ONCE)
    dispatcher = DirectoryDispatcher(plan.namespace, clock, plan.placement.idle)
    home = memory_home(plan.worker.memory_home, KeeperNow(plan.namespace), plan.data_dir, clock, _FILES_SECONDS)
    machine = Machine(os.environ)  # noqa: TID251 - skills name variables that have to be set
    folder = DefinitionFolder(Path(plan.agents_dir), plan.defaults, machine)
    definitions = RecentDefinitions(folder, clock, plan.namespace)
    issuers, sign_in, problems = filled_sign_in(plan.issuers, plan.sign_in, os.environ)  # noqa: TID251 - as for _sources
    for problem in problems:
        logger.error("node %s signs nobody in: %s", socket.gethostname(), problem)
    return Runtime(
        store=keeper,
        following=FollowerRegistry(
            keeper, Keepers(plan.namespace), ids=ids, clock=clock, stands_by=partial(stands_by, plan.namespace)
        ),
        dispatcher=dispatcher,
        definitions=definitions,
        memory_files=MemoryFolders(plan.data_dir, clock, plan.worker.memory_limits, _FILES_SECONDS, home),
        indexed_memory=MemoryLink(plan.namespace),
        artifacts=artifact_home(plan.worker, clock),
        health_of=PartsHealth(plan.namespace),
        clock=clock,
        ids=ids,
        ring=NamedActor(SCHEDULER, plan.namespace).call.ring,
        mcp=McpLink(plan.namespace) if plan.mcp is not None else None,
        metrics=FleetMetrics(plan, clock),
        cluster_of=FleetNodes(plan, clock),
        mark_nodes=NodeMarker(plan.namespace),
        sources=_sources(plan),
        callbacks=plan.defaults.callbacks,
        callback_secrets=callback_secrets(plan),
        noted_heads=ChainHeadFolder(plan.data_dir).load,
        keep_score=_keep_score(plan),
        secrets=KeeperSecrets(plan.namespace),
        secret=secrets_at_keeper(plan.namespace),
        keys_required=keys_required,
        issuers=issuers,
        sign_in=sign_in,
        uncounted=uncounted_quotas(
            memories_in_files=plan.worker.memory_home is MemoryHomeKind.FILES,
            artifacts_in_files=plan.worker.stored_artifact_bytes is None,
        ),
    )


def _keep_score(plan: RuntimePlan) -> Callable[[Score], Awaitable[None]]:
    """Return what keeps scores: who exports the traces has what it takes."""
    if plan.tracing is None or plan.tracing.destination is not Destination.LANGFUSE:
        return refuse_score
    return NamedActor(EXPORTER, plan.namespace).call.keep_score


def _sources(plan: RuntimePlan) -> Sequence[WebhookSource]:
    """Return who may send webhooks. What this node lacks for some of them keeps it from nothing else."""
    sources, problems = filled_sources(plan.sources, os.environ)  # noqa: TID251 - the secrets that the configuration names
    for problem in problems:
        logger.error("node %s answers webhooks with 503: %s", socket.gethostname(), problem)
    return sources


def callback_secrets(plan: RuntimePlan) -> Sequence[str] | None:
    """Return the secrets that sign callbacks; None if this node lacks one of them."""
    if plan.callbacks is None:
        return ()
    try:
        return filled_keys(plan.callbacks.secrets, os.environ)  # noqa: TID251 - the secrets that the configuration names
    except ConfigurationError as error:
        logger.error("node %s shows no secrets of callbacks: %s", socket.gethostname(), error)  # noqa: TRY400 - a sentence
        return None
