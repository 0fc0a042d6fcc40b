"""What a killed host leaves behind, and what the next one makes of it."""

from __future__ import annotations

import asyncio

import pytest

from owlclaw_ray import OwlClaw, ToolContext
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.model import ModelReply
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT, ActivationId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.store.commands import ActivateAgent
from owlclaw_ray.store.queries import JournalOfRun, LedgerBreaks, LedgerFilter
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.worlds import Model, asks, says

WATCH = AgentRef.parse("watch")


class Effects:
    """An application whose handlers leave traces."""

    def __init__(self):
        self.app = OwlClaw("app")
        self.done: list[tuple[str, str]] = []
        self.hold = asyncio.Event()

        @self.app.handler("act")
        def act(what: str, context: ToolContext) -> str:
            self.done.append((context.call_id, what))
            return what

        @self.app.tool("look")
        def look(context: ToolContext) -> str:
            self.done.append((context.call_id, "look"))
            return "seen"


def three_turns(request):
    turn = sum(bool(message.tool_calls) for message in request.messages)
    match turn:
        case 0:
            return asks(("app__look", "{}"), ("app__act", '{"what":"first"}'), ids=("look", "first"))
        case 1:
            return asks(
                ("app__act", '{"what":"second"}'), ("log_decision", '{"reasoning":"because"}'), ids=("second", "log")
            )
        case _:
            return says("done")


async def follow(runtime, accepted, seq):
    """Return when the run's journal has reached that entry."""
    seen = 0
    while seen < seq:
        watched = await runtime.watch(DEFAULT_TENANT, accepted.run_id, seen, 20)
        seen = max([seen, *(entry.seq for entry in watched.entries)])
        if watched.status.final:
            return


@pytest.mark.parametrize("crash_after", [2, 5, 9])
async def test_a_run_that_is_interrupted_after_any_fact_ends_and_repeats_no_once_call(agents, tmp_path, crash_after):
    agents.define()
    effects = Effects()

    async def decide(request):
        await asyncio.sleep(0.06)
        return three_turns(request)

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", app=effects.app, models=[Model(decide)]
    ) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        await follow(runtime, accepted, crash_after)
        await runtime.crash_hosts()
        run = await runtime.outcome(accepted)
        entries = await runtime.store.read(JournalOfRun(DEFAULT_TENANT, accepted.run_id))
        breaks = await runtime.store.read(LedgerBreaks(DEFAULT_TENANT))

    once = [call for call, what in effects.done if what != "look"]
    finished = [entry.data["call_id"] for entry in entries if entry.kind is EntryKind.TOOL_FINISHED]
    assert run.status is RunStatus.COMPLETED
    assert len(once) == len(set(once))
    assert sorted(finished) == ["first", "log", "look", "second"]
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert not breaks


async def test_the_model_is_told_that_an_interrupted_once_call_is_uncertain(agents, tmp_path):
    agents.define()
    app = OwlClaw("app")
    began = asyncio.Event()
    calls = []

    @app.handler("slow")
    async def slow():
        calls.append(1)
        loop.call_soon_threadsafe(began.set)
        await asyncio.sleep(0.3)

    loop = asyncio.get_running_loop()
    model = Model(lambda request: says("checked") if len(request.messages) > 1 else asks(("app__slow", "{}")))
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", app=app, models=[model]
    ) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        await began.wait()
        await runtime.crash_hosts()
        run = await runtime.outcome(accepted)
        records = await runtime.ledger(LedgerFilter(DEFAULT_TENANT, run_id=run.run_id))

    assert run.status is RunStatus.COMPLETED
    assert calls == [1]
    assert '"uncertain"' in model.requests[-1].messages[-1].content
    errors = [each.record.data["error"]["type"] for each in records if each.record.data.get("error")]
    assert errors == ["uncertain"]


async def test_an_activation_that_lost_its_agent_stops_and_writes_nothing_more(agents, tmp_path):
    agents.define()
    gate = asyncio.Event()

    async def decide(request):
        await gate.wait()
        return says("too late")

    model = Model(decide)
    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model]) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        await model.asked.wait()
        now = SystemClock().now()
        await runtime.store.apply([ActivateAgent(WATCH, ActivationId("act_of_somebody_else"), now)])
        gate.set()
        while any(status.agents for status in [await host.status(0) for host in runtime.pool.hosts.values()]):
            await asyncio.sleep(0)
        run = await runtime.run(DEFAULT_TENANT, accepted.run_id)

    assert run.status is RunStatus.RUNNING


async def test_what_a_model_writes_that_no_store_can_hold_does_not_stop_the_agent(agents, tmp_path):
    agents.define()
    replies = iter(
        [
            ModelReply("half \ud83d a character", asks(("log_decision", '{"reasoning":"\ud83d"}')).tool_calls, "m"),
            says("ok"),
        ]
    )

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[Model(lambda _: next(replies))]
    ) as runtime:
        run = await runtime.trigger("watch")

    assert run.status is RunStatus.COMPLETED


async def test_a_runtime_that_starts_again_continues_what_the_last_one_left(agents, tmp_path):
    agents.define()
    model = Model(lambda request: asyncio.Event().wait())
    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model]) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        await model.asked.wait()
        await runtime.crash_hosts()

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[Model(lambda _: says("continued"))]
    ) as runtime:
        run = await runtime.outcome(accepted)

    assert run.result.final_text == "continued"


async def test_agents_without_work_are_passivated_and_come_back_with_their_state(agents, tmp_path):
    agents.define()
    model = Model(lambda request: says(f"handled {request.trigger.payload}"))
    placement = Placement(warm=1, idle=0.0)
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model], placement=placement
    ) as runtime:
        await runtime.trigger("watch", "one")
        while any(runtime.directory.hosts().values()):
            await runtime.directory.heartbeat()
            await asyncio.sleep(0)
        await runtime.trigger("watch", "two")

    assert "handled one" in model.requests[1].messages[0].content


async def test_with_more_dedicated_agents_than_hosts_the_idle_make_room(agents, tmp_path):
    agents.define()
    model = Model(lambda _: says("ok"))
    placement = Placement(warm=0, most=2, heartbeat=0.02)
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model], placement=placement
    ) as runtime:
        async with asyncio.timeout(20):
            runs = [await runtime.trigger(f"watch:{number}") for number in range(6)]
        hosts = len(runtime.pool.hosts)

    assert {run.status for run in runs} == {RunStatus.COMPLETED}
    assert hosts <= 2


async def test_hosts_that_nobody_needs_are_ended(agents, tmp_path):
    agents.define()
    placement = Placement(warm=0, idle=0.0, sweep=0.01)
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[Model(lambda _: says("ok"))], placement=placement
    ) as runtime:
        await asyncio.gather(*(runtime.trigger(f"watch:{number}") for number in range(5)))
        async with asyncio.timeout(20):
            while runtime.pool.hosts:
                await runtime.directory.sweep()
                await runtime.directory.heartbeat()
                await asyncio.sleep(0)
