"""Rules hold when a call is executed, not when it was asked for: whatever its run waited for, and whoever takes the run up again."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

import pytest

from owlclaw_ray import OwlClaw
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import ApprovalDecision, Decision
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.permission import Approver, PermissionPolicy
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.store.queries import ApprovalFilter, JournalOfRun, LedgerFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.agents.options import AgentOptions
from owlclaw_ray.tools.host import HostTools
from tests.worlds import Model, asks, says

WATCH = AgentRef.parse("watch")
ALMOST_CLOSING = datetime(2026, 11, 23, 10, 29, tzinfo=UTC)
HOURS = {"tools": ["shop.pay"], "from": "09:00", "to": "10:30"}
PAY = ("shop__pay", '{"amount": 7}')
OFF = {"tools": {"limits": {"shop.pay": {"enabled": False}}}}
CHANGES = {
    "hours": ({}, "hours", "it is outside 09:00-10:30 UTC"),
    "deny": ({"tools": {"deny": ["shop.*"]}}, "choice", "the definition denies shop.*"),
    "enabled": (OFF, "choice", "it is turned off in agent.yaml"),
    "role": ({"governance": {"roles": ["guest"]}}, "role", "it is for clerk, and the agent is guest"),
}


class Shop:
    """An application with a shop that opens for less than two hours a day, and its agent."""

    def __init__(self, agents, tmp_path, **rules):
        self.agents, self.data = agents, tmp_path / "data"
        self.clock, self.app, self.paid = ManualClock(ALMOST_CLOSING), OwlClaw("shop"), []
        self.begun, self.gate = threading.Event(), threading.Event()
        self.define(**rules)

        @self.app.handler("pay", effect="idempotent", tags=["role:clerk"])
        def pay(amount: int) -> str:
            self.paid.append(amount)
            return "paid"

        @self.app.tool("wait")
        def wait() -> str:
            self.begun.set()
            self.gate.wait(60)
            return "waited"

    def define(self, **rules):
        given = {
            "governance": {"roles": ["clerk"], "hours": [HOURS]},
            "limits": {"run_timeout": 10**6, "tool_timeout": 10**6},
        }
        given["governance"] |= rules.pop("governance", {})
        self.agents.define(model="test", **given, **rules)

    def runtime(self, model, **options):
        return in_process_runtime(
            agents_dir=self.agents.folder, data_dir=self.data, app=self.app, models=[model], clock=self.clock, **options
        )

    def change(self, rules, kept=None):
        """Let the present rules be these, ten hours later if they stay as they are: the shop is closed then."""
        if rules:
            self.define(**{**(kept or {}), **rules})
        else:
            self.clock._start = self.clock._start.replace(hour=20)


def turns(*replies):
    def decide(request):
        turn = sum(bool(message.tool_calls) for message in request.messages)
        return replies[turn] if turn < len(replies) else says("done")

    return Model(decide)


async def refused(runtime, run):
    """Return the error of the payment, which is the same in journal and ledger."""
    entries = await runtime.store.read(JournalOfRun(DEFAULT_TENANT, run.run_id))
    ended = [each.data for each in entries if each.kind is EntryKind.TOOL_FINISHED and each.data["tool"] == "shop.pay"]
    where = LedgerFilter(DEFAULT_TENANT, run_id=run.run_id, kind=LedgerKind.TOOL_CALL)
    told = [each.record.data for each in await runtime.ledger(where) if each.record.data["tool"] == "shop.pay"]
    assert ended == told
    return ended[-1]["error"]


def names(error, rule, reason, type_="tool_not_available"):
    return (error["type"], error["details"]) == (type_, {"rule": rule, "reason": reason}) and reason in error["message"]


async def asked(runtime):
    while not (found := await runtime.approvals(ApprovalFilter(DEFAULT_TENANT))):
        await asyncio.sleep(0)
    return found[0].request.approval_id


ASKING = {"permissions": {"ask": ["shop.pay"]}}


@pytest.mark.parametrize(("rules", "rule", "reason"), CHANGES.values(), ids=CHANGES)
async def test_what_a_person_allowed_is_not_done_if_a_rule_forbids_it_by_then(agents, tmp_path, rules, rule, reason):
    shop = Shop(agents, tmp_path, **ASKING)
    async with shop.runtime(turns(asks(PAY))) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        approval = await asked(runtime)
        shop.change(rules, ASKING)
        await runtime.decide(DEFAULT_TENANT, approval, ApprovalDecision(Decision.ALLOW_ONCE))
        run = await runtime.outcome(accepted)
        error = await refused(runtime, run)

    assert run.status is RunStatus.COMPLETED
    assert names(error, rule, reason)
    assert shop.paid == []


async def test_what_a_person_allowed_is_not_done_by_a_runtime_that_asks_nobody_any_more_and_finds_it_risky(
    agents, tmp_path
):
    shop = Shop(agents, tmp_path, **ASKING)
    async with shop.runtime(turns(asks(PAY))) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        approval = await asked(runtime)
    shop.define(governance={"risk": {"shop.pay": "critical"}}, **ASKING)
    nobody = Defaults(permissions=PermissionPolicy(approver=Approver.NOBODY))
    async with shop.runtime(turns(asks(PAY)), defaults=nobody) as runtime:
        await runtime.decide(DEFAULT_TENANT, approval, ApprovalDecision(Decision.ALLOW_ONCE))
        error = await refused(runtime, await runtime.outcome(accepted))

    reason = "its risk is critical, and it is not confirmed (governance.confirmed in agent.yaml)"
    assert names(error, "risk", reason)
    assert shop.paid == []


async def test_whoever_takes_a_run_over_asks_about_what_became_risky(agents, tmp_path):
    shop = Shop(agents, tmp_path)
    async with shop.runtime(turns(asks(("shop__wait", "{}"), PAY))) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        await asyncio.to_thread(shop.begun.wait, 60)
        shop.define(governance={"risk": {"shop.pay": "critical"}})
        await runtime.crash_hosts()
        shop.gate.set()
        approval = await asked(runtime)
        await runtime.decide(DEFAULT_TENANT, approval, ApprovalDecision(Decision.DENY))
        error = await refused(runtime, await runtime.outcome(accepted))

    assert error["type"] == "denied"
    assert shop.paid == []


@pytest.mark.parametrize(("rules", "rule", "reason"), CHANGES.values(), ids=CHANGES)
async def test_what_an_approver_in_this_process_allowed_is_not_done_if_a_rule_forbids_it_by_then(
    agents, tmp_path, rules, rule, reason
):
    shop = Shop(agents, tmp_path, **ASKING)

    async def approve(request):
        shop.change(rules, ASKING)
        return Decision.ALLOW_ONCE

    async with shop.runtime(turns(asks(PAY)), approve=approve) as runtime:
        error = await refused(runtime, await runtime.trigger("watch"))

    assert names(error, rule, reason)
    assert shop.paid == []


@pytest.mark.parametrize(("rules", "rule", "reason"), CHANGES.values(), ids=CHANGES)
async def test_whoever_takes_a_run_over_does_what_the_rules_allow_by_then(agents, tmp_path, rules, rule, reason):
    shop = Shop(agents, tmp_path)
    async with shop.runtime(turns(asks(("shop__wait", "{}"), PAY), asks(PAY))) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        await asyncio.to_thread(shop.begun.wait, 60)
        shop.change(rules)
        await runtime.crash_hosts()
        shop.gate.set()
        run = await runtime.outcome(accepted)
        error = await refused(runtime, run)
        entries = await runtime.store.read(JournalOfRun(DEFAULT_TENANT, run.run_id))
        [first, *_] = [each.data["error"] for each in entries if each.data.get("tool") == "shop.pay"]

    assert run.status is RunStatus.COMPLETED
    assert names(error, rule, reason)
    assert names(first, rule, reason, "uncertain")
    assert "may or may not have acted" in first["message"]
    assert shop.paid == []


async def test_what_comes_after_the_wait_for_a_started_agent_is_what_the_rules_allow_by_then(agents, tmp_path):
    shop = Shop(agents, tmp_path)
    agents.define("clerk", model="test")

    def decide(request):
        first = len(request.messages) == 1
        if request.agent_id != "watch":
            return asks(("shop__wait", "{}")) if first else says("counted")
        dispatch = '{"agent_definition_id": "clerk", "assignment": "count"}'
        return asks(("agent__create_sub_agent", dispatch), PAY) if first else says("done")

    async with shop.runtime(Model(decide), host_tools=HostTools(agents=AgentOptions(child_seconds=10**6))) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        await asyncio.to_thread(shop.begun.wait, 60)
        while not (await runtime.run(DEFAULT_TENANT, accepted.run_id)).awaits:
            await asyncio.sleep(0)
        shop.define(tools={"deny": ["shop.pay", "agent.*"]})
        shop.gate.set()
        run = await runtime.outcome(accepted)
        error = await refused(runtime, run)
        entries = await runtime.store.read(JournalOfRun(DEFAULT_TENANT, run.run_id))
        [answer] = [each.data for each in entries if each.data.get("tool") == "agent.create_sub_agent"]

    assert names(error, "choice", "the definition denies shop.pay")
    assert answer["content"]["answer"] == "counted"
    assert shop.paid == []


async def test_a_call_that_a_rule_forbids_by_now_asks_nobody(agents, tmp_path):
    shop = Shop(agents, tmp_path, **ASKING)

    def decide(request):
        if len(request.messages) > 1:
            return says("done")
        shop.change({})
        return asks(PAY)

    async with shop.runtime(Model(decide)) as runtime:
        error = await refused(runtime, await runtime.trigger("watch"))
        approvals = await runtime.approvals(ApprovalFilter(DEFAULT_TENANT))

    assert names(error, "hours", "it is outside 09:00-10:30 UTC")
    assert approvals == []


async def test_a_budget_that_others_spent_while_a_person_thought_about_it_is_spent(agents, tmp_path):
    budget = {"name": "payments", "unit": "calls", "limit": 1, "scope": "tenant", "tools": ["shop.pay"]}
    rules = {"governance": {"budgets": [budget]}, **ASKING}
    shop = Shop(agents, tmp_path, **rules)
    async with shop.runtime(turns(asks(PAY))) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        approval = await asked(runtime)
        shop.define(governance={"budgets": [budget]})
        await runtime.trigger("watch:other")
        shop.define(**rules)
        await runtime.decide(DEFAULT_TENANT, approval, ApprovalDecision(Decision.ALLOW_ONCE))
        error = await refused(runtime, await runtime.outcome(accepted))

    assert error["type"] == "budget_exhausted"
    assert "the budget payments" in error["message"]
    assert shop.paid == [7]
