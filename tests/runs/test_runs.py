"""Runs from trigger to outcome, on the whole engine in one process."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from itertools import pairwise

import pytest

from owlclaw_ray import OwlClaw
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.model import MessageRole
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import (
    DefinitionError,
    IdempotencyConflictError,
    ModelRefusedError,
    ModelUnavailableError,
    NotFoundError,
    UnknownAgentError,
)
from owlclaw_ray.ids import DEFAULT_TENANT, RunId
from owlclaw_ray.store.queries import JournalOfRun, LedgerBreaks, LedgerFilter, RunFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.worlds import Model, asks, calls, says

WATCH = AgentRef.parse("watch")


def api(payload=None, focus=""):
    return Trigger(TriggerKind.API, payload, focus)


async def journal(runtime, run):
    return await runtime.store.read(JournalOfRun(run.agent.tenant, run.run_id))


async def test_a_run_asks_the_model_calls_tools_and_ends_with_the_models_text(agents, tmp_path):
    agents.script(calls(("log_decision", {"reasoning": "because"})), {"text": "done"})

    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data") as runtime:
        run = await runtime.trigger("watch", {"price": 7})
        kinds = [entry.kind for entry in await journal(runtime, run)]

    assert run.status is RunStatus.COMPLETED
    assert run.result.final_text == "done"
    assert run.result.tools_called == ("log_decision",)
    assert (run.result.turns, run.result.tool_calls) == (2, 1)
    assert run.result.scripted
    assert kinds == [
        EntryKind.RUN_QUEUED,
        EntryKind.RUN_STARTED,
        EntryKind.PROMPT_BUILT,
        EntryKind.MODEL_REPLIED,
        EntryKind.TOOL_FINISHED,
        EntryKind.MODEL_REPLIED,
        EntryKind.RUN_FINISHED,
    ]


async def test_every_model_call_tool_call_decision_and_visibility_decision_is_in_the_ledger(agents, tmp_path):
    agents.script(calls(("log_decision", {"reasoning": "because", "decision_type": "no_action"})), {"text": "done"})

    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data") as runtime:
        run = await runtime.trigger("watch")
        records = await runtime.ledger(LedgerFilter(DEFAULT_TENANT, run_id=run.run_id))
        breaks = await runtime.store.read(LedgerBreaks(DEFAULT_TENANT))

    kinds = [each.record.kind for each in records]
    assert sorted(kind.value for kind in kinds) == sorted(
        ["visibility", "model_call", "tool_call", "decision", "model_call", "run"]
    )
    decision = next(each.record for each in records if each.record.kind is LedgerKind.DECISION)
    assert decision.data["reasoning"] == "because"
    assert not breaks


async def test_tool_results_reach_the_model_paired_by_id_in_its_own_order(agents, tmp_path):
    """tool-registry: the loop waits for all calls of a turn before it asks the model again."""
    agents.define()
    replies = iter(
        [asks(("query_state", '{"state_name":"slow"}'), ("query_state", '{"state_name":"quick"}')), says("ok")]
    )
    model = Model(lambda _: next(replies))
    app = OwlClaw("app")

    @app.state("slow")
    async def slow():
        await asyncio.sleep(0.02)
        return "slow one"

    @app.state("quick")
    def quick():
        return "quick one"

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", app=app, models=[model]
    ) as runtime:
        await runtime.trigger("watch")

    results = [message for message in model.requests[1].messages if message.role is MessageRole.TOOL]
    assert [message.call_id for message in results] == ["c0", "c1"]
    assert "slow one" in results[0].content
    assert "quick one" in results[1].content


async def test_the_prompt_prefix_is_byte_identical_over_turns_and_runs(agents, tmp_path):
    agents.define()
    replies = iter([asks(("log_decision", '{"reasoning":"a"}')), says("ok"), says("again")])
    model = Model(lambda _: next(replies))

    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model]) as runtime:
        await runtime.trigger("watch", {"n": 1})
        await runtime.trigger("watch", {"n": 2})

    first, second, third = model.requests
    assert first.system == second.system == third.system
    assert first.tools == second.tools == third.tools
    assert second.messages[: len(first.messages)] == first.messages


async def test_a_changed_soul_is_used_by_the_next_run_and_not_by_the_running_one(agents, tmp_path):
    folder = agents.define()
    changed = asyncio.Event()
    turns = 0

    async def decide(request):
        nonlocal turns
        turns += 1
        if turns == 1:
            (folder / "SOUL.md").write_text("You are bold.")
            changed.set()
            return asks(("log_decision", '{"reasoning":"a"}'))
        return says("ok")

    model = Model(decide)
    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model]) as runtime:
        await runtime.trigger("watch")
        await runtime.trigger("watch")

    assert "calm" in model.requests[1].system
    assert "bold" in model.requests[2].system


async def test_fifty_triggers_of_one_agent_run_one_at_a_time_in_order(agents, tmp_path):
    agents.define()
    running = most = 0

    async def decide(request):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return says(str(request.trigger.payload))

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[Model(decide)]
    ) as runtime:
        accepted = await asyncio.gather(*(runtime.submit(WATCH, api(number)) for number in range(50)))
        runs = await asyncio.gather(*(runtime.outcome(each) for each in accepted))

    assert most == 1
    assert [run.result.final_text for run in runs] == [str(number) for number in range(50)]
    in_order = sorted(runs, key=lambda run: run.seq)
    assert all(a.finished_at <= b.started_at for a, b in pairwise(in_order))


async def test_different_agents_run_in_parallel(agents, tmp_path):
    agents.define()
    together = asyncio.Barrier(20)

    async def decide(request):
        await together.wait()
        return says("met the others")

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[Model(decide)]
    ) as runtime:
        runs = await asyncio.gather(*(runtime.trigger(f"watch:{number}") for number in range(20)))

    assert {run.status for run in runs} == {RunStatus.COMPLETED}


async def test_the_same_idempotency_key_gives_one_run_and_another_body_a_conflict(agents, tmp_path):
    agents.define()

    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data") as runtime:
        first = await runtime.submit(WATCH, api(1), idempotency_key="k", body_hash="one")
        again = await runtime.submit(WATCH, api(1), idempotency_key="k", body_hash="one")
        with pytest.raises(IdempotencyConflictError):
            await runtime.submit(WATCH, api(2), idempotency_key="k", body_hash="two")
        runs = await runtime.runs(RunFilter(DEFAULT_TENANT))

    assert again.run_id == first.run_id
    assert again.duplicate
    assert len(runs) == 1


async def test_the_fifty_first_tool_call_ends_the_run_as_terminated(agents, tmp_path):
    agents.script(calls(*[("log_decision", {"reasoning": str(number)}) for number in range(51)]), {"text": "never"})

    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data") as runtime:
        run = await runtime.trigger("watch")
        finished = [entry for entry in await journal(runtime, run) if entry.kind is EntryKind.TOOL_FINISHED]

    assert run.status is RunStatus.TERMINATED
    assert run.result.tool_calls == 50
    assert "50 tool calls" in run.result.error.message
    assert len(finished) == 51
    assert finished[-1].data["error"]["type"] == "not_executed"


async def test_too_many_turns_end_the_run_as_terminated(agents, tmp_path):
    agents.define(limits={"turns": 3})
    model = Model(lambda _: asks(("log_decision", '{"reasoning":"again"}')))

    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model]) as runtime:
        run = await runtime.trigger("watch")

    assert run.status is RunStatus.TERMINATED
    assert run.result.turns == 3


async def test_call_ids_that_a_model_uses_again_do_not_confuse_its_calls(agents, tmp_path):
    """tool-registry: a tool_call_id comes from the provider or is made by the core."""
    agents.define()
    replies = iter(
        [
            asks(("log_decision", '{"reasoning":"one"}'), ("log_decision", '{"reasoning":"two"}'), ids=("x", "x")),
            asks(("log_decision", '{"reasoning":"three"}'), ids=("x",)),
            says("ok"),
        ]
    )

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[Model(lambda _: next(replies))]
    ) as runtime:
        run = await runtime.trigger("watch")
        records = await runtime.ledger(LedgerFilter(DEFAULT_TENANT, kind=LedgerKind.DECISION))

    assert run.result.tool_calls == 3
    assert sorted(each.record.data["reasoning"] for each in records) == ["one", "three", "two"]


@pytest.mark.parametrize(
    ("name", "arguments", "type_"),
    [
        ("no_such_tool", "{}", "tool_not_available"),
        ("log_decision", "{}", "invalid_arguments"),
        ("log_decision", '{"reasoning": ', "invalid_arguments"),
        ("app__raises", "{}", "execution_failed"),
        ("query_state", '{"state_name":"unheard_of"}', None),
    ],
)
async def test_a_failing_call_is_information_for_the_model_not_the_end(agents, tmp_path, name, arguments, type_):
    """tool-registry: a failing call is a result with is_error, and the model deals with it in its next turn."""
    agents.define()
    app = OwlClaw("app")

    @app.handler("raises")
    def raises():
        raise ValueError("the printer is on fire")

    replies = iter([asks((name, arguments)), says("I see")])
    model = Model(lambda _: next(replies))
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", app=app, models=[model]
    ) as runtime:
        run = await runtime.trigger("watch")

    told = json.loads(model.requests[1].messages[-1].content)["error"]
    assert run.status is RunStatus.COMPLETED
    assert type_ is None or told["type"] == type_
    assert "Traceback" not in told["message"]


async def test_after_a_failed_write_the_rest_of_the_turn_is_not_executed(agents, tmp_path):
    agents.define()
    app = OwlClaw("app")
    written = []

    @app.handler("fails")
    def fails():
        raise ValueError("no")

    @app.handler("writes")
    def writes():
        written.append(1)

    replies = iter([asks(("app__fails", "{}"), ("app__writes", "{}")), says("ok")])
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", app=app, models=[Model(lambda _: next(replies))]
    ) as runtime:
        run = await runtime.trigger("watch")
        finished = [entry for entry in await journal(runtime, run) if entry.kind is EntryKind.TOOL_FINISHED]

    assert written == []
    assert [entry.data["error"]["type"] for entry in finished] == ["execution_failed", "not_executed"]


async def test_when_no_model_answers_the_run_fails_and_says_which_were_tried(agents, tmp_path):
    agents.define(model="first", fallback=["second"])

    def refuse(request):
        raise ModelRefusedError("bad key")

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[Model(refuse)]
    ) as runtime:
        run = await runtime.trigger("watch")

    assert run.status is RunStatus.FAILED
    assert "first" in run.result.error.message
    assert "second" in run.result.error.message


async def test_an_outage_of_the_provider_is_retried(agents, tmp_path):
    agents.define(model="first")
    clock = ManualClock()
    failures = iter([ModelUnavailableError("503"), None])

    def decide(request):
        failure = next(failures)
        if failure:
            raise failure
        return says("back again")

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[Model(decide)], clock=clock
    ) as runtime:
        accepted = await runtime.submit(WATCH, api())
        outcome = asyncio.create_task(runtime.outcome(accepted))
        while not outcome.done():
            await clock.advance(1)
            await asyncio.sleep(0)
        run = await outcome

    assert run.status is RunStatus.COMPLETED
    assert run.result.final_text == "back again"


async def test_a_run_over_its_time_limit_ends_as_timeout(agents, tmp_path):
    agents.define(limits={"run_timeout": 5, "model_timeout": 60})
    clock = ManualClock()
    model = Model(lambda _: asyncio.Event().wait())

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model], clock=clock
    ) as runtime:
        accepted = await runtime.submit(WATCH, api())
        await model.asked.wait()
        outcome = asyncio.create_task(runtime.outcome(accepted))
        await clock.advance(6)
        run = await outcome

    assert run.status is RunStatus.TIMEOUT
    assert "5 s" in run.result.error.message


async def test_cancelling_a_running_run_stops_its_model_call(agents, tmp_path):
    agents.define()
    stopped = asyncio.Event()

    async def decide(request):
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    model = Model(decide)
    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model]) as runtime:
        accepted = await runtime.submit(WATCH, api())
        await model.asked.wait()
        await runtime.cancel(DEFAULT_TENANT, accepted.run_id)
        run = await runtime.outcome(accepted)

    assert stopped.is_set()
    assert run.status is RunStatus.CANCELLED


async def test_cancelling_a_queued_run_ends_it_before_it_begins(agents, tmp_path):
    agents.define()
    gate = asyncio.Event()

    async def decide(request):
        await gate.wait()
        return says("ok")

    model = Model(decide)
    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model]) as runtime:
        first = await runtime.submit(WATCH, api(1))
        second = await runtime.submit(WATCH, api(2))
        await model.asked.wait()
        cancelled = await runtime.cancel(DEFAULT_TENANT, second.run_id)
        gate.set()
        finished = await runtime.outcome(first)

    assert cancelled.status is RunStatus.CANCELLED
    assert finished.status is RunStatus.COMPLETED
    assert len(model.requests) == 1


async def test_what_does_not_exist_is_refused_and_nothing_is_committed(agents, tmp_path):
    agents.define()
    (agents.folder / "broken").mkdir()

    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data") as runtime:
        with pytest.raises(UnknownAgentError, match="watch"):
            await runtime.submit(AgentRef.parse("nobody"), api())
        with pytest.raises(DefinitionError, match=r"SOUL\.md"):
            await runtime.submit(AgentRef.parse("broken"), api())
        with pytest.raises(NotFoundError):
            await runtime.run(DEFAULT_TENANT, RunId("run_none"))
        assert not await runtime.runs(RunFilter(DEFAULT_TENANT))


async def test_a_definition_that_breaks_after_the_trigger_fails_the_run_with_the_reason(agents, tmp_path):
    folder = agents.define()
    gate = asyncio.Event()

    async def decide(request):
        await gate.wait()
        return says("ok")

    model = Model(decide)
    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model]) as runtime:
        await runtime.submit(WATCH, api(1))
        second = await runtime.submit(WATCH, api(2))
        await model.asked.wait()
        (folder / "SOUL.md").unlink()
        gate.set()
        run = await runtime.outcome(second)

    assert run.status is RunStatus.FAILED
    assert "SOUL.md" in run.result.error.message


async def test_outcomes_of_past_runs_are_shown_to_later_ones_also_after_a_restart(agents, tmp_path):
    agents.define()
    model = Model(lambda request: says(f"handled {request.trigger.payload}"))

    for number in (1, 2):
        async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model]) as runtime:
            await runtime.trigger("watch", number)

    assert "handled 1" in model.requests[1].messages[0].content


async def test_memories_are_preloaded_for_a_trigger_that_they_concern(agents, tmp_path):
    agents.define()
    replies = iter([asks(("remember", '{"content":"the disk fills on Fridays"}')), says("ok"), says("I knew")])
    model = Model(lambda _: next(replies))

    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model]) as runtime:
        await runtime.trigger("watch", "disk")
        await runtime.trigger("watch", {"question": "why does the disk fill"})

    assert "Fridays" in model.requests[2].messages[0].content


@pytest.mark.parametrize(
    "denied",
    [{"tools": {"deny": ["recall"]}}, {"permissions": {"deny": ["rec*"]}}, {"permissions": {"ask": ["recall"]}}],
)
async def test_an_agent_that_must_not_recall_is_shown_no_memories_either(agents, tmp_path, denied):
    agents.define(**denied)
    replies = iter([asks(("remember", '{"content":"the disk fills on Fridays"}')), says("ok"), says("who knows")])
    model = Model(lambda _: next(replies))

    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model]) as runtime:
        await runtime.trigger("watch", "disk")
        await runtime.trigger("watch", {"question": "why does the disk fill"})
        kept = await runtime.memory.memories(AgentRef.parse("watch"))

    assert [each.content for each in kept] == ["the disk fills on Fridays"]
    assert "Fridays" not in model.requests[2].messages[0].content


async def test_a_scheduled_run_fires_with_its_focus_exactly_once(agents, tmp_path):
    agents.define()
    clock = ManualClock()
    replies = iter([asks(("schedule_once", '{"delay_seconds":300,"focus":"check entry"}')), says("later"), says("now")])
    model = Model(lambda _: next(replies))

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model], clock=clock
    ) as runtime:
        await runtime.trigger("watch")
        assert await runtime.schedule_firer.fire_all_due() == 0
        await clock.advance(timedelta(seconds=301).total_seconds())
        assert await runtime.schedule_firer.fire_all_due() == 1
        assert await runtime.schedule_firer.fire_all_due() == 0
        scheduled = (await runtime.runs(RunFilter(DEFAULT_TENANT)))[0]
        while not (await runtime.run(DEFAULT_TENANT, scheduled.run_id)).status.final:
            await runtime.watch(DEFAULT_TENANT, scheduled.run_id, 99, 5)

    assert scheduled.trigger.kind is TriggerKind.SCHEDULE_ONCE
    assert scheduled.trigger.focus == "check entry"
    assert "check entry" in model.requests[2].messages[0].content
