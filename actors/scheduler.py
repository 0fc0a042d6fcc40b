"""The Scheduler's actor: fires due schedules, makes those of heartbeats, sets runs going that wait for what is over, ends
approvals that nobody decided, artifacts, webhooks and runs that are too old, deletes tenants, notes how long queues are, and tells
of runs' ends whom it may concern.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from actors.agent import RemoteDefinitions
from actors.artifacts import artifact_home
from actors.keeper_client import KeeperClient
from actors.keeper_run_updates import Keepers
from actors.logs import LogPlan, configure
from actors.node_folders import NodeFolders
from actors.nodes import cluster_name
from actors.plan import HatchetPlan, RuntimePlan
from actors.remote import DIRECTORY, NamedActor
from actors.remote_actor import RemoteActor
from actors.secrets import Entrusted, entrusted, shown, take_over
from actors.waiting_calls import WaitingCalls
from owlclaw_ray.access.tenant_terms import TenantTerms
from owlclaw_ray.configuration.webhooks import filled_keys
from owlclaw_ray.definitions.folder import DefinitionFolder
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.ids import RandomIds, RunId, ScheduleId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.periodic import Periodic
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.placement.lease import RENEW_SECONDS
from owlclaw_ray.policy.approval_expiry import ApprovalExpiry
from owlclaw_ray.runs.callback_rules import TenantCallbackRules
from owlclaw_ray.runs.expiry import RunExpiry
from owlclaw_ray.runs.family import Family
from owlclaw_ray.runtime.tenant_places import ArtifactPlace
from owlclaw_ray.runtime.tenant_removal import TenantRemoval
from owlclaw_ray.runtime.upkeep import DueWork
from owlclaw_ray.schedules.alarm_sync import AlarmCounts, EngineAlarmClock
from owlclaw_ray.schedules.api import Alarm, AlarmClock
from owlclaw_ray.schedules.firings import LATE, ScheduleFirer
from owlclaw_ray.schedules.heartbeat_schedules import HeartbeatScheduler
from owlclaw_ray.schedules.scheduler import Scheduler
from owlclaw_ray.schedules.updates import ScheduleUpdates
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.queries import Upkeep
from owlclaw_ray.telemetry.queue_recorder import NOTE_SECONDS, QueueRecorder
from owlclaw_ray.tools.artifact_home import ArtifactExpiry
from owlclaw_ray.webhooks.expiry import WebhookExpiry
from owlclaw_ray.webhooks.outbox import CallbackCounts, CallbackDelivery, CallbackOptions

if TYPE_CHECKING:
    from owlclaw_ray.schedules.hatchet.supervision import WorkerSupervisor

_MINUTE = 60.0
_HOUR = 3_600.0
_VERBOSE_LOGGERS = ("httpx", "httpcore")
"""Loggers that would log addresses of callbacks, in which there may be secrets."""

logger = logging.getLogger(__name__)


class SchedulerCounts(Struct, frozen=True):
    """What the Scheduler did; None for what it does not do."""

    callbacks: CallbackCounts | None
    alarms: AlarmCounts | None


class SchedulerActor(RemoteActor):
    """Starts itself, the first time and after every restart."""

    def __init__(self, plan: RuntimePlan, hatchet: HatchetPlan | None = None) -> None:
        """`hatchet` is the engine that rings for schedules; None: they are fired without one."""
        take_over()
        configure(plan.worker.log)
        self._directory = NamedActor(DIRECTORY, plan.namespace)
        store, clock = KeeperClient(plan.namespace), SystemClock()
        firings = ScheduleFirer(
            store=store,
            wake=self._wake,
            cancel=self._cancel,
            definitions=RemoteDefinitions(plan.namespace, clock),
            clock=clock,
            catch_up=timedelta(seconds=plan.catch_up_seconds),
            late=LATE + (timedelta() if hatchet is None else timedelta(seconds=hatchet.pace.grace)),
        )
        self._engine, alarm_clock = _alarm_clock(_with_token(hatchet), plan.worker.log, firings, store, clock)
        self._ring = (self._engine or firings).ring
        heartbeats = HeartbeatScheduler(store, DefinitionFolder(Path(plan.agents_dir), plan.defaults), clock)
        expiry = ApprovalExpiry(store=store, wake=self._wake, clock=clock)
        family = Family(store=store, wake=self._wake, cancel=self._cancel, clock=clock)
        news = ScheduleUpdates(Keepers(plan.namespace), alarm_clock[0].changed, ids=RandomIds(), clock=clock)
        places = [NodeFolders(plan.worker.data_dir), ArtifactPlace(artifact_home(plan.worker, clock))]
        removal = TenantRemoval(store, places, self._cancel, clock)
        artifacts = ArtifactExpiry(artifact_home(plan.worker, clock), store, _kept(plan.artifact_days), clock)
        webhooks = WebhookExpiry(store, _kept(plan.webhook_days), clock)
        runs = RunExpiry(store, _kept(plan.run_days), clock)
        queues = QueueRecorder(store, WaitingCalls(plan.namespace).lengths, clock)
        self._working: list[AlarmClock | Periodic | WorkerSupervisor | CallbackDelivery | ScheduleUpdates | DueWork] = [
            *alarm_clock,
            news,
            Periodic("making heartbeats", heartbeats.tick, clock, _MINUTE),
            DueWork(
                store,
                clock,
                {
                    Upkeep.EXPIRED_APPROVALS: expiry.tick,
                    Upkeep.RELEASED_RUNS: family.sweep,
                    Upkeep.TENANT_DELETIONS: removal.tick,
                },
            ),
            Periodic("removing old artifacts", artifacts.tick, clock, _HOUR),
            Periodic("removing old webhooks", webhooks.tick, clock, _HOUR, retry=_MINUTE),
            Periodic("removing old runs", runs.tick, clock, _HOUR, retry=_MINUTE),
            Periodic("noting how long queues are", queues.tick, clock, NOTE_SECONDS),
        ]
        self._callbacks = None if plan.callbacks is None else _callbacks(plan, plan.callbacks, store, clock)
        if self._callbacks is not None:
            self._working.append(self._callbacks)
        self._active = False
        self._following = Periodic("following the lease", self._follow_lease, clock, RENEW_SECONDS)
        if cluster_name(plan.store_url):
            self._following.start()
        else:
            self._begin()

    async def _follow_lease(self) -> None:
        """Work while the Directory's cluster holds the lease of the store, and only then."""
        active = await self._directory.call.active()
        if active and not self._active:
            self._begin()
        elif self._active and not active:
            await self._rest()

    def _begin(self) -> None:
        self._active = True
        for each in self._working:
            each.start()

    async def _rest(self) -> None:
        for each in self._working:
            await each.stop()
        self._active = False

    async def ready(self) -> bool:
        """Return as soon as it runs."""
        return True

    async def ring(self, schedule_ids: Sequence[ScheduleId]) -> Sequence[Alarm]:
        """See ScheduleFirer.ring."""
        return await self._ring(schedule_ids)

    async def counts(self) -> SchedulerCounts:
        """Return what became of callbacks and alarms since this process began."""
        return SchedulerCounts(
            callbacks=None if self._callbacks is None else self._callbacks.counts,
            alarms=None if self._engine is None else self._engine.counts,
        )

    async def stop(self) -> None:
        """See AlarmClock.stop, Periodic.stop."""
        await self._following.stop()
        if self._active:
            await self._rest()

    async def _wake(self, agents: Sequence[AgentRef]) -> None:
        await self._directory.call.wake(agents)

    async def _cancel(self, agent: AgentRef, run_id: RunId) -> None:
        await self._directory.call.cancel(agent, run_id)


def _kept(days: float) -> timedelta | None:
    """Return for how long things are kept; None, where the settings say 0: for ever."""
    return timedelta(days=days) if days else None


def _with_token(hatchet: HatchetPlan | None) -> HatchetPlan | None:
    if hatchet is None:
        return None
    return structs.replace(hatchet, options=replace(hatchet.options, token=entrusted(Entrusted.HATCHET_TOKEN)))


def _alarm_clock(
    plan: HatchetPlan | None, log: LogPlan, schedule_firer: ScheduleFirer, store: QueryStore, clock: Clock
) -> tuple[EngineAlarmClock | None, tuple[AlarmClock, *tuple[WorkerSupervisor, ...]]]:
    """Return what an engine rings for schedules at, if there is one, and what has to be started."""
    if plan is None:
        return None, (Scheduler(schedule_firer=schedule_firer, store=store, clock=clock),)
    from owlclaw_ray.schedules.hatchet.alarms import HatchetAlarms
    from owlclaw_ray.schedules.hatchet.supervision import WorkerSupervisor

    engine = HatchetAlarms(plan.options)
    alarm_clock = EngineAlarmClock(
        schedule_firer=schedule_firer, store=store, engine=engine, clock=clock, pace=plan.pace
    )
    command = (sys.executable, "-P", "-m", "actors.hatchet_worker", log.level, log.format)
    worker = WorkerSupervisor(plan.options, alarm_clock.ring, clock, command=command, environment=shown())
    return alarm_clock, (alarm_clock, worker)


def _callbacks(
    plan: RuntimePlan, options: CallbackOptions, store: KeeperClient, clock: SystemClock
) -> CallbackDelivery | None:
    """Return what sends callbacks; nothing does on a node that lacks the key to sign them with: they wait in the store."""
    from owlclaw_ray.webhooks.callback_http import HttpCallbackSender

    for name in _VERBOSE_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        secrets = filled_keys(options.secrets, os.environ)  # noqa: TID251 - the secrets that the configuration names
    except ConfigurationError as error:
        logger.error("node %s sends no callbacks, they wait: %s", socket.gethostname(), error)  # noqa: TRY400 - a sentence
        return None
    weight = TenantTerms(store, clock).weight
    return CallbackDelivery(
        replace(options, secrets=secrets),
        store=store,
        sender=HttpCallbackSender(options.seconds, clock, weight=weight),
        clock=clock,
        ids=RandomIds(),
        rules=TenantCallbackRules(plan.defaults.callbacks or CallbackRules(), store),
        weight=weight,
        jitter=random.random,
    )
