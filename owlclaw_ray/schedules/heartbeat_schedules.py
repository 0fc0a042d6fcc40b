"""The schedules of heartbeats, for agents whose definitions have them (R7)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from owlclaw_ray.definitions.api import NamedDefinitions
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.heartbeat import Heartbeat
from owlclaw_ray.domain.schedule import OverlapPolicy, Schedule, ScheduleKind, ScheduleStatus
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runs.heartbeat import heartbeat_schedule_id
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import CreateSchedule, ResumeSchedule, ScheduleCreated
from owlclaw_ray.store.queries import AgentByRef, AgentsOfDefinition, PausedHeartbeats

_MAX_AGENTS = 100_000
_NO_LIMIT = 1_000_000
_BATCH = 500

logger = logging.getLogger(__name__)


class HeartbeatScheduler:
    """Creates a heartbeat schedule for each agent whose definition has heartbeats. Those of other agents end with their next beat.

    An agent that another agent started has none: it exists for its assignments, not for events.
    A cancelled schedule stays cancelled until the definition's interval changes.
    """

    def __init__(self, store: Store, definitions: NamedDefinitions, clock: Clock) -> None:
        self._store, self._definitions, self._clock = store, definitions, clock
        self._known: dict[AgentRef, Heartbeat] = {}

    async def tick(self) -> int:
        """Create missing schedules, and resume those that paused for lack of events if the inbox has some. Return how many agents
        got heartbeats.
        """
        wanted = await self._wanted()
        self._known = {agent: beat for agent, beat in self._known.items() if wanted.get(agent) == beat}
        missing = [(agent, heartbeat) for agent, heartbeat in wanted.items() if agent not in self._known]
        made = 0
        for at in range(0, len(missing), _BATCH):
            made += await self._make(missing[at : at + _BATCH])
        # Heartbeats that paused for lack of events resume when a webhook is in the inbox.
        for schedule in await self._store.read(PausedHeartbeats()):
            record = await self._store.read(AgentByRef(schedule.agent))
            pulse = None if record is None else record.state.pulse
            if pulse is not None and pulse.paused == schedule.schedule_id:
                await self._store.apply([ResumeSchedule(schedule.agent, schedule.schedule_id, self._clock.now())])
        return made

    async def _wanted(self) -> dict[AgentRef, Heartbeat]:
        """Return the heartbeats of all agents that have one.

        The agent without a key of a definition has them from the start where the definition is the tenant's own; every other agent from its
        first trigger on.
        """
        first = [AgentRef.parse(name) for name in await self._definitions.names()]
        for tenant, names in (await self._definitions.own()).items():
            first += [AgentRef.parse(name, tenant) for name in names]
        known: dict[str, Heartbeat | None] = {}
        beating = {agent.definition for agent in first if await self._heartbeat_of(agent, known) is not None}
        for name in sorted(beating):
            first += await self._store.read(AgentsOfDefinition(name, _MAX_AGENTS))
        found = [(agent, await self._heartbeat_of(agent, known)) for agent in first]
        return {agent: heartbeat for agent, heartbeat in found if heartbeat is not None}

    async def _heartbeat_of(self, agent: AgentRef, known: dict[str, Heartbeat | None]) -> Heartbeat | None:
        """Return the heartbeat that its definition gives the agent, each definition being asked once; None if it cannot be used."""
        name = agent.qualified_definition
        if name not in known:
            try:
                known[name] = (await self._definitions.get(name)).heartbeat
            except OwlClawError:
                known[name] = None
        return known[name]

    async def _make(self, missing: Sequence[tuple[AgentRef, Heartbeat]]) -> int:
        """Create a schedule for each agent, under the first number whose schedule is not done; return how many are active."""
        made, number = 0, 0
        while missing:
            now, over = self._clock.now(), []
            schedules = [_schedule(agent, heartbeat, number, now) for agent, heartbeat in missing]
            outcomes = await self._store.apply([CreateSchedule(each, _NO_LIMIT) for each in schedules])
            for (agent, heartbeat), outcome in zip(missing, outcomes, strict=True):
                match outcome:
                    case ScheduleCreated(Schedule(status=ScheduleStatus.DONE)):
                        over.append((agent, heartbeat))
                    case ScheduleCreated(schedule):
                        self._known[agent] = heartbeat
                        made += not schedule.status.final
                    case refused:
                        logger.error("%s has no heartbeats yet; creating them is retried: %s", agent, refused)
            missing, number = over, number + 1
        return made


def _schedule(agent: AgentRef, heartbeat: Heartbeat, number: int, now: datetime) -> Schedule:
    schedule = Schedule(
        heartbeat_schedule_id(agent, heartbeat, number),
        agent,
        ScheduleKind.HEARTBEAT,
        heartbeat.focus,
        now,
        now,
        interval_seconds=heartbeat.every_seconds,
        jitter_seconds=heartbeat.every_seconds,
        overlap=OverlapPolicy.SKIP,
    )
    return replace(schedule, next_fire_at=now + schedule.delay)
