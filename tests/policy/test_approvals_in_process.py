"""Hooks, permissions and approvals with the real tools, in one process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from owlclaw_ray import Change, Deny, OwlClaw
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import ApprovalDecision, ApprovalStatus, Decision
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import ApprovalNeededError, ToolArgumentsError
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.store.queries import ApprovalFilter, JournalOfRun, LedgerFilter
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.context import ToolContext
from tests.worlds import Model, asks, says

WATCH = AgentRef.parse("watch")
PENDING = ApprovalFilter(DEFAULT_TENANT, status=ApprovalStatus.PENDING)


@dataclass
class Mail:
    """An application that sends, dangerously, and remembers what it sent."""

    sent: list = field(default_factory=list)
    app: OwlClaw = field(default_factory=lambda: OwlClaw("mail"))

    def __post_init__(self):
        @self.app.handler("send", tags=["dangerous"], target=["to"])
        def send(to: str, text: str = "") -> str:
            self.sent.append((to, text))
            return f"sent to {to}"

        @self.app.handler("open")
        def read(path: str, context: ToolContext) -> str:
            if path == ".env" and not context.approved:
                raise ApprovalNeededError("/work/.env", "it holds secrets")
            self.sent.append((path, "read"))
            return path


@pytest.fixture
def mail():
    return Mail()


def turns(*replies):
    """Return a model that gives these replies in every run, one a turn."""

    def decide(request):
        turn = sum(bool(message.tool_calls) for message in request.messages)
        return replies[turn] if turn < len(replies) else says("done")

    return Model(decide)


def sending(*recipients):
    return asks(*[("mail__send", f'{{"to":"{to}"}}') for to in recipients])


async def asked(runtime, number=1):
    """Return what waits for a decision as soon as so much does."""
    while len(found := await runtime.approvals(PENDING)) < number:
        await asyncio.sleep(0)
    return found


async def begin(runtime):
    return await runtime.submit(WATCH, Trigger(TriggerKind.API))


async def finished(runtime, run):
    entries = await runtime.store.read(JournalOfRun(DEFAULT_TENANT, run.run_id))
    return [entry.data for entry in entries if entry.kind is EntryKind.TOOL_FINISHED]


async def test_an_approver_may_put_other_arguments_in_the_place_of_the_models(agents, tmp_path, mail):
    agents.define()
    options = {"agents_dir": agents.folder, "data_dir": tmp_path / "data", "app": mail.app}
    async with in_process_runtime(**options, models=[turns(sending("ada"))]) as runtime:
        accepted = await begin(runtime)
        [approval] = await asked(runtime)
        approval_id = approval.request.approval_id
        for wrong in ({"to": 3}, {"to": "bob", "more": 1}, {}):
            decision = ApprovalDecision(Decision.ALLOW_ONCE, arguments=wrong)
            with pytest.raises(ToolArgumentsError):
                await runtime.decide(DEFAULT_TENANT, approval_id, decision)
        decision = ApprovalDecision(Decision.ALLOW_ONCE, arguments={"to": "bob", "text": "hi"})
        await runtime.decide(DEFAULT_TENANT, approval_id, decision)
        run = await runtime.outcome(accepted)
        [result] = await finished(runtime, run)
        records = await runtime.ledger(LedgerFilter(DEFAULT_TENANT, run_id=run.run_id, kind=LedgerKind.APPROVAL))

    assert (run.status, mail.sent) == (RunStatus.COMPLETED, [("bob", "hi")])
    assert result["arguments"] == '{"to":"ada"}'
    assert result["executed"] == '{"to":"bob","text":"hi"}'
    assert records[-1].record.data["arguments"] == {"to": "bob", "text": "hi"}


async def test_what_is_allowed_for_the_session_is_allowed_for_its_target_until_the_agent_leaves(agents, tmp_path, mail):
    """tool-registry: grants are kept in memory only, by tool and normalised target scope."""
    agents.define()
    for_session = ApprovalDecision(Decision.ALLOW_FOR_SESSION)
    options = {"agents_dir": agents.folder, "data_dir": tmp_path / "data", "app": mail.app}
    model = turns(sending("ada"), sending("ada"), sending("bob"))
    async with in_process_runtime(**options, models=[model]) as runtime:
        accepted = await begin(runtime)
        [first] = await asked(runtime)
        await runtime.decide(DEFAULT_TENANT, first.request.approval_id, for_session)
        [second] = await asked(runtime)
        await runtime.decide(DEFAULT_TENANT, second.request.approval_id, for_session)
        await runtime.outcome(accepted)
        assert (await runtime.trigger("watch")).status is RunStatus.COMPLETED
        await runtime.crash_hosts()
        accepted = await begin(runtime)
        [third] = await asked(runtime)
        await runtime.cancel(DEFAULT_TENANT, accepted.run_id)
        await runtime.outcome(accepted)

    targets = [each.request.target for each in (first, second, third)]
    assert targets == ['{"to":"ada"}', '{"to":"bob"}', '{"to":"ada"}']
    assert [to for to, _ in mail.sent] == ["ada", "ada", "bob"] * 2


async def test_a_tool_that_wants_an_approval_for_this_call_gets_it_and_acts_once(agents, tmp_path, mail):
    """tool-registry: a sensitive path triggers the permission callback."""
    agents.define()
    options = {"agents_dir": agents.folder, "data_dir": tmp_path / "data", "app": mail.app}
    model = turns(asks(("mail__open", '{"path":"notes"}'), ("mail__open", '{"path":".env"}')))
    async with in_process_runtime(**options, models=[model]) as runtime:
        accepted = await begin(runtime)
        [approval] = await asked(runtime)
        await runtime.crash_hosts()
        await runtime.decide(DEFAULT_TENANT, approval.request.approval_id, ApprovalDecision(Decision.ALLOW_ONCE))
        run = await runtime.outcome(accepted)

    assert (approval.request.target, approval.request.reason) == ("/work/.env", "it holds secrets")
    assert run.status is RunStatus.COMPLETED
    assert mail.sent == [("notes", "read"), (".env", "read")]


async def test_hooks_come_before_the_permission_and_what_they_changed_is_what_is_asked_about(agents, tmp_path, mail):
    """tool-registry: the order is PreToolUse hook, permission, execution; a denied call asks nobody."""
    agents.define()
    hooked = []

    @mail.app.before_tool("mail.send")
    def lower(use):
        hooked.append(use.arguments["to"])
        if use.arguments["to"] == "EVE":
            return Deny("not to her")
        return Change(arguments={"to": use.arguments["to"].lower()})

    requests = []

    async def approve(request):
        requests.append(request)
        return Decision.ALLOW_ONCE

    options = {"agents_dir": agents.folder, "data_dir": tmp_path / "data", "app": mail.app, "approve": approve}
    async with in_process_runtime(**options, models=[turns(sending("ADA"), sending("EVE"))]) as runtime:
        run = await runtime.trigger("watch")
        sent, refused = await finished(runtime, run)

    assert hooked == ["ADA", "EVE"]
    assert [request.arguments for request in requests] == [{"to": "ada"}]
    assert requests[0].hooks[0]["verdict"] == "changed"
    assert mail.sent == [("ada", "")]
    assert (sent["arguments"], sent["executed"]) == ('{"to":"ADA"}', '{"to":"ada"}')
    assert sent["hooks"][0]["arguments"] == {"to": "ada"}
    assert (refused["error"]["type"], refused["hooks"][0]["verdict"]) == ("denied", "denied")


async def test_what_hooks_changed_is_in_journal_and_ledger_as_it_was_and_as_it_is(agents, tmp_path):
    agents.define()
    app = OwlClaw("shop")
    app.handler("sell")(sell)
    app.before_tool()(lambda use: Change(arguments={"what": "coffee"}))
    app.after_tool()(lambda use, result: Change(result="masked"))
    options = {"agents_dir": agents.folder, "data_dir": tmp_path / "data", "app": app}
    model = turns(asks(("shop__sell", '{"what":"tea"}')))
    async with in_process_runtime(**options, models=[model]) as runtime:
        run = await runtime.trigger("watch")
        [result] = await finished(runtime, run)
        where = LedgerFilter(DEFAULT_TENANT, run_id=run.run_id, kind=LedgerKind.TOOL_CALL)
        [record] = await runtime.ledger(where)

    assert (result["arguments"], result["executed"]) == ('{"what":"tea"}', '{"what":"coffee"}')
    assert (result["content"], result["hooks"][-1]["original"]) == ("masked", {"content": "sold coffee"})
    assert record.record.data == result
    assert model.requests[-1].messages[-1].content == "masked"


def sell(what: str) -> str:
    """Sell something."""
    return f"sold {what}"


async def test_the_rules_of_an_agent_are_those_of_its_file(agents, tmp_path, mail):
    agents.define(permissions={"allow": ["mail.send"], "deny": ["mail.open"]})
    options = {"agents_dir": agents.folder, "data_dir": tmp_path / "data", "app": mail.app}
    model = turns(sending("ada"), asks(("mail__open", '{"path":"notes"}')))
    async with in_process_runtime(**options, models=[model]) as runtime:
        run = await runtime.trigger("watch")
        _, denied = await finished(runtime, run)

    assert mail.sent == [("ada", "")]
    assert denied["error"]["message"] == "mail.open must not be called: permissions.deny has 'mail.open'"


async def test_a_run_without_hooks_and_approvals_makes_no_more_calls_and_commits_than_before(agents, tmp_path):
    agents.define()
    app = OwlClaw("shop")
    app.handler("sell")(sell)
    commits, calls = [], []
    options = {"agents_dir": agents.folder, "data_dir": tmp_path / "data", "app": app}
    model = turns(asks(("shop__sell", '{"what":"tea"}')))
    async with in_process_runtime(**options, models=[model]) as runtime:
        tools, store = runtime.pool._services.tools, runtime.store
        run_tool, apply = tools.run, store.apply

        async def counted_run(invocation, confirm):
            calls.append(invocation.tool)
            return await run_tool(invocation, confirm)

        async def counted_apply(commands):
            commits.extend(type(command).__name__ for command in commands)
            return await apply(commands)

        object.__setattr__(tools, "run", counted_run)
        object.__setattr__(store, "apply", counted_apply)
        await runtime.trigger("watch")

    assert calls == ["shop.sell"]
    assert commits[:6] == [
        "SubmitRun",
        "ActivateAgent",
        "AppendJournal",
        "AppendJournal",
        "AppendJournal",
        "FinishRun",
    ]


async def decided_in_another_runtime(agents, tmp_path, app, approval_id, accepted):
    """Allow a call in a second runtime over the same data, and return what became of it."""
    options = {"agents_dir": agents.folder, "data_dir": tmp_path / "data", "app": app}
    async with in_process_runtime(**options, models=[turns(sending("ada"))]) as runtime:
        await runtime.decide(DEFAULT_TENANT, approval_id, ApprovalDecision(Decision.ALLOW_FOR_SESSION))
        [result] = await finished(runtime, await runtime.outcome(accepted))
    return result


async def asked_in_one_runtime(agents, tmp_path, mail):
    options = {"agents_dir": agents.folder, "data_dir": tmp_path / "data", "app": mail.app}
    async with in_process_runtime(**options, models=[turns(sending("ada"))]) as runtime:
        accepted = await begin(runtime)
        [approval] = await asked(runtime)
    return approval.request.approval_id, accepted


async def test_a_rule_that_denies_holds_though_it_was_written_after_the_call_had_asked(agents, tmp_path, mail):
    agents.define()
    approval_id, accepted = await asked_in_one_runtime(agents, tmp_path, mail)
    agents.define(permissions={"deny": ["mail.*"]})

    result = await decided_in_another_runtime(agents, tmp_path, mail.app, approval_id, accepted)

    assert result["error"]["message"] == "mail.send must not be called: permissions.deny has 'mail.*'"
    assert mail.sent == []


async def test_what_was_approved_is_the_tool_as_it_was(agents, tmp_path, mail):
    agents.define()
    approval_id, accepted = await asked_in_one_runtime(agents, tmp_path, mail)
    other, sent = OwlClaw("mail"), []

    @other.handler("send", tags=["dangerous"], target=["to"], description="Send it to everybody.")
    def send(to: str, text: str = "") -> str:
        sent.append(to)
        return "sent"

    result = await decided_in_another_runtime(agents, tmp_path, other, approval_id, accepted)

    assert result["error"]["type"] == "denied"
    assert "mail.send has changed since it was approved" in result["error"]["message"]
    assert sent == []


async def test_the_ledger_names_the_approval_by_which_a_call_runs_unasked(agents, tmp_path, mail):
    agents.define()
    options = {"agents_dir": agents.folder, "data_dir": tmp_path / "data", "app": mail.app}
    async with in_process_runtime(**options, models=[turns(sending("ada"), sending("ada"))]) as runtime:
        accepted = await begin(runtime)
        [approval] = await asked(runtime)
        approval_id = approval.request.approval_id
        await runtime.decide(DEFAULT_TENANT, approval_id, ApprovalDecision(Decision.ALLOW_FOR_SESSION))
        run = await runtime.outcome(accepted)
        records = await runtime.ledger(LedgerFilter(DEFAULT_TENANT, run_id=run.run_id, kind=LedgerKind.APPROVAL))

    assert len(mail.sent) == 2
    assert [each.record.data["what"] for each in records] == ["requested", "decided", "granted"]
    assert records[-1].record.data["approval_id"] == approval_id
