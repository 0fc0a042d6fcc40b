"""The schedules that make heartbeats, for agents whose definitions want them (R7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.heartbeat import Heartbeat
from owlclaw_ray.domain.schedule import OverlapPolicy, Schedule, ScheduleKind
from owlclaw_ray.engine.facade import NamedDefinitions
from owlclaw_ray.engine.heartbeat import heartbeat_schedule_id
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.ports.clock import Clock
from owlclaw_ray.ports.store import CommandStore, CreateSchedule, RunStore, ScheduleCreated

_MOST_AGENTS = 100_000
_NO_LIMIT = 1_000_000
_BATCH = 500


class HeartbeatStore(CommandStore, RunStore, Protocol):
    """What Heartbeats needs of the store."""


class Heartbeats:
    """Sees to it that each agent whose definition has heartbeats has a schedule for them. Those of others end with their next beat."""

    def __init__(self, store: HeartbeatStore, definitions: NamedDefinitions, clock: Clock) -> None:
        self._store, self._definitions, self._clock = store, definitions, clock
        self._known: dict[AgentRef, Heartbeat] = {}

    async def tick(self) -> int:
        """Make the schedules that are missing; return their number."""
        wanted: dict[AgentRef, Heartbeat] = {}
        for name in self._definitions.names():
            heartbeat = await self._heartbeat(name)
            if heartbeat is not None:
                wanted |= dict.fromkeys(await self._agents(name), heartbeat)
        known = {agent: heartbeat for agent, heartbeat in self._known.items() if wanted.get(agent) == heartbeat}
        missing = [(agent, heartbeat) for agent, heartbeat in wanted.items() if agent not in known]
        number = 0
        while missing:
            for at in range(0, len(missing), _BATCH):
                known |= await self._create(missing[at : at + _BATCH], number)
            missing, number = [each for each in missing if each[0] not in known], number + 1
        made = sum(self._known.get(agent) != heartbeat for agent, heartbeat in known.items())
        self._known = known
        return made

    async def _create(self, missing: Sequence[tuple[AgentRef, Heartbeat]], number: int) -> dict[AgentRef, Heartbeat]:
        """Return those that have a schedule by now: its number may be that of one which is over."""
        now = self._clock.now()
        made = [_schedule(agent, heartbeat, number, now) for agent, heartbeat in missing]
        outcomes = await self._store.apply([CreateSchedule(each, _NO_LIMIT) for each in made])
        return {
            agent: heartbeat
            for (agent, heartbeat), outcome in zip(missing, outcomes, strict=True)
            if not isinstance(outcome, ScheduleCreated) or not outcome.schedule.status.final
        }

    async def _heartbeat(self, name: str) -> Heartbeat | None:
        try:
            return (await self._definitions.get(name)).heartbeat
        except OwlClawError:
            return None

    async def _agents(self, name: str) -> list[AgentRef]:
        keyed = await self._store.family(DEFAULT_TENANT, name, "", _MOST_AGENTS)
        return [AgentRef.parse(name), *(each.agent for each in keyed)]


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
