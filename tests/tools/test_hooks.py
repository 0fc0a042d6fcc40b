"""Hooks of an application around its tools, in the worker."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from decimal import Decimal

import pytest
from msgspec.structs import replace

from owlclaw_ray import ApprovalNeededError, CallTarget, Change, ConfigurationError, Deny, OwlClaw, ToolContext
from owlclaw_ray.domain.tool import Permission, ToolClass
from owlclaw_ray.domain.tool_call import Stage
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools import hooks
from owlclaw_ray.tools.artifacts import ArtifactFolder
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.sources import ToolSources
from tests.tools.test_executor import OneBuiltIn, call


class Shop:
    """An application with a tool that remembers what it was called with."""

    def __init__(self):
        self.app = OwlClaw("shop")
        self.sold, self.clock = [], ManualClock()

        @self.app.handler("sell", tags=["money"], target=["what"])
        def sell(what: str, number: int = 1) -> str:
            self.sold.append((what, number))
            return f"sold {what}"

        @self.app.tool("price")
        def price(what: str) -> int:
            if what == "nothing":
                raise ValueError("there is no such thing")
            return 7

    @property
    def executor(self):
        sources = ToolSources((OneBuiltIn(lambda *_: None), *self.app.sources()))
        return LocalExecutor(sources, self.clock, hooks=self.app.registry.hooks)

    def run(self, tool="shop.sell", arguments=None, stage=Stage.RUN, **options):
        invocation = call(tool, {"what": "tea"} if arguments is None else arguments, **options)
        return self.executor.run_one(replace(invocation, stage=stage))


@pytest.fixture
def shop():
    return Shop()


def test_without_hooks_an_outcome_says_nothing_of_them(shop):
    outcome = shop.run()

    assert outcome.result.content == "sold tea"
    assert (outcome.hooks, outcome.arguments, outcome.checked) == ((), None, None)


def test_a_hook_sees_the_call_and_its_context_and_lets_it_pass(shop):
    seen = []
    shop.app.before_tool()(seen.append)

    outcome = shop.run()

    [use] = seen
    assert (use.tool, use.permission, use.tags) == ("shop.sell", Permission.WRITE, {"money"})
    assert (use.arguments, use.context.agent_id) == ({"what": "tea"}, "trader:A")
    assert shop.sold == [("tea", 1)]
    assert [(each["stage"], each["verdict"]) for each in outcome.hooks] == [("before", "allowed")]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_hook_denies_with_a_reason_that_the_model_is_told(shop, kind):
    async def slow_refusal(use):
        return Deny("not on a Friday")

    shop.app.before_tool("shop.*")((lambda use: Deny("not on a Friday")) if kind == "sync" else slow_refusal)

    outcome = shop.run()

    assert (outcome.result.error.type, shop.sold) == ("denied", [])
    assert "not on a Friday" in outcome.result.error.message
    assert [(each["verdict"], each["reason"]) for each in outcome.hooks] == [("denied", "not on a Friday")]


def test_a_denied_call_goes_to_no_further_hook(shop):
    seen = []
    shop.app.before_tool()(lambda use: Deny("no"))
    shop.app.before_tool()(seen.append)
    shop.app.after_tool()(lambda use, result: seen.append(result))

    shop.run()

    assert not seen


def test_hooks_change_arguments_one_after_another_and_the_tool_gets_the_last(shop):
    seen = []
    shop.app.before_tool()(lambda use: Change(arguments={**use.arguments, "number": 2}))
    shop.app.before_tool()(lambda use: seen.append(use.arguments))
    shop.app.before_tool()(lambda use: Change(arguments={"what": "coffee", "number": use.arguments["number"]}))

    outcome = shop.run()

    assert (shop.sold, seen) == ([("coffee", 2)], [{"what": "tea", "number": 2}])
    assert json.loads(outcome.arguments) == {"what": "coffee", "number": 2}
    assert [each["verdict"] for each in outcome.hooks] == ["changed", "allowed", "changed"]
    assert outcome.hooks[0]["arguments"] == {"what": "tea", "number": 2}


def test_what_a_hook_does_to_the_object_that_it_is_shown_changes_nothing(shop):
    @shop.app.before_tool()
    def meddle(use):
        use.arguments["what"] = "poison"

    shop.run()

    assert shop.sold == [("tea", 1)]


def test_arguments_that_a_hook_made_wrong_are_refused_before_the_tool_runs(shop):
    shop.app.before_tool()(lambda use: Change(arguments={"what": 3}))

    outcome = shop.run()

    assert (outcome.result.error.type, shop.sold) == ("invalid_arguments", [])


@pytest.mark.parametrize(
    "hook",
    [
        lambda use: 1 / 0,
        lambda use: True,
        lambda use: Change(),
        lambda use: Change(arguments={"what": object()}),
        lambda use: sys.exit(3),
    ],
)
def test_a_hook_that_raises_or_says_what_no_hook_can_say_denies(shop, hook):
    shop.app.before_tool()(hook)

    outcome = shop.run()

    assert (outcome.result.error.type, shop.sold) == ("denied", [])
    assert outcome.hooks[-1]["verdict"] == "failed"
    assert "test_hooks" in outcome.hooks[-1]["reason"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_hook_that_is_late_denies(shop, kind, monkeypatch):
    monkeypatch.setattr("owlclaw_ray.tools.hooks.HOOK_SECONDS", 0.05)

    async def never(use):
        await asyncio.Event().wait()

    shop.app.before_tool()((lambda use: threading.Event().wait(20)) if kind == "sync" else never)

    outcome = shop.run()

    assert (outcome.result.error.type, shop.sold) == ("denied", [])
    assert "did not answer within 0.05 s" in outcome.result.error.message


def test_what_hooks_take_is_taken_from_the_calls_time(shop):
    @shop.app.before_tool()
    def slow(use):
        shop.clock._elapsed += 4.95

    @shop.app.tool("wait")
    def wait() -> None:
        threading.Event().wait(20)

    assert shop.run("shop.wait", {}, timeout=5.0).result.error.type == "timeout"


def test_a_hook_after_a_call_that_took_all_its_time_still_has_a_moment(shop):
    seen = []
    shop.app.after_tool()(lambda use, result: seen.append(result.error.type))

    @shop.app.tool("wait")
    def wait() -> None:
        shop.clock._elapsed += 9
        threading.Event().wait(20)

    shop.run("shop.wait", {}, timeout=0.05)

    assert seen == ["timeout"]


def test_hooks_are_chosen_by_name_by_pattern_and_by_tag(shop):
    seen = []

    def note(name):
        return lambda use: seen.append(name)

    shop.app.before_tool("shop.price")(note("name"))
    shop.app.before_tool("mail.*", "shop.s*")(note("pattern"))
    shop.app.before_tool(tags=["money", "risk"])(note("tag"))
    shop.app.before_tool("nothing", tags=["nothing"])(note("never"))

    shop.run()
    assert seen == ["pattern", "tag"]
    seen.clear()
    shop.run("shop.price")
    assert seen == ["name"]


def test_a_hook_after_a_call_sees_its_result_and_may_put_another_in_its_place(shop):
    seen = []
    shop.app.after_tool()(lambda use, result: seen.append(result.content))
    shop.app.after_tool()(lambda use, result: Change(result={"masked": Decimal("1.50")}))

    outcome = shop.run()

    assert (seen, shop.sold) == (["sold tea"], [("tea", 1)])
    assert outcome.result.content == {"masked": "1.50"}
    assert outcome.hooks[-1]["verdict"] == "changed"
    assert outcome.hooks[-1]["original"] == {"content": "sold tea"}


def test_a_hook_after_a_call_sees_failures_too(shop):
    seen = []
    shop.app.after_tool()(lambda use, result: seen.append(result.error.type))

    outcome = shop.run("shop.price", {"what": "nothing"})

    assert seen == ["execution_failed"]
    assert outcome.result.error.type == "execution_failed"


@pytest.mark.parametrize(
    "hook",
    [
        lambda use, result: Deny("a secret is in it"),
        lambda use, result: 1 / 0,
        lambda use, result: Change(result=object()),
    ],
)
def test_a_result_that_a_hook_withholds_is_kept_for_the_ledger_and_not_shown(shop, hook):
    shop.app.after_tool()(hook)

    outcome = shop.run()

    assert shop.sold == [("tea", 1)]
    assert (outcome.result.error.type, outcome.result.content) == ("denied", None)
    assert "sold tea" not in outcome.result.error.message
    assert outcome.hooks[-1]["verdict"] == "withheld"
    assert outcome.hooks[-1]["original"] == {"content": "sold tea"}


def test_a_check_says_what_a_call_would_do_and_does_nothing(shop):
    shop.app.before_tool()(lambda use: Change(arguments={**use.arguments, "number": 3}))
    shop.app.after_tool()(lambda use, result: 1 / 0)

    outcome = shop.run(stage=Stage.CHECK)

    assert not shop.sold
    assert json.loads(outcome.checked.arguments) == {"what": "tea", "number": 3}
    assert outcome.checked.target == '{"what":"tea"}'
    assert [each["verdict"] for each in outcome.hooks] == ["changed"]


def test_the_target_of_a_call_is_all_its_arguments_in_one_order_unless_the_tool_says_which(shop):
    outcome = shop.run("shop.price", '{"what" : "茶"}', stage=Stage.CHECK)

    assert outcome.checked.target == '{"what":"茶"}'
    assert outcome.checked.arguments == '{"what" : "茶"}'


def test_a_function_may_say_what_a_call_acts_on_and_where(shop):
    def where(arguments):
        return CallTarget(f"git in {arguments['folder'].rstrip('/')}", cwd=arguments["folder"])

    shop.app.handler("git", target=where)(git)

    checked = shop.run("shop.git", {"folder": "/work/"}, stage=Stage.CHECK).checked

    assert (checked.target, checked.cwd) == ("git in /work", "/work/")


def git(folder: str) -> str:
    """Ask git."""
    return folder


def test_a_call_whose_target_cannot_be_told_does_not_get_as_far_as_asking(shop):
    shop.app.handler("git", target=lambda arguments: 1 / 0)(git)

    outcome = shop.run("shop.git", {"folder": "/work"}, stage=Stage.CHECK)

    assert (outcome.checked, outcome.result.error.type) == (None, "execution_failed")


@pytest.mark.parametrize("arguments", ['{"what": 3}', "{", '{"what": "tea", "more": 1}'])
def test_a_check_refuses_wrong_arguments_before_anybody_is_asked(shop, arguments):
    outcome = shop.run(arguments=arguments, stage=Stage.CHECK)

    assert outcome.checked is None
    assert outcome.result.error.type == "invalid_arguments"


def test_an_approved_call_goes_to_no_hook_before_it_so_that_what_was_approved_is_what_runs(shop):
    seen = []
    shop.app.before_tool()(lambda use: Deny("never"))
    shop.app.after_tool()(lambda use, result: seen.append(result.content))

    outcome = shop.run(stage=Stage.APPROVED)

    assert (outcome.result.content, seen) == ("sold tea", ["sold tea"])


def test_a_tool_may_want_an_approval_for_what_it_is_asked_to_do(shop):
    shop.app.before_tool("shop.read")(lambda use: Change(arguments={"path": ".env"}))

    @shop.app.tool("read")
    def read(path: str, context: ToolContext) -> str:
        if path == ".env" and not context.approved:
            raise ApprovalNeededError("/work/.env", "the path is sensitive")
        return path

    first = shop.run("shop.read", {"path": "x"})
    second = shop.run("shop.read", first.checked.arguments, stage=Stage.APPROVED)

    assert (first.checked.target, first.checked.reason) == ("/work/.env", "the path is sensitive")
    assert json.loads(first.checked.arguments) == {"path": ".env"}
    assert second.result.content == ".env"


def test_a_tool_that_wants_more_than_was_approved_is_denied(shop):
    @shop.app.tool("greedy")
    def greedy():
        raise ApprovalNeededError("more", "always more")

    outcome = shop.run("shop.greedy", {}, stage=Stage.APPROVED)

    assert (outcome.checked, outcome.result.error.type) == (None, "denied")


def test_hooks_see_built_in_tools_which_then_have_a_task_of_their_own(shop):
    seen = []
    definitions = tuple(
        replace(each, tool_class=ToolClass.QUICK)
        for each in (*shop.app.registry.definitions(), *OneBuiltIn(None).definitions())
    )
    assert {each.tool_class for each in shop.app.registry.hooks.apart(definitions)} == {ToolClass.QUICK}

    shop.app.before_tool("query_state")(lambda use: seen.append(use.tool) or Deny("no"))

    apart = {each.name: each.tool_class for each in shop.app.registry.hooks.apart(definitions)}
    assert apart == {"query_state": ToolClass.ALONE, "shop.price": ToolClass.QUICK, "shop.sell": ToolClass.QUICK}
    assert shop.run("query_state", {"state_name": "x"}).result.error.type == "denied"
    assert seen == ["query_state"]


def test_a_function_that_cannot_be_called_like_a_hook_is_refused_at_registration(shop):
    with pytest.raises(ConfigurationError, match="cannot be called with a ToolUse"):
        shop.app.before_tool()(lambda: None)
    with pytest.raises(ConfigurationError, match="a ToolUse and a ToolResult"):
        shop.app.after_tool()(lambda use: None)


def test_a_target_names_arguments_of_the_tool(shop):
    with pytest.raises(ConfigurationError, match="'whom', which the tool does not take"):
        shop.app.handler("send", target=["whom"])(lambda: None)


def test_hooks_have_five_seconds():
    assert hooks.HOOK_SECONDS == 5.0


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("reason", ["x" * 3_000_000, object(), "\ud800 alone"])
def test_the_reason_of_a_denial_is_a_short_text_whatever_the_hook_gives(shop, moment, reason):
    add = shop.app.before_tool() if moment == "before" else shop.app.after_tool()
    add(lambda *given: Deny(reason))

    outcome = shop.run()

    assert outcome.result.error.type == "denied"
    told = json.dumps([outcome.result.error.message, outcome.hooks], ensure_ascii=False).encode()
    assert len(told) < 17_000


def test_what_a_hook_does_to_the_result_that_it_is_shown_changes_nothing(shop):
    @shop.app.tool("read")
    def read() -> dict:
        return {"rows": [1]}

    @shop.app.after_tool()
    def meddle(use, result):
        use.arguments["what"] = result.content["rows"]
        result.content["rows"] = object()

    outcome = shop.run("shop.read", {})

    assert outcome.result.content == {"rows": [1]}
    assert [each["verdict"] for each in outcome.hooks] == ["allowed"]


def test_a_large_result_of_a_hook_is_kept_whole_and_its_original_is_told_in_short(shop, tmp_path):
    @shop.app.tool("rows")
    def rows() -> dict:
        return {"rows": ["x" * 50] * 3_000, "password": "p"}

    shop.app.after_tool()(lambda use, result: Change(result={**result.content, "password": "***"}))
    artifacts = ArtifactFolder(tmp_path)
    executor = LocalExecutor(ToolSources(shop.app.sources()), shop.clock, artifacts, shop.app.registry.hooks)

    invocation = call("shop.rows")
    outcome = executor.run_one(invocation)

    stored = artifacts.get(invocation.agent, outcome.result.content["artifact_ref"]["artifact_id"])
    assert json.loads(stored.content) == {"rows": ["x" * 50] * 3_000, "password": "***"}
    assert len(json.dumps(outcome.hooks)) < 17_000


def test_hooks_before_a_call_see_the_arguments_that_a_person_edited_and_may_deny(shop):
    shop.app.before_tool()(lambda use: Deny("no poison") if use.arguments["what"] == "poison" else None)

    fine, refused = (shop.run(arguments={"what": what}, stage=Stage.EDITED) for what in ("tea", "poison"))

    assert (fine.result.content, shop.sold) == ("sold tea", [("tea", 1)])
    assert refused.result.error.type == "denied"
    assert "no poison" in refused.result.error.message
    assert [(each["verdict"], each["edited"]) for each in fine.hooks + refused.hooks] == [
        ("allowed", True),
        ("denied", True),
    ]


def test_a_hook_that_would_change_what_a_person_wrote_denies(shop):
    shop.app.before_tool()(lambda use: Change(arguments={"what": use.arguments["what"].lower()}))

    same, other = (shop.run(arguments={"what": what}, stage=Stage.EDITED) for what in ("tea", "TEA"))

    assert shop.sold == [("tea", 1)]
    assert [each["verdict"] for each in same.hooks + other.hooks] == ["allowed", "denied"]
    assert "would change what a person wrote" in other.result.error.message


def test_a_tool_knows_that_an_edited_call_was_approved(shop):
    @shop.app.tool("ask")
    def ask(context: ToolContext) -> bool:
        return context.approved

    assert shop.run("shop.ask", {}, stage=Stage.EDITED).result.content is True


def test_a_check_takes_no_longer_than_the_call_may(shop):
    shop.app.handler("git", target=lambda arguments: threading.Event().wait(20))(git)

    outcome = shop.run("shop.git", {"folder": "/work"}, stage=Stage.CHECK, timeout=0.05)

    assert (outcome.checked, outcome.result.error.type) == (None, "timeout")
