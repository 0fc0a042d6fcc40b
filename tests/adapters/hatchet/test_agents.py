"""Nothing that agents and people ask of schedules waits for the engine, whatever it does: no time passes here at all."""

import asyncio
import json
import re
from datetime import timedelta
from itertools import count

import pytest

from owlclaw_ray.adapters.hatchet.alarms import HatchetAlarms
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.schedule import ScheduleRequest
from owlclaw_ray.engine.alarm_sync import EngineAlarmClock
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.adapters.hatchet.world import Counting, options_for
from tests.engine.conftest import Agents, Model, asks, says
from tests.hatchet_engine.rest_side import Silence

WATCH = AgentRef.parse("watch")


def schedules_twice_and_cancels_once():
    """Return what decides for a model that does so."""
    turns = count()

    def decide(request):
        match next(turns):
            case 0:
                return asks(
                    ("schedule_once", json.dumps({"delay_seconds": 300, "focus": "look"})),
                    ("schedule_cron", json.dumps({"cron_expression": "*/5 * * * *", "focus": "look"})),
                )
            case 1:
                (schedule_id, *_) = re.findall(r"sch_\w+", str(request.messages))
                return asks(("cancel_schedule", json.dumps({"schedule_id": schedule_id})))
            case _:
                return says("done")

    return decide


@pytest.fixture(params=["well", "hanging", "dead"])
def alarms(request, engine):
    """The engine's alarms, as far as one gets."""
    if request.param == "hanging":
        engine.rest.fault = Silence()
    alarms = HatchetAlarms(options_for(engine), times=(1.0, 60.0))
    if request.param == "dead":
        engine.go_down()
    yield Counting(alarms)
    engine.go_down()
    alarms.close()


async def test_neither_agents_nor_people_wait_for_the_engine(alarms, clock, tmp_path):
    agents = Agents(tmp_path / "agents")
    agents.define()
    async with in_process_runtime(
        agents_dir=agents.folder,
        data_dir=tmp_path / "data",
        models=[Model(schedules_twice_and_cancels_once())],
        clock=clock,
    ) as runtime:
        alarm_clock = EngineAlarmClock(bell=runtime.bell, store=runtime.store, engine=alarms, clock=clock)
        alarm_clock.start()
        while not alarms.calls:
            await asyncio.sleep(0)

        run = await runtime.trigger("watch")
        timetable = runtime.timetable
        made = await timetable.create(WATCH, ScheduleRequest("look", interval_seconds=60))
        for change in (timetable.pause, timetable.resume, timetable.cancel):
            await change(DEFAULT_TENANT, made.schedule_id)
        other = await timetable.create(WATCH, ScheduleRequest("look", interval_seconds=60))
        now = clock.now()
        await timetable.backfill(DEFAULT_TENANT, other.schedule_id, now - timedelta(hours=1), now)
        await runtime.ring(DEFAULT_TENANT, other.schedule_id)
        await alarm_clock.stop()

    assert set(run.result.tools_called) == {"schedule_once", "schedule_cron", "cancel_schedule"}
    assert run.result.error is None
    assert clock.monotonic() == 0
    assert alarms.calls == 1
