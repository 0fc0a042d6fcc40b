"""Runs that wait for a person: disturbed at every boundary, and left waiting for long."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from owlclaw_ray.domain.approval import ApprovalDecision, ApprovalStatus, Decision
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import Admission, BusyPolicy, Trigger, TriggerKind
from owlclaw_ray.errors import AlreadyDecidedError, NotFoundError, StoreUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, ApprovalId, TenantId
from owlclaw_ray.store.commands import DecideApproval
from owlclaw_ray.store.queries import (
    AgentsWithWork,
    ApprovalFilter,
    JournalOfRun,
    LedgerBreaks,
    LedgerFilter,
    RunFilter,
)
from tests.world import AGENTS, DISASTERS, World

SOLO = AGENTS[0]
ALLOW = ApprovalDecision(Decision.ALLOW_ONCE, by="ada")
DENY = ApprovalDecision(Decision.DENY, "not today", by="ada")
TURNS = (("look", "risk", "put"), ("peek", "look"), ())


async def pending(world):
    return await world.nodes[1].gate._store.read(ApprovalFilter(DEFAULT_TENANT, status=ApprovalStatus.PENDING))


async def journal(world, run_id):
    return await world.nodes[1].gate._store.read(JournalOfRun(DEFAULT_TENANT, run_id))


async def the_run(world):
    [run] = await world.nodes[1].gate._store.read(RunFilter(DEFAULT_TENANT))
    return run


async def settle(world, number=20):
    """Let what is under way come to its next wait, and no further than a few seconds."""
    for _ in range(number):
        await world.clock.settle()
        if world.models.pending or world.tools or await pending(world):
            return
        await world.clock.advance(0.5)


@dataclass
class Story:
    """Lets a run happen whose calls are decided about as they ask, and disturbs it where it is told to."""

    world: World
    decision: ApprovalDecision = ALLOW
    turns: tuple = TURNS
    told: list = field(default_factory=list)

    async def tell(self):
        world, node = self.world, self.world.nodes[0]
        for _ in range(300):
            if not node.clients and not world.acknowledged:
                node.submit(SOLO, "x", "key of this story")
            await world.clock.settle()
            if world.models.pending:
                self._answer(world.models.pending[0])
            elif world.tools:
                world.end_tool(world.tools[0])
            elif world.witness.final:
                return await self._checked()
            elif not await self._decide():
                await world.clock.advance(0.5)
        raise AssertionError("the run does not end")

    def _answer(self, call):
        self.told.append(call.request.messages)
        turn = sum(bool(message.tool_calls) for message in call.request.messages)
        self.world.answer_model(call, *self.turns[turn])

    async def _decide(self):
        waiting = await pending(self.world)
        for approval in waiting:
            with suppress(StoreUnavailableError):
                await self.world.nodes[0].runtime.decide(DEFAULT_TENANT, approval.request.approval_id, self.decision)
        return bool(waiting)

    async def _checked(self):
        self.world.witness.audit(self.world.database.tables)
        assert not self.world.witness.violations, self.world.witness.violations
        assert not await self.world.nodes[0].gate.read(LedgerBreaks(DEFAULT_TENANT))
        return await the_run(self.world)

    def results(self):
        return {call_id: data for (_, call_id), data in self.world.witness.recorded.items()}

    def executions(self, call_id):
        return sum(times for (_, each), times in self.world.witness.executions.items() if each == call_id)


@pytest.mark.parametrize("fate", DISASTERS)
async def test_whatever_becomes_of_any_transaction_an_approved_call_is_executed_once_and_asked_once(stores, fate):
    at = 0
    while True:
        world = World(*stores)
        await world.nodes[0].start()
        world.nodes[0].gate.ambush_transaction(at, fate)
        story = Story(world)
        run = await story.tell()
        asked = await world.nodes[1].gate._store.read(ApprovalFilter(DEFAULT_TENANT))
        entries = await journal(world, run.run_id)
        await world.end()
        if world.nodes[0].gate.transactions_to_ambush:
            break
        assert run.status is RunStatus.COMPLETED
        assert set(story.results()) >= {"t0-0", "t0-1", "t0-2", "t1-0", "t1-1"}
        risk = story.results()["t0-1"]
        assert story.executions("t0-1") == 1 or risk["error"]["type"] == "uncertain"
        assert {each.status for each in asked} == {ApprovalStatus.ALLOWED}
        assert len(asked) == 2
        kinds = [entry.kind for entry in entries]
        assert kinds.count(EntryKind.APPROVAL_REQUESTED) == kinds.count(EntryKind.APPROVAL_DECIDED) == 2
        assert kinds.count(EntryKind.RUN_WAITING) == kinds.count(EntryKind.RUN_CONTINUED) == 2
        at += 1
    assert at >= 13


async def test_a_denied_write_stops_the_rest_of_the_turn_and_the_model_is_told_why(world):
    story = Story(world, DENY)

    run = await story.tell()

    results = story.results()
    assert run.status is RunStatus.COMPLETED
    assert "error" not in results["t0-0"]
    assert results["t0-1"]["error"]["type"] == "denied"
    assert results["t0-1"]["error"]["message"] == "risk was denied by ada: not today"
    assert results["t0-2"]["error"]["type"] == "not_executed"
    assert "not today" in story.told[1][-2].content
    assert story.executions("t0-1") == story.executions("t0-2") == 0


async def test_a_denied_readonly_call_stops_nothing(world):
    story = Story(world, DENY, turns=(("peek", "look", "put"), ()))

    await story.tell()

    assert story.results()["t0-0"]["error"]["type"] == "denied"
    assert "error" not in story.results()["t0-1"]
    assert "error" not in story.results()["t0-2"]


async def ask(world, *names):
    """Bring a run to where it waits for these calls."""
    world.nodes[0].submit(SOLO, "x")
    await settle(world)
    world.answer_model(world.models.pending[0], *names)
    await settle(world)
    while world.tools:
        world.end_tool(world.tools[0])
        await settle(world)
    assert (await the_run(world)).status is RunStatus.WAITING
    return await pending(world)


async def decide(world, approval, decision=ALLOW, node=0):
    return await world.nodes[node].runtime.decide(DEFAULT_TENANT, approval.request.approval_id, decision)


async def test_calls_of_a_group_ask_together_and_the_run_goes_on_when_all_are_decided(world):
    first, second = await ask(world, "peek", "look", "peek")

    await decide(world, first)
    await settle(world, 2)
    assert (await the_run(world)).status is RunStatus.WAITING
    assert not world.tools
    await decide(world, second)
    await settle(world)

    assert {each.invocation.call_id for each in world.tools} == {"t0-0", "t0-2"}
    assert await world.come_to_rest()
    assert not world.witness.violations


async def test_a_request_has_all_that_a_person_needs(world):
    [approval] = await ask(world, "risk")

    request = approval.request
    assert (request.agent, request.role, request.tool) == (SOLO, "solo", "risk")
    assert (request.permission, request.tags, request.reason) == ("write", ("dangerous",), "dangerous tools ask")
    assert (request.arguments, request.written, request.target) == ({}, "{}", "{}")
    assert (request.trigger, request.source) == ("api", "")
    assert request.expires_at - request.requested_at == timedelta(hours=24)


async def test_a_run_that_waits_holds_no_host_and_blocks_the_queue_behind_it(world):
    [approval] = await ask(world, "risk")
    world.nodes[0].submit(SOLO, "behind")

    await world.clock.advance(60)
    await world.clock.settle()

    assert not any([await host.hosted() for host in world.nodes[0].hosts])
    assert await world.nodes[0].gate.read(AgentsWithWork()) == []
    assert not world.models.pending
    await decide(world, approval)
    await settle(world)
    assert [each.invocation.tool for each in world.tools] == ["risk"]
    assert await world.come_to_rest()
    assert [status.value for status in world.witness.final.values()] == ["completed", "completed"]
    assert not world.witness.violations


async def test_an_approval_outlives_the_end_of_everything_and_the_run_goes_on_exactly_once(world):
    [approval] = await ask(world, "risk")

    await world.nodes[0].kill()
    await world.clock.advance(20)
    assert not world.tools
    await decide(world, approval)
    await settle(world)
    await world.nodes[0].runtime.directory.sweep()
    await world.clock.advance(3)
    await world.clock.settle()

    assert [each.invocation.tool for each in world.tools] == ["risk"]
    assert await world.come_to_rest()
    kinds = [entry.kind for entry in await journal(world, approval.request.run_id)]
    assert kinds.count(EntryKind.RUN_CONTINUED) == 1
    assert EntryKind.RUN_RESUMED not in kinds
    assert list(world.witness.executions.values()) == [1]
    assert not world.witness.violations


async def test_a_decision_whose_wake_is_lost_is_found_by_the_sweep(world):
    [approval] = await ask(world, "risk")

    decision = DecideApproval(DEFAULT_TENANT, approval.request.approval_id, ALLOW, world.clock.now())
    await world.nodes[1].gate.pass_through([decision])
    await world.clock.advance(7)
    await settle(world)

    assert [each.invocation.tool for each in world.tools] == ["risk"]


async def test_a_decision_is_final_and_repeating_it_changes_nothing(world):
    [approval] = await ask(world, "risk")

    settled = await decide(world, approval)
    again = await decide(world, approval)
    with pytest.raises(AlreadyDecidedError, match="it is allowed"):
        await decide(world, approval, DENY)

    assert settled == again
    assert settled.decision == ALLOW
    runtime = world.nodes[0].runtime
    assert await runtime.approval(DEFAULT_TENANT, approval.request.approval_id) == settled
    with pytest.raises(NotFoundError):
        await runtime.decide(DEFAULT_TENANT, ApprovalId("apr_none"), ALLOW)
    with pytest.raises(NotFoundError):
        await runtime.decide(TenantId("other"), approval.request.approval_id, ALLOW)
    with pytest.raises(NotFoundError):
        await runtime.approval(TenantId("other"), approval.request.approval_id)


async def test_requests_and_decisions_are_in_the_ledger(world):
    [approval] = await ask(world, "risk")
    await decide(world, approval)
    assert await world.come_to_rest()

    where = LedgerFilter(DEFAULT_TENANT, kind=LedgerKind.APPROVAL)
    requested, decided = [each.record.data for each in await world.nodes[0].gate.read(where)]
    assert (requested["what"], requested["tool"], requested["arguments"]) == ("requested", "risk", {})
    assert (decided["what"], decided["status"], decided["by"]) == ("decided", "allowed", "ada")
    assert not await world.nodes[0].gate.read(LedgerBreaks(DEFAULT_TENANT))


async def test_a_run_that_waits_is_cancelled_and_the_next_one_runs(world):
    [approval] = await ask(world, "risk")
    world.nodes[0].submit(SOLO, "behind")
    await world.clock.settle()

    await world.nodes[0].runtime.cancel(DEFAULT_TENANT, approval.request.run_id)
    await settle(world)

    run_id = approval.request.run_id
    assert world.witness.final == {run_id: RunStatus.CANCELLED}
    assert world.witness.recorded[run_id, "t0-0"]["error"]["type"] == "not_executed"
    assert world.models.pending
    [withdrawn] = await world.nodes[0].gate.read(ApprovalFilter(DEFAULT_TENANT))
    assert withdrawn.status is ApprovalStatus.WITHDRAWN
    with pytest.raises(AlreadyDecidedError, match="withdrawn"):
        await decide(world, approval)
    assert await world.come_to_rest()
    assert not world.witness.violations


async def test_a_run_that_waits_is_interrupted_by_an_urgent_one(world):
    [approval] = await ask(world, "risk")

    urgent = Admission(BusyPolicy.INTERRUPT)
    await world.nodes[0].runtime.submit(SOLO, Trigger(TriggerKind.API, "now"), urgent)
    await settle(world)

    assert world.witness.final == {approval.request.run_id: RunStatus.CANCELLED}
    assert world.models.pending
    assert not await pending(world)


async def test_a_cancellation_that_comes_before_the_request_is_committed_ends_the_run(world):
    node = world.nodes[0]
    node.submit(SOLO, "x")
    await settle(world)
    world.answer_model(world.models.pending[0], "risk")
    [run_id] = world.acknowledged
    await world.cancel_in_the_store(run_id)

    await world.clock.settle()
    await world.clock.advance(1)

    assert world.witness.final == {run_id: RunStatus.CANCELLED}
    assert not await pending(world)
    assert not world.witness.violations


async def test_what_nobody_decides_is_denied_after_its_time_and_the_run_goes_on(world):
    world.definitions.have_approvals_expire_after(600)
    [approval] = await ask(world, "risk", "put")
    runtime = world.nodes[0].runtime
    assert await runtime.expiry.tick() == 0

    await world.clock.advance(600)
    assert await runtime.expiry.tick() == 1
    await settle(world)

    result = world.witness.recorded[approval.request.run_id, "t0-0"]
    assert (result["error"]["type"], "expired" in result["error"]["message"]) == ("denied", True)
    with pytest.raises(AlreadyDecidedError, match="expired"):
        await decide(world, approval)
    assert await world.come_to_rest()
    assert set(world.witness.final.values()) == {RunStatus.COMPLETED}


async def test_a_decision_after_the_time_comes_too_late_even_if_nobody_looked(world):
    world.definitions.have_approvals_expire_after(600)
    [approval] = await ask(world, "risk")
    await world.clock.advance(600)

    with pytest.raises(AlreadyDecidedError, match="expired"):
        await decide(world, approval)
    await settle(world)

    result = world.witness.recorded[approval.request.run_id, "t0-0"]
    assert "expired" in result["error"]["message"]


async def test_waiting_does_not_count_against_the_time_limit_of_a_run(world):
    [approval] = await ask(world, "risk")
    await world.clock.advance(600)

    await decide(world, approval)

    assert await world.come_to_rest()
    assert set(world.witness.final.values()) == {RunStatus.COMPLETED}


async def test_a_deadline_holds_for_a_run_that_waits(world):
    admission = Admission(deadline=100.0)
    asyncio.ensure_future(world.nodes[0].runtime.submit(SOLO, Trigger(TriggerKind.API), admission))  # noqa: RUF006
    await settle(world)
    world.answer_model(world.models.pending[0], "risk")
    await settle(world)
    [approval] = await pending(world)
    assert approval.request.expires_at - approval.request.requested_at <= timedelta(seconds=100)
    assert approval.request.ends_run

    await world.clock.advance(101)
    assert await world.nodes[0].runtime.expiry.tick() == 1
    await settle(world)

    run = await the_run(world)
    assert (run.status, run.result.error.type) == (RunStatus.TIMEOUT, "deadline_passed")


async def test_the_result_of_a_waiting_turn_is_in_the_models_order(world):
    story = Story(world, turns=(("peek", "look", "risk"), ()))

    await story.tell()

    told = [message.call_id for message in story.told[1] if message.call_id]
    assert told == ["t0-0", "t0-1", "t0-2"]
    assert [json.loads(json.dumps(message.content)) for message in story.told[1] if message.call_id] == ["done"] * 3
