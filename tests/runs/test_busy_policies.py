"""Triggers that meet a busy agent, on the whole engine in one process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import RunError, RunStatus
from owlclaw_ray.domain.trigger import Admission, BusyPolicy, Trigger, TriggerKind
from owlclaw_ray.errors import AgentBusyError, QueueFullError
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.store.queries import JournalOfRun, LedgerFilter, RunFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.worlds import Model, asks, says

WATCH = AgentRef.parse("watch")
REJECT, COALESCE, INTERRUPT = (Admission(busy) for busy in list(BusyPolicy)[1:])


def api(payload=None):
    return Trigger(TriggerKind.API, payload)


class Gate:
    """Answers every trigger by its payload, but `first` only when it is let go."""

    def __init__(self):
        self.opened = asyncio.Event()
        self.model = Model(self._decide)

    async def _decide(self, request):
        if request.trigger.payload == "first":
            await self.opened.wait()
        return says(f"handled {request.trigger.payload}")

    @property
    def order(self):
        return [request.trigger.payload for request in self.model.requests]


@asynccontextmanager
async def busy_with_first(agents, tmp_path, gate, **options):
    """A runtime whose agent executes the run `first`."""
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[gate.model], **options
    ) as runtime:
        first = await runtime.submit(WATCH, api("first"))
        await gate.model.asked.wait()
        yield runtime, first


async def test_a_trigger_that_asks_for_it_is_refused_while_the_agent_is_busy(agents, tmp_path):
    agents.define()
    gate = Gate()

    async with busy_with_first(agents, tmp_path, gate) as (runtime, first):
        with pytest.raises(AgentBusyError, match=first.run_id) as refused:
            await runtime.submit(WATCH, api("second"), REJECT)
        gate.opened.set()
        await runtime.outcome(first)
        third = await runtime.outcome(await runtime.submit(WATCH, api("third"), REJECT))
        runs = await runtime.runs(RunFilter(DEFAULT_TENANT))

    assert (refused.value.agent, refused.value.run_id) == ("watch", first.run_id)
    assert third.status is RunStatus.COMPLETED
    assert len(runs) == 2


async def test_triggers_that_wait_become_one_run_with_the_newest_payload_and_the_agent_is_told(agents, tmp_path):
    agents.define()
    gate = Gate()

    async with busy_with_first(agents, tmp_path, gate) as (runtime, _):
        accepted = [await runtime.submit(WATCH, api(number), COALESCE) for number in range(3)]
        gate.opened.set()
        run = await runtime.outcome(accepted[0])
        plain = await runtime.trigger("watch", "plain")

    assert [each.merged for each in accepted] == [False, True, True]
    assert {each.run_id for each in accepted} == {run.run_id}
    assert (run.result.final_text, run.trigger.merged) == ("handled 2", 3)
    assert plain.status is RunStatus.COMPLETED
    assert gate.order == ["first", 2, "plain"]
    told = [request.messages[0].content for request in gate.model.requests]
    assert "It stands for 3 triggers" in told[1]
    assert not any("It stands for" in told[at] for at in (0, 2))


async def test_an_interrupt_ends_the_running_run_and_is_executed_next(agents, tmp_path):
    agents.define()
    gate = Gate()

    async with busy_with_first(agents, tmp_path, gate) as (runtime, first):
        await runtime.submit(WATCH, api("waiting"), Admission(priority=10))
        urgent = await runtime.submit(WATCH, api("urgent"), INTERRUPT)
        interrupted, run = await runtime.outcome(first), await runtime.outcome(urgent)
        entries = await runtime.store.read(JournalOfRun(DEFAULT_TENANT, first.run_id))
        records = await runtime.ledger(LedgerFilter(DEFAULT_TENANT))
        await runtime.trigger("watch", "last")

    assert urgent.interrupted == first.run_id
    assert (interrupted.status, interrupted.interrupted_by) == (RunStatus.CANCELLED, urgent.run_id)
    assert interrupted.result.error == RunError(
        "interrupted", f"the trigger of run {urgent.run_id} interrupted it", retryable=False
    )
    assert run.status is RunStatus.COMPLETED
    assert gate.order == ["first", "urgent", "waiting", "last"]
    assert [entry.data for entry in entries if entry.kind is EntryKind.CANCEL_REQUESTED] == [{"by": urgent.run_id}]
    ends = {each.record.run_id: each.record.data for each in records if each.record.kind is LedgerKind.RUN}
    assert ends[first.run_id]["error"]["type"] == "interrupted"
    (told,) = [each.record for each in records if each.record.kind is LedgerKind.TRIGGER]
    assert (told.run_id, told.data) == (urgent.run_id, {"what": "interrupted", "run_id": first.run_id})


async def test_a_run_that_was_interrupted_while_its_host_died_says_so_too(agents, tmp_path):
    agents.define()
    gate = Gate()

    async with busy_with_first(agents, tmp_path, gate) as (runtime, first):
        for host in tuple(runtime.pool.hosts.values()):
            await host.crash()
        urgent = await runtime.submit(WATCH, api("urgent"), INTERRUPT)
        await runtime.directory.heartbeat()
        interrupted, run = await runtime.outcome(first), await runtime.outcome(urgent)

    assert interrupted.result.error.type == "interrupted"
    assert run.status is RunStatus.COMPLETED


async def test_the_interrupted_run_learns_it_from_its_next_commit_if_the_signal_is_lost(agents, tmp_path):
    agents.define()
    opened = asyncio.Event()

    async def decide(request):
        if request.trigger.payload == "first" and len(request.messages) == 1:
            await opened.wait()
            return asks(("log_decision", '{"reasoning":"a"}'))
        return says("done")

    async def lost(*_):
        pass

    model = Model(decide)
    async with in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model]) as runtime:
        first = await runtime.submit(WATCH, api("first"))
        await model.asked.wait()
        runtime.directory.cancel = lost
        urgent = await runtime.submit(WATCH, api("urgent"), INTERRUPT)
        opened.set()
        interrupted = await runtime.outcome(first)
        await runtime.outcome(urgent)

    assert interrupted.result.error.type == "interrupted"
    assert interrupted.result.tool_calls == 0


async def test_higher_priorities_go_first(agents, tmp_path):
    agents.define()
    gate = Gate()

    async with busy_with_first(agents, tmp_path, gate) as (runtime, _):
        accepted = [
            await runtime.submit(WATCH, api(priority), Admission(priority=priority)) for priority in (0, -5, 5, 0)
        ]
        gate.opened.set()
        for each in accepted:
            await runtime.outcome(each)

    assert gate.order == ["first", 5, 0, 0, -5]


async def test_a_full_queue_refuses_triggers_until_there_is_room(agents, tmp_path):
    agents.define(limits={"queued_runs": 2})
    gate = Gate()

    async with busy_with_first(agents, tmp_path, gate) as (runtime, _):
        queued = [await runtime.submit(WATCH, api(number)) for number in range(2)]
        with pytest.raises(QueueFullError, match="agent 'watch' has 2 queued runs") as refused:
            await runtime.submit(WATCH, api("too many"))
        elsewhere = await runtime.submit(AgentRef.parse("watch:other"), api("elsewhere"))
        gate.opened.set()
        for each in queued:
            await runtime.outcome(each)
        after = await runtime.trigger("watch", "after")
        await runtime.outcome(elsewhere)

    assert refused.value.limit == 2
    assert after.status is RunStatus.COMPLETED
    assert "too many" not in gate.order


async def test_a_run_whose_deadline_passed_before_it_began_is_skipped(agents, tmp_path):
    agents.define()
    gate, clock = Gate(), ManualClock()

    async with busy_with_first(agents, tmp_path, gate, clock=clock) as (runtime, first):
        late = await runtime.submit(WATCH, api("late"), Admission(deadline=5))
        early = await runtime.submit(WATCH, api("early"), Admission(deadline=50))
        outcomes = [asyncio.create_task(runtime.outcome(each)) for each in (first, late, early)]
        await clock.advance(5)
        gate.opened.set()
        _, skipped, run = await asyncio.gather(*outcomes)
        kinds = [entry.kind for entry in await runtime.store.read(JournalOfRun(DEFAULT_TENANT, late.run_id))]
        records = await runtime.ledger(LedgerFilter(DEFAULT_TENANT, run_id=late.run_id))

    assert (skipped.status, skipped.result.error.type) == (RunStatus.SKIPPED, "deadline_passed")
    assert "2026-01-01T00:00:05+00:00" in skipped.result.error.message
    assert kinds == [EntryKind.RUN_QUEUED, EntryKind.RUN_STARTED, EntryKind.RUN_FINISHED]
    assert [each.record.data["status"] for each in records] == ["skipped"]
    assert run.status is RunStatus.COMPLETED
    assert gate.order == ["first", "early"]


async def test_a_running_run_ends_at_its_deadline(agents, tmp_path):
    agents.define(limits={"run_timeout": 100, "model_timeout": 200})
    clock = ManualClock()
    model = Model(lambda _: asyncio.Event().wait())

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model], clock=clock
    ) as runtime:
        accepted = await runtime.submit(WATCH, api(), Admission(deadline=7.5))
        await model.asked.wait()
        outcome = asyncio.create_task(runtime.outcome(accepted))
        await clock.advance(8)
        run = await outcome

    assert (run.status, run.result.error.type) == (RunStatus.TIMEOUT, "deadline_passed")
    assert "2026-01-01T00:00:07+00:00" in run.result.error.message


async def test_the_time_limit_of_a_run_holds_before_its_deadline(agents, tmp_path):
    agents.define(limits={"run_timeout": 5})
    clock = ManualClock()
    model = Model(lambda _: asyncio.Event().wait())

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model], clock=clock
    ) as runtime:
        accepted = await runtime.submit(WATCH, api(), Admission(deadline=60))
        await model.asked.wait()
        outcome = asyncio.create_task(runtime.outcome(accepted))
        await clock.advance(6)
        run = await outcome

    assert (run.status, run.result.error.type) == (RunStatus.TIMEOUT, "run_timeout")


async def test_a_run_that_is_resumed_after_its_deadline_times_out_with_what_it_had_done(agents, tmp_path):
    agents.define()
    clock = ManualClock()
    hanging = asyncio.Event()

    async def decide(request):
        if len(request.messages) == 1:
            return asks(("log_decision", '{"reasoning":"a"}'))
        hanging.set()
        return await asyncio.Event().wait()

    model = Model(decide)
    parts = {"agents_dir": agents.folder, "data_dir": tmp_path / "data", "models": [model], "clock": clock}
    async with in_process_runtime(**parts) as runtime:
        accepted = await runtime.submit(WATCH, api(), Admission(deadline=30))
        await hanging.wait()
        await runtime.directory.stop(grace=0)
    await clock.advance(31)
    async with in_process_runtime(**parts) as runtime:
        run = await runtime.outcome(accepted)

    assert (run.status, run.result.error.type) == (RunStatus.TIMEOUT, "deadline_passed")
    assert run.result.tool_calls == 1
    assert len(model.requests) == 2


@pytest.mark.parametrize("wrong", [{"priority": 11}, {"priority": -11}, {"deadline": 0}, {"deadline": 604_801}])
def test_an_admission_holds_only_what_is_possible(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Admission(**wrong)
