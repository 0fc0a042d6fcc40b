"""The alarm clock over the double, in steps of a second: between two of them the engine rings, and all calls under way end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from hatchet_sdk.contracts.v1 import workflows_pb2 as workflow_wire

from owlclaw_ray.errors import RuntimeUnavailableError, UnknownAgentError
from owlclaw_ray.schedules.alarm_sync import EngineAlarmClock
from owlclaw_ray.schedules.api import SyncPace
from owlclaw_ray.schedules.firings import ScheduleFirer
from owlclaw_ray.schedules.hatchet.alarms import HatchetAlarms
from owlclaw_ray.schedules.hatchet.options import RING, HatchetOptions, Tls
from owlclaw_ray.store.queries import RunFilter
from owlclaw_ray.store.sql.sql_store import SqlStore
from owlclaw_ray.testing.clock import ManualClock
from tests.contracts.alarm_clock_contract import AGENT
from tests.hatchet_engine.engine import TENANT, HatchetEngine
from tests.world import InlineDatabase

_SETTLING_TURNS = 10
START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def options_for(engine: HatchetEngine, **changes) -> HatchetOptions:
    ours = {
        "token": engine.token,
        "tenant_id": TENANT,
        "api_url": engine.api_url,
        "grpc_address": engine.grpc_address,
        "tls": Tls("none"),
        "namespace": "",
    }
    return HatchetOptions(**{**ours, **changes})


def know_workflow(engine: HatchetEngine, name: str = RING) -> None:
    """Register the workflow as its worker does."""
    task = workflow_wire.CreateTaskOpts(readable_id=name, action=f"{name}:{name}", retries=3)
    engine.records.put_workflow(workflow_wire.CreateWorkflowVersionRequest(name=name, tasks=[task]))


class Counting:
    """An AlarmEngine that knows how many calls are under way, and how many there were."""

    def __init__(self, engine):
        self._engine, self.under_way, self.calls = engine, 0, 0

    def __getattr__(self, name):
        method = getattr(self._engine, name)

        async def counted(*arguments):
            self.under_way, self.calls = self.under_way + 1, self.calls + 1
            try:
                return await method(*arguments)
            finally:
                self.under_way -= 1

        return counted


class SteppedClock(ManualClock):
    """Moves step by step, and has something done after each."""

    def __init__(self):
        super().__init__(START)
        self.between, self.step = None, 1.0

    async def advance(self, seconds):
        while seconds > 0:
            step = min(self.step, seconds)
            await super().advance(step)
            seconds -= step
            if self.between is not None:
                await self.between()


class World:
    """Store, clock, engine and alarm clock. `working` says whether there is a worker, which rings in the engine's stead."""

    def __init__(self, engine: HatchetEngine, clock: SteppedClock, pace: SyncPace | None = None):
        self.engine, self.clock = engine, clock
        self.store = SqlStore(InlineDatabase(), "one")
        self.alarms = HatchetAlarms(options_for(engine), times=(10.0, 60.0))
        self.counting = Counting(self.alarms)
        self.working, self.rung = True, []
        self.alarm_clock = EngineAlarmClock(
            schedule_firer=firings_over(self.store, clock),
            store=self.store,
            engine=self.counting,
            clock=clock,
            pace=pace,
        )
        self.store.tell(lambda _, schedule_ids: self.alarm_clock.changed(list(schedule_ids)))
        clock.between = self.settle

    async def settle(self):
        await self.calm()
        self.engine.records.ring()
        while self.working and self.engine.records.queue:
            schedule_id = self.engine.records.queue[0].run.input["schedule_id"]
            try:
                await self.alarm_clock.ring([schedule_id])
            except RuntimeUnavailableError:
                break
            self.engine.records.queue.popleft()
            self.rung.append(schedule_id)
        await self.calm()

    async def calm(self):
        """Return when no call is under way and none follows."""
        quiet = 0
        while quiet < _SETTLING_TURNS:
            busy = self.counting.under_way
            quiet = 0 if busy else quiet + 1
            await asyncio.sleep(0.001 if busy else 0)


def firings_over(store, clock):
    return ScheduleFirer(store=store, wake=_nothing, cancel=_nothing, definitions=_NoDefinitions(), clock=clock)


async def all_runs(store):
    return await store.read(RunFilter(AGENT.tenant, AGENT, limit=1_000))


class _NoDefinitions:
    async def get(self, name):
        raise UnknownAgentError(name)


async def _nothing(*_):
    pass
