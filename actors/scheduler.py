"""The Scheduler's actor: fires due schedules, makes those of heartbeats, sets runs going that wait for what is over, and ends
approvals that nobody decided and artifacts that are too old.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from actors.agent import RemoteDefinitions
from actors.keeper_client import KeeperClient
from actors.logs import configure
from actors.plan import RuntimePlan
from actors.remote import DIRECTORY, Named
from owlclaw_ray.adapters.artifact_folder import ArtifactFolder
from owlclaw_ray.adapters.system_clock import SystemClock
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.engine.approval_expiry import ApprovalExpiry
from owlclaw_ray.engine.artifact_expiry import ArtifactExpiry
from owlclaw_ray.engine.family import Family
from owlclaw_ray.engine.firing import Firings
from owlclaw_ray.engine.heartbeat_schedules import Heartbeats
from owlclaw_ray.engine.periodic import Periodic
from owlclaw_ray.engine.scheduler import Scheduler
from owlclaw_ray.identity.folder import DefinitionFolder
from owlclaw_ray.ids import RunId
from owlclaw_ray.ports.schedules import AlarmClock

_LOOK_EVERY = 5.0
_MINUTE = 60.0
_HOUR = 3_600.0


class SchedulerActor:
    """Starts itself, the first time and after every restart."""

    def __init__(self, plan: RuntimePlan) -> None:
        from owlclaw_ray.tools.cron import next_fire

        configure(plan.worker.log)
        self._directory = Named(DIRECTORY, plan.namespace)
        store, clock = KeeperClient(plan.namespace), SystemClock()
        firings = Firings(
            store=store,
            wake=self._wake,
            cancel=self._cancel,
            next_fire=next_fire,
            definitions=RemoteDefinitions(plan.namespace, clock),
            clock=clock,
            catch_up=timedelta(seconds=plan.catch_up_seconds),
        )
        scheduler: AlarmClock = Scheduler(bell=firings, store=store, clock=clock)
        heartbeats = Heartbeats(store, DefinitionFolder(Path(plan.agents_dir), plan.defaults), clock)
        expiry = ApprovalExpiry(store=store, wake=self._wake, clock=clock)
        family = Family(store=store, wake=self._wake, cancel=self._cancel, clock=clock)
        self._working: list[AlarmClock | Periodic] = [
            scheduler,
            Periodic("making heartbeats", heartbeats.tick, clock, _MINUTE),
            Periodic("ending approvals that are over", expiry.tick, clock, _LOOK_EVERY),
            Periodic("looking at runs that wait for others", family.sweep, clock, _LOOK_EVERY),
        ]
        if plan.artifact_days:
            artifacts = ArtifactExpiry(ArtifactFolder(plan.data_dir), timedelta(days=plan.artifact_days), clock)
            self._working.append(Periodic("removing old artifacts", artifacts.tick, clock, _HOUR))
        for each in self._working:
            each.start()

    async def ready(self) -> bool:
        """Return as soon as it runs."""
        return True

    async def stop(self) -> None:
        """See AlarmClock.stop, Periodic.stop."""
        for each in self._working:
            await each.stop()

    async def _wake(self, agents: Sequence[AgentRef]) -> None:
        await self._directory.ask("wake", agents)

    async def _cancel(self, agent: AgentRef, run_id: RunId) -> None:
        await self._directory.ask("cancel", agent, run_id)
