"""Nothing that agents and people ask of schedules waits for the engine, whatever it does: by the clock in tools and over HTTP.

While the engine is held still in the middle of a call, everything is answered; the call is let go only after that. So no time is measured:
what waited for the engine would never come back.
"""

import asyncio
import json
import re
from datetime import timedelta
from itertools import count

import httpx
import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.schedule import ScheduleRequest
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.schedules.alarm_sync import EngineAlarmClock
from owlclaw_ray.schedules.hatchet.alarms import HatchetAlarms
from owlclaw_ray.testing.in_process import in_process_runtime
from serve.api import build_api
from tests.hatchet_engine.rest_side import Silence
from tests.schedules.hatchet.world import Counting, options_for
from tests.worlds import Agents, Model, asks, says

WATCH = AgentRef.parse("watch")
SECONDS = 120.0
"""For how long an engine that does not answer is waited for here: longer than anything else."""


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
def state(request):
    """How the engine fares."""
    return request.param


@pytest.fixture
def alarms(state, engine):
    """The engine's alarms, as far as one gets."""
    if state == "hanging":
        engine.rest.fault = Silence()
    alarms = HatchetAlarms(options_for(engine), times=(SECONDS, SECONDS))
    if state == "dead":
        engine.go_down()
    yield Counting(alarms)
    engine.go_down()
    alarms.close()


async def through_tools(runtime):
    """An agent makes two schedules and cancels one."""
    run = await runtime.trigger("watch")
    assert set(run.result.tools_called) == {"schedule_once", "schedule_cron", "cancel_schedule"}
    assert run.result.error is None


async def over_http(runtime):
    """A program makes a schedule, pauses it, has it go on, rings for it, makes up for the past and cancels it."""
    api = build_api(runtime, clock=SystemClock(), body_limit_bytes=10_000)
    transport = httpx.ASGITransport(api)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        body = {"focus": "look", "interval_seconds": 60}
        made = await http.post("/v1/agents/watch/schedules", json=body)
        path = f"/v1/schedules/{made.json()['schedule_id']}"
        answers = [await http.post(f"{path}/{verb}") for verb in ("pause", "resume", "ring", "cancel")]
    assert [each.status_code for each in (made, *answers)] == [201, 200, 200, 200, 200]


async def in_this_process(runtime):
    """As over HTTP."""
    timetable, now = runtime.timetable, SystemClock().now()
    made = await timetable.create(WATCH, ScheduleRequest("look", interval_seconds=60))
    await timetable.backfill(DEFAULT_TENANT, made.schedule_id, now - timedelta(hours=1), now)
    for change in (timetable.pause, timetable.resume, timetable.cancel):
        await change(DEFAULT_TENANT, made.schedule_id)


@pytest.mark.parametrize("ask", [through_tools, over_http, in_this_process])
async def test_neither_agents_nor_people_wait_for_the_engine(alarms, state, ask, tmp_path):
    agents, clock = Agents(tmp_path / "agents"), SystemClock()
    agents.define()
    async with in_process_runtime(
        agents_dir=agents.folder,
        data_dir=tmp_path / "data",
        models=[Model(schedules_twice_and_cancels_once())],
        clock=clock,
    ) as runtime:
        alarm_clock = EngineAlarmClock(
            schedule_firer=runtime.schedule_firer, store=runtime.store, engine=alarms, clock=clock
        )
        followers = runtime.store._heard

        def heard(run_ids, schedule_ids):
            changed = list(schedule_ids)
            followers(run_ids, changed)
            alarm_clock.changed(changed)

        runtime.store.tell(heard)
        alarm_clock.start()
        while not alarms.calls:
            await asyncio.sleep(0.001)
        await ask(runtime)
        held = alarms.under_way
        await alarm_clock.stop()

    if state == "hanging":
        assert (alarms.calls, held) == (1, 1)
