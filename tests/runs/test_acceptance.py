"""The acceptance scenarios of the built-in tools, each through whole runs of an agent that decides by what it sees."""

from datetime import UTC, datetime

import pytest

from owlclaw_ray import OwlClaw
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import ScheduleStatus
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.store.queries import LedgerFilter, RunFilter, ScheduleFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime

SCRIPT = """
from owlclaw_ray.models.scripted import ScriptedCall, ScriptedReply

OPENING = "check entry opportunities"
LESSON = "After sharp drop, rebound signals accurate within 2h"


def call(name, **arguments):
    return ScriptedReply(tool_calls=[ScriptedCall(name, arguments)])


def reply(request):
    asked = request.trigger.focus or request.trigger.payload
    seen = request.results
    match asked, len(seen):
        case "watch the market", 0:
            return call("schedule_once", delay_seconds=300, focus=OPENING)
        case "the rebound was real", 0:
            return call("remember", content=LESSON, tags=["trading", "lesson"])
        case "the market drops sharply", 0:
            return call("recall", query="rebound after a sharp drop of the market")
        case "the market drops sharply", 1:
            return ScriptedReply(text="I know: " + seen[0].content["memories"][0]["content"])
        case "periodic check", 0:
            return call("query_state", state_name="market_state")
        case "periodic check", 1 if not seen[0].content["state"]["is_trading_time"]:
            return call("log_decision", reasoning="Non-trading hours, skipping check", decision_type="no_action")
        case "periodic check", 1:
            return call("desk.enter", symbol="AAPL")
        case "things have changed", 0:
            return call("cancel_schedule", schedule_id=request.trigger.payload["schedule_id"])
    return ScriptedReply(text="done: " + str(asked))
"""


@pytest.fixture
def clock():
    return ManualClock(datetime(2026, 2, 10, 9, 30, tzinfo=UTC))


@pytest.fixture
def market():
    return {"is_trading_time": True}


@pytest.fixture
def entered():
    return []


@pytest.fixture
async def runtime(tmp_path, clock, market, entered):
    app = OwlClaw("desk")
    app.state("market_state")(lambda: market)

    @app.handler("enter")
    def enter(symbol: str) -> str:
        entered.append(symbol)
        return "entered"

    folder = tmp_path / "agents/trader"
    folder.mkdir(parents=True)
    (folder / "SOUL.md").write_text("You trade, and you are careful.")
    (folder / "IDENTITY.md").write_text("## My Capabilities\n- trading\n")
    (folder / "agent.yaml").write_text("model: scripted:script.py\npreload_memories: 0\n")
    (folder / "script.py").write_text(SCRIPT)
    folders = {"agents_dir": tmp_path / "agents", "data_dir": tmp_path / "data"}
    async with in_process_runtime(**folders, app=app, clock=clock) as runtime:
        yield runtime


async def fired(runtime):
    """The run that a schedule made, when it is over."""
    [run] = [
        each for each in await runtime.runs(RunFilter(DEFAULT_TENANT)) if each.trigger.kind is TriggerKind.SCHEDULE_ONCE
    ]
    while not (run := await runtime.run(DEFAULT_TENANT, run.run_id)).status.final:
        await runtime.watch(DEFAULT_TENANT, run.run_id, 99, 5)
    return run


async def test_an_agent_that_finds_nothing_looks_again_in_five_minutes_and_knows_what_for(runtime, clock):
    run = await runtime.trigger("trader", focus="watch the market")
    await clock.advance(299)
    early = await runtime.schedule_firer.fire_all_due()
    await clock.advance(1)
    due = await runtime.schedule_firer.fire_all_due()
    later = await fired(runtime)

    assert run.result.tools_called == ("schedule_once",)
    assert (early, due) == (0, 1)
    assert later.trigger.focus == "check entry opportunities"
    assert later.result.final_text == "done: check entry opportunities"


async def test_what_an_agent_learned_is_there_when_the_market_drops_again(runtime, tmp_path):
    await runtime.trigger("trader", "the rebound was real")
    run = await runtime.trigger("trader", "the market drops sharply")

    assert run.result.final_text == "I know: After sharp drop, rebound signals accurate within 2h"
    assert "rebound signals accurate" in (tmp_path / "data/agents/default/trader/MEMORY.md").read_text()
    [memory] = await runtime.memory.memories(run.agent)
    assert set(memory.tags) == {"trading", "lesson"}


async def test_outside_trading_hours_an_agent_says_why_it_does_nothing_and_does_nothing(runtime, market, entered):
    market["is_trading_time"] = False
    run = await runtime.trigger("trader", "periodic check")
    [decision] = await runtime.ledger(LedgerFilter(DEFAULT_TENANT, run_id=run.run_id, kind=LedgerKind.DECISION))

    assert run.result.tools_called == ("query_state", "log_decision")
    assert decision.record.data["reasoning"] == "Non-trading hours, skipping check"
    assert decision.record.data["decision_type"] == "no_action"
    assert entered == []

    market["is_trading_time"] = True
    await runtime.trigger("trader", "periodic check")
    assert entered == ["AAPL"]


async def test_a_schedule_that_is_not_needed_any_more_is_cancelled_and_never_fires(runtime, clock):
    run = await runtime.trigger("trader", focus="watch the market")
    [schedule] = await runtime.timetable.schedules(ScheduleFilter(run.agent.tenant, run.agent))
    cancelling = await runtime.trigger("trader", {"schedule_id": schedule.schedule_id}, focus="things have changed")
    await clock.advance(3_600)
    due = await runtime.schedule_firer.fire_all_due()
    [after] = await runtime.timetable.schedules(ScheduleFilter(run.agent.tenant, run.agent))

    assert cancelling.status is RunStatus.COMPLETED
    assert after.status is ScheduleStatus.CANCELLED
    assert due == 0
    assert len(await runtime.runs(RunFilter(DEFAULT_TENANT))) == 2
