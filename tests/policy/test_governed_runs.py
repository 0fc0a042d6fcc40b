"""What agents may do, on the whole engine in one process."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime

import orjson
import pytest
from msgspec.structs import replace

from owlclaw_ray import ApprovalNeededError, OwlClaw, ToolContext
from owlclaw_ray.configuration.permissions import PermissionSettings
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import ApprovalDecision, Decision
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.model import Price
from owlclaw_ray.domain.permission import Approver, PermissionPolicy
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import RetryableError
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.policy.permission import SessionGrants
from owlclaw_ray.settings import load_settings
from owlclaw_ray.store.queries import AgentByRef, ApprovalFilter, JournalOfRun, LedgerFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.worlds import Model, asks, calls, says

WATCH = AgentRef.parse("watch")
REASON = "its risk is critical, and it is not confirmed (governance.confirmed in agent.yaml)"
SUNDAY = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)


def shop():
    """An application whose tool `shop.pay` does what `shop.state` holds: an exception to raise, or nothing."""
    app = OwlClaw("shop")
    app.calls, app.failure = [], None

    @app.handler("pay", effect="idempotent", tags=["risk:high"])
    def pay(amount: int) -> str:
        """Pay."""
        app.calls.append(amount)
        if app.failure is not None:
            raise app.failure
        return "paid"

    @app.handler("burn", effect="once")
    def burn() -> str:
        """Burn."""
        app.calls.append("burn")
        raise RetryableError("hot")

    @app.tool("look", tags=["role:clerk"])
    def look() -> str:
        """Look."""
        return "fine"

    return app


NOBODY = Defaults(permissions=PermissionPolicy(approver=Approver.NOBODY))


def runtime_of(agents, tmp_path, app, **options):
    return in_process_runtime(agents_dir=agents.folder, data_dir=tmp_path / "data", app=app, **options)


async def visibility(runtime, run):
    [record] = await runtime.store.read(LedgerFilter(DEFAULT_TENANT, run_id=run.run_id, kind=LedgerKind.VISIBILITY))
    return record.record.data


async def entry(runtime, run, kind):
    return next(
        each.data for each in await runtime.store.read(JournalOfRun(run.agent.tenant, run.run_id)) if each.kind is kind
    )


async def results(runtime, run):
    entries = await runtime.store.read(JournalOfRun(run.agent.tenant, run.run_id))
    return [
        each.data["error"]["type"] if "error" in each.data else each.data["content"]
        for each in entries
        if each.kind is EntryKind.TOOL_FINISHED
    ]


async def test_hidden_tools_are_not_offered_not_executed_and_in_the_ledger_with_their_reasons(agents, tmp_path):
    """tool-registry: the effective tool set is the hard boundary of permissions; providers receive the schemas of the
    present run's effective tool set only; a call of a tool outside it gets tool_not_available.
    """
    app = shop()
    model = Model(lambda request: says("stop") if len(request.messages) > 1 else asks(("shop__pay", '{"amount": 5}')))
    agents.define(governance={"roles": ["clerk"]})

    async with runtime_of(agents, tmp_path, app, models=[model], defaults=NOBODY) as runtime:
        run = await runtime.trigger("watch")
        seen, prompt = await visibility(runtime, run), await entry(runtime, run, EntryKind.PROMPT_BUILT)
        told = await results(runtime, run)

    offered = [each["function"]["name"] for each in orjson.loads(model.requests[0].tools)]
    assert "shop__look" in offered
    assert "shop__pay" not in offered
    assert told == ["tool_not_available"]
    assert app.calls == []
    assert seen == {
        "visible": len(offered),
        "tools": prompt["tools"],
        "hidden": [
            {
                "tools": ["shop.pay"],
                "by": "risk",
                "reason": "its risk is high, and it is not confirmed (governance.confirmed in agent.yaml)",
            }
        ],
    }


async def test_calls_of_a_tool_that_nobody_confirmed_ask_where_people_can_be_asked(agents, tmp_path):
    app, asked = shop(), []
    agents.script(calls(("shop.pay", {"amount": 5})), {"text": "x"}, governance={"roles": ["clerk"]})

    async def approve(request):
        asked.append((request.tool, request.reason))
        return Decision.ALLOW_ONCE

    async with runtime_of(agents, tmp_path, app, approve=approve) as runtime:
        run = await runtime.trigger("watch")
        seen = await visibility(runtime, run)

    assert seen["hidden"] == []
    assert asked == [("shop.pay", "its risk is high")]
    assert app.calls == [5]


async def test_visibility_is_decided_anew_for_every_run(agents, tmp_path):
    """tool-registry: the effective tool set is computed for every run."""
    clock = ManualClock(SUNDAY)
    hours = {"tools": ["shop.look"], "from": "09:00", "to": "10:30", "days": ["sun"]}
    agents.define(governance={"roles": ["clerk"], "confirmed": ["*"], "hours": [hours]})

    async with runtime_of(agents, tmp_path, shop(), models=[Model(lambda request: says("x"))], clock=clock) as runtime:
        before = await visibility(runtime, await runtime.trigger("watch"))
        await clock.advance(1_800)
        after = await visibility(runtime, await runtime.trigger("watch"))

    assert before["hidden"] == []
    assert [each["by"] for each in after["hidden"]] == ["hours"]
    assert after["visible"] == before["visible"] - 1
    assert after["tools"] != before["tools"]


async def test_a_resumed_run_is_offered_the_tools_that_it_began_with_and_may_call_those_that_it_has_by_then(
    agents, tmp_path
):
    clock, hours = ManualClock(SUNDAY), {"tools": ["shop.look"], "from": "09:00", "to": "10:30"}
    agents.define(governance={"roles": ["clerk"], "hours": [hours]})
    answers = [asks(("log_decision", '{"reasoning": "x"}')), None, asks(("shop__look", "{}")), says("x"), says("y")]
    waiting = asyncio.Event()

    def decide(request):
        answer = answers.pop(0)
        if answer is not None:
            return answer
        waiting.set()
        return asyncio.Event().wait()

    model = Model(decide)
    async with runtime_of(agents, tmp_path, shop(), models=[model], clock=clock) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        await waiting.wait()
        agents.define(governance={"hours": [{**hours, "to": "09:30"}]})
        await runtime.crash_hosts()
        run = await runtime.outcome(accepted)
        told = await results(runtime, run)
        hidden = (await visibility(runtime, await runtime.trigger("watch")))["hidden"]

    assert run.status is RunStatus.COMPLETED
    assert told[1] == "tool_not_available"
    assert model.requests[-2].tools == model.requests[0].tools
    assert [each["by"] for each in hidden if each["tools"] == ["shop.look"]] == ["role"]


async def test_a_capability_that_keeps_failing_is_hidden_tried_again_and_trusted_again(agents, tmp_path):
    app, clock = shop(), ManualClock(SUNDAY)
    app.failure = ValueError("down")
    agents.define(governance={"confirmed": ["shop.pay"], "breaker": {"failures": 2, "open_seconds": 60}})
    ways = [("shop__pay", '{"amount": 1}')]

    def decide(request):
        return (
            asks(*ways, ids=tuple(f"c{at}" for at, _ in enumerate(ways))) if len(request.messages) == 1 else says("x")
        )

    async with runtime_of(agents, tmp_path, app, models=[Model(decide)], clock=clock) as runtime:

        async def run_once():
            run = await runtime.trigger("watch")
            hidden = (await visibility(runtime, run))["hidden"]
            return await results(runtime, run), [each["by"] for each in hidden if each["by"] == "breaker"]

        first, second = await run_once(), await run_once()
        third = await run_once()
        await clock.advance(60)
        app.failure = None
        fourth, fifth = await run_once(), await run_once()
        state = (await runtime.store.read(AgentByRef(WATCH))).state

    assert (first, second) == ((["execution_failed"], []), (["execution_failed"], []))
    assert third == (["tool_not_available"], ["breaker"])
    assert fourth == fifth == (["paid"], [])
    assert state.breakers == ()


async def test_breakers_and_paces_survive_the_runtime(agents, tmp_path):
    app = shop()
    app.failure = ValueError("down")
    rules = {
        "governance": {"confirmed": ["shop.pay"], "roles": ["clerk"], "breaker": {"failures": 1, "open_seconds": 3600}},
        "tools": {"limits": {"shop.look": {"calls": 1, "seconds": 3600}}},
    }
    agents.script(calls(("shop.look", {}), ("shop.pay", {"amount": 1})), {"text": "x"}, **rules)
    async with runtime_of(agents, tmp_path, app) as runtime:
        await runtime.trigger("watch")

    async with runtime_of(agents, tmp_path, shop()) as runtime:
        hidden = (await visibility(runtime, await runtime.trigger("watch")))["hidden"]

    assert sorted((each["by"], *each["tools"]) for each in hidden) == [("breaker", "shop.pay"), ("rate", "shop.look")]


async def test_retryable_errors_of_tools_that_may_be_repeated_are_tried_again(agents, tmp_path):
    app, clock = shop(), ManualClock(SUNDAY)
    app.failure = RetryableError("busy")
    limits = {"*": {"attempts": 3}}
    agents.script(
        calls(("shop.pay", {"amount": 1})),
        calls(("shop.burn", {})),
        {"text": "x"},
        governance={"confirmed": ["*"]},
        tools={"limits": limits},
    )

    async with runtime_of(agents, tmp_path, app, clock=clock) as runtime:
        outcome = asyncio.create_task(runtime.trigger("watch"))
        while not outcome.done():
            await clock.advance(0.1)
            await asyncio.sleep(0)
        run = await outcome
        finished = await entry(runtime, run, EntryKind.TOOL_FINISHED)

    assert app.calls == [1, 1, 1, "burn"]
    assert finished["metadata"] == {"attempts": 3}
    assert finished["error"]["retryable"]


async def test_the_visibility_record_of_five_hundred_tools_is_short(agents, tmp_path):
    app = OwlClaw("many")
    for number in range(500):
        app.tool(f"tool_{number}", description="A tool.")(lambda: None)
    agents.define(governance={"hours": [{"tools": ["many.tool_1*"], "from": "09:00", "to": "09:01"}]})

    async with runtime_of(
        agents, tmp_path, app, models=[Model(lambda request: says("x"))], clock=ManualClock(SUNDAY)
    ) as runtime:
        seen = await visibility(runtime, await runtime.trigger("watch"))

    assert seen["visible"] == 510 - 111
    assert [len(each["tools"]) for each in seen["hidden"]] == [111]
    assert len(json.dumps({**seen, "hidden": []})) < 150


def daily(name="b", **options):
    return {"governance": {"budgets": [{"name": name, "period": "day", **options}]}}


async def books(runtime):
    """Return what the store has of budgets: (used, reserved) by account, and the reservations that stand."""
    from sqlalchemy import text

    def read(connection):
        accounts = connection.execute(text("SELECT account, used, reserved FROM budgets")).all()
        return {row[0]: (row[1], row[2]) for row in accounts}, connection.execute(
            text("SELECT count(*) FROM budget_reservations")
        ).scalar_one()

    return await runtime.store._database.read(read)


async def test_a_spent_budget_ends_the_run_before_the_model_is_asked(agents, tmp_path):
    clock, model = ManualClock(SUNDAY.replace(hour=23, minute=59)), Model(lambda request: says("x"))
    agents.define(**daily(unit="tokens", limit=20))

    async with runtime_of(agents, tmp_path, shop(), models=[model], clock=clock) as runtime:
        runs = [await runtime.trigger("watch") for _ in range(3)]
        warnings = await runtime.store.read(LedgerFilter(DEFAULT_TENANT, kind=LedgerKind.WARNING))
        await clock.advance(60)
        later = await runtime.trigger("watch")
        held = await books(runtime)

    assert [run.status for run in runs] == [RunStatus.COMPLETED, RunStatus.COMPLETED, RunStatus.TERMINATED]
    assert runs[2].result.error.type == "budget_exhausted"
    assert runs[2].result.error.message == (
        "the budget b (20 tokens for the agent a day) is spent: 30 tokens used; it is renewed at 2026-11-23T00:00:00+00:00"
    )
    assert later.status is RunStatus.COMPLETED
    assert len(model.requests) == 3
    assert [each.record.data["why"] for each in warnings] == [
        "50 % of the budget b (20 tokens for the agent a day) is used",
        "80 % of the budget b (20 tokens for the agent a day) is used",
        runs[2].result.error.message,
    ]
    assert held == (
        {"b.tokens.2026-11-22@default/watch": (30, 0), "b.tokens.2026-11-23@default/watch": (15, 0)},
        0,
    )


async def test_a_price_of_the_settings_is_what_calls_cost_in_result_ledger_and_budget(agents, tmp_path):
    agents.define(model="own/large", **daily(unit="money", limit=1))
    prices = {"own/*": Price(1_000.0, 2_000.0)}
    model = Model(lambda request: replace(says("x"), model="own/large"))
    options = {"models": [model], "clock": ManualClock(SUNDAY), "prices": prices}
    async with runtime_of(agents, tmp_path, shop(), **options) as runtime:
        run = await runtime.trigger("watch")
        where = LedgerFilter(DEFAULT_TENANT, run_id=run.run_id, kind=LedgerKind.MODEL_CALL)
        [record] = await runtime.store.read(where)
        held = await books(runtime)

    assert run.result.usage.cost == record.record.data["usage"]["cost"] == pytest.approx(0.02)
    assert model.requests[0].model.max_tokens == 4_096
    assert held == ({"b.money.2026-11-22@default/watch": (20_000_000, 0)}, 0)


async def test_a_run_whose_model_has_no_price_fails_and_says_what_to_set(agents, tmp_path):
    agents.define(model="own/large", **daily(unit="money", limit=1))
    model = Model(lambda request: says("x"))
    async with runtime_of(agents, tmp_path, shop(), models=[model], clock=ManualClock(SUNDAY)) as runtime:
        run = await runtime.trigger("watch")

    assert (run.status, run.result.error.type) == (RunStatus.FAILED, "UnpricedModelError")
    assert run.result.error.message.endswith("say it under models.prices in owlclaw.yaml")
    assert model.requests == []


async def test_agents_of_a_tenant_share_its_budget_and_together_overspend_it_by_less_than_one_reservation(
    agents, tmp_path
):
    model = Model(lambda request: says("x"))
    agents.define(isolation="shared", **daily(unit="tokens", limit=100, scope="tenant", reserve=15))

    async with runtime_of(agents, tmp_path, shop(), models=[model], clock=ManualClock(SUNDAY)) as runtime:
        accepted = [
            await runtime.submit(AgentRef.parse(f"watch:{number}"), Trigger(TriggerKind.API)) for number in range(40)
        ]
        runs = [await runtime.outcome(each) for each in accepted]
        held = await books(runtime)

    completed = sum(run.status is RunStatus.COMPLETED for run in runs)
    assert {run.result.error.type for run in runs if run.result.error} == {"budget_exhausted"}
    assert held == ({"b.tokens.2026-11-22@default": (completed * 15, 0)}, 0)
    assert completed * 15 < 100 + 15
    assert completed == len(model.requests)


async def test_a_crash_between_reserving_and_settling_charges_once_and_leaves_nothing_reserved(agents, tmp_path):
    agents.define(**daily(unit="calls", limit=9))
    waiting, answers = asyncio.Event(), [None, says("x")]

    def decide(request):
        answer = answers.pop(0)
        if answer is None:
            waiting.set()
            return asyncio.Event().wait()
        return answer

    async with runtime_of(agents, tmp_path, shop(), models=[Model(decide)], clock=ManualClock(SUNDAY)) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        await waiting.wait()
        before = await books(runtime)
        await runtime.crash_hosts()
        run = await runtime.outcome(accepted)
        after = await books(runtime)

    assert run.status is RunStatus.COMPLETED
    assert before == ({"b.calls.2026-11-22@default/watch": (0, 1)}, 1)
    assert after == ({"b.calls.2026-11-22@default/watch": (1, 0)}, 0)


async def test_a_cancelled_run_gives_back_what_it_reserved(agents, tmp_path):
    agents.define(**daily(unit="money", limit=1.5))
    model = Model(lambda request: asyncio.Event().wait())

    async with runtime_of(agents, tmp_path, shop(), models=[model], clock=ManualClock(SUNDAY)) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        await model.asked.wait()
        reserved = await books(runtime)
        await runtime.cancel(DEFAULT_TENANT, accepted.run_id)
        await runtime.outcome(accepted)
        after = await books(runtime)

    account = "b.money.2026-11-22@default/watch"
    assert (reserved, after) == (({account: (0, 50_000_000)}, 1), ({account: (0, 0)}, 0))


def paying_once(agents, *turns, **options):
    pays = {"name": "pays", "unit": "calls", "limit": 1, "period": "day", "tools": ["shop.*"]}
    agents.script(*turns, {"text": "x"}, governance={"confirmed": ["*"], "budgets": [pays]}, **options)


async def test_a_call_that_is_cut_off_is_charged(agents, tmp_path):
    """What was begun may have done what it does, whatever ended it: the next run has no call left."""
    app, begun, gate = OwlClaw("shop"), threading.Event(), threading.Event()

    @app.handler("hang", effect="idempotent")
    def hang() -> bool:
        begun.set()
        return gate.wait(60)

    paying_once(agents, calls(("shop.hang", {})))
    async with runtime_of(agents, tmp_path, app, clock=ManualClock(SUNDAY)) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        await asyncio.to_thread(begun.wait)
        await runtime.cancel(DEFAULT_TENANT, accepted.run_id)
        run = await runtime.outcome(accepted)
        gate.set()
        told, held = await results(runtime, run), await books(runtime)

    assert told == ["uncertain"]
    assert held == ({"pays.calls.2026-11-22@default/watch": (1, 0)}, 0)


async def test_a_call_whose_tool_asks_holds_no_budget_while_it_waits_for_a_person(agents, tmp_path):
    app, paid = OwlClaw("shop"), []

    @app.handler("give", effect="idempotent")
    def give(context: ToolContext) -> str:
        if not context.approved:
            raise ApprovalNeededError("all", "it is much")
        paid.append(1)
        return "given"

    paying_once(agents, calls(("shop.give", {})))
    async with runtime_of(agents, tmp_path, app, clock=ManualClock(SUNDAY)) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        while not (asked := await runtime.approvals(ApprovalFilter(DEFAULT_TENANT))):
            await asyncio.sleep(0)
        waiting = await books(runtime)
        decision = ApprovalDecision(Decision.ALLOW_ONCE)
        await runtime.decide(DEFAULT_TENANT, asked[0].request.approval_id, decision)
        told = await results(runtime, await runtime.outcome(accepted))
        after = await books(runtime)

    account = "pays.calls.2026-11-22@default/watch"
    assert waiting == ({account: (0, 0)}, 0)
    assert (told, paid) == (["given"], [1])
    assert after == ({account: (1, 0)}, 0)


async def test_a_tool_that_may_be_called_once_a_day_is_refused_and_then_hidden(agents, tmp_path):
    app = shop()
    agents.script(
        calls(("shop.pay", {"amount": 1})),
        calls(("shop.pay", {"amount": 2})),
        {"text": "x"},
        governance={
            "confirmed": ["*"],
            "budgets": [{"name": "pays", "unit": "calls", "limit": 1, "period": "day", "tools": ["shop.pay"]}],
        },
    )

    async with runtime_of(agents, tmp_path, app, clock=ManualClock(SUNDAY)) as runtime:
        first = await results(runtime, await runtime.trigger("watch"))
        second = await runtime.trigger("watch")
        hidden = (await visibility(runtime, second))["hidden"]
        held = await books(runtime)

    assert first == ["paid", "budget_exhausted"]
    assert [each["tools"] for each in hidden if each["by"] == "budget"] == [["shop.pay"]]
    assert app.calls == [1]
    assert held == ({"pays.calls.2026-11-22@default/watch": (1, 0)}, 0)


async def test_a_run_without_budgets_sends_no_command_more(agents, tmp_path, monkeypatch):
    from owlclaw_ray.store.group_commit import GroupCommit

    sent = []
    apply = GroupCommit.apply

    async def noted(self, commands):
        sent.append(tuple(type(each).__name__ for each in commands))
        return await apply(self, commands)

    monkeypatch.setattr(GroupCommit, "apply", noted)
    agents.script(calls(("shop.look", {})), {"text": "x"}, governance={"roles": ["clerk"]})
    async with runtime_of(agents, tmp_path, shop()) as runtime:
        await runtime.trigger("watch")

    assert not [each for each in sent if "ReserveBudget" in each or "SettleBudget" in each]
    assert all(len(each) == 1 for each in sent)


async def test_agents_of_two_definitions_exhaust_one_budget_of_owlclaw_yaml(agents, tmp_path):
    model = Model(lambda request: says("x"))
    agents.define("watch")
    agents.define("guard")
    (tmp_path / "owlclaw.yaml").write_text("budgets: [{name: house, unit: calls, limit: 5, period: day}]")
    defaults = load_settings(tmp_path, {}).defaults

    async with runtime_of(
        agents, tmp_path, shop(), models=[model], clock=ManualClock(SUNDAY), defaults=defaults
    ) as runtime:
        runs = [await runtime.trigger(("watch", "guard")[number % 2]) for number in range(7)]
        held = await books(runtime)

    assert [run.status for run in runs] == 5 * [RunStatus.COMPLETED] + 2 * [RunStatus.TERMINATED]
    assert {run.agent.agent_id for run in runs[5:]} == {"watch", "guard"}
    assert all(run.result.error.type == "budget_exhausted" for run in runs[5:])
    assert "the budget house (5 calls for the tenant a day) is spent: 5 calls used" in runs[6].result.error.message
    assert held == ({"house.calls.2026-11-22@default": (5, 0)}, 0)
    assert len(model.requests) == 5


async def test_a_budget_of_owlclaw_yaml_may_be_one_for_each_agent(agents, tmp_path):
    agents.define("watch")
    agents.define("guard")
    (tmp_path / "owlclaw.yaml").write_text("budgets: [{name: each, unit: calls, limit: 1, scope: agent}]")
    defaults = load_settings(tmp_path, {}).defaults

    async with runtime_of(agents, tmp_path, shop(), models=[Model(lambda _: says("x"))], defaults=defaults) as runtime:
        runs = [await runtime.trigger(name) for name in ("watch", "guard", "guard")]

    assert [run.status for run in runs] == [RunStatus.COMPLETED, RunStatus.COMPLETED, RunStatus.TERMINATED]


async def test_a_skill_of_high_risk_is_not_read_until_somebody_confirms_it_and_neither_is_its_capability_called(
    agents, tmp_path
):
    app, model = (
        shop(),
        Model(lambda request: says("stop") if len(request.messages) > 1 else asks(("shop__burn", "{}"))),
    )
    folder = agents.define()
    skill = folder / "capabilities" / "burn" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: burn\ndescription: Burning.\nowlclaw: {risk_level: critical}\n---\nBurn it all.\n")

    async with runtime_of(agents, tmp_path, app, models=[model], defaults=NOBODY) as runtime:
        refused = await runtime.trigger("watch")
        seen, told = await visibility(runtime, refused), await results(runtime, refused)
        agents.define(governance={"confirmed": ["shop.burn"]})
        confirmed = await runtime.trigger("watch")
        now_seen = await visibility(runtime, confirmed)

    assert told == ["tool_not_available"]
    assert "Burn it all." not in model.requests[0].system
    assert seen["skills"] == [{"skills": ["burn"], "by": "risk", "reason": REASON}]
    assert {"tools": ["shop.burn"], "by": "risk", "reason": REASON} in seen["hidden"]
    assert "Burn it all." in model.requests[2].system
    assert app.calls == ["burn"]
    assert "skills" not in now_seen


async def test_where_people_can_be_asked_a_call_asks_that_only_its_skill_calls_risky(agents, tmp_path):
    app, asked = shop(), []
    folder = agents.script(calls(("shop.burn", {})), {"text": "x"})
    skill = folder / "capabilities" / "burn" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: burn\ndescription: Burning.\nowlclaw: {requires_confirmation: true}\n---\nBurn.\n")

    async def approve(request):
        asked.append((request.tool, request.reason))
        return Decision.DENY

    async with runtime_of(agents, tmp_path, app, approve=approve) as runtime:
        seen = await visibility(runtime, await runtime.trigger("watch"))

    assert asked == [("shop.burn", "its skill burn requires confirmation")]
    assert app.calls == []
    assert "skills" not in seen


@pytest.mark.parametrize(
    ("selector", "asks_two"),
    [
        ("shop.pay", True),
        ("shop.*", True),
        ("tag:risk:high", True),
        ("risk:high", True),
        ("risk:low", True),
        ("risk:critical", False),
        ("shop.look", False),
    ],
)
@pytest.mark.parametrize("file", ["own", "inherited"])
async def test_what_two_people_must_allow_asks_them_though_it_is_allowed_and_confirmed(
    agents, tmp_path, selector, asks_two, file
):
    app, asked = shop(), []
    rules = {"own": {}, "inherited": {}, file: {"two_people": [selector]}}
    agents.script(
        calls(("shop.pay", {"amount": 5})),
        {"text": "x"},
        governance={"confirmed": ["shop.pay"]},
        permissions={"allow": ["shop.*"], **rules["own"]},
    )
    policy = PermissionPolicy(inherited=PermissionSettings(**rules["inherited"]).rules)

    async def approve(request):
        asked.append((request.needed, request.reason))
        return Decision.ALLOW_ONCE

    async with runtime_of(agents, tmp_path, app, approve=approve, defaults=Defaults(permissions=policy)) as runtime:
        told = await results(runtime, await runtime.trigger("watch"))

    assert asked == ([(2, f"permissions.two_people has {selector!r}")] if asks_two else [])
    assert (app.calls, told) == (([], ["denied"]) if asks_two else ([5], ["paid"]))


async def test_a_run_goes_on_when_two_people_allowed_its_call_and_for_the_session_if_both_say_so(agents, tmp_path):
    app = shop()
    paying = calls(("shop.pay", {"amount": 5}))
    agents.script(paying, paying, {"text": "x"}, permissions={"two_people": ["risk:high"]})
    ada, bob = (
        ApprovalDecision(Decision.ALLOW_FOR_SESSION, by=name, principal=f"person:idp/{name}") for name in ("ada", "bob")
    )
    async with runtime_of(agents, tmp_path, app) as runtime:
        accepted = await runtime.submit(WATCH, Trigger(TriggerKind.API))
        while not (found := await runtime.approvals(ApprovalFilter(DEFAULT_TENANT))):
            await asyncio.sleep(0)
        for decision in (ada, ada):
            approval = await runtime.decide(DEFAULT_TENANT, found[0].request.approval_id, decision)
            assert (approval.still_needed, app.calls) == (1, [])
        await runtime.decide(DEFAULT_TENANT, found[0].request.approval_id, bob)
        run = await runtime.outcome(accepted)

    assert (run.status, app.calls) == (RunStatus.COMPLETED, [5, 5])


def test_what_one_person_allowed_for_the_session_is_not_allowed_by_two():
    [pay] = [each for each in shop().registry.definitions() if each.name == "shop.pay"]
    grants = SessionGrants()

    grants.add(pay, "x", "apr_1")

    assert (grants.covering(pay, "x"), grants.covering(pay, "x", 2)) == ("apr_1", None)
