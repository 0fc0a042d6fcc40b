import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.agent import AgentState
from owlclaw_ray.domain.entries import visibility_record
from owlclaw_ray.domain.governance import Governance, Hidden, Risk, ToolLimit, Visibility
from owlclaw_ray.domain.permission import Approver
from owlclaw_ray.domain.skill import Skill
from owlclaw_ray.policy.visibility import LONGEST, EvaluatorSet, VisibilityFacts
from owlclaw_ray.testing.clock import ManualClock
from tests.policy.world import AGENT, Rules, tool
from tests.properties import examples


class Evaluator:
    def __init__(self, name, judged, hide):
        self.name, self._judged, self._hide = name, judged, hide
        self.asked = 0

    def judged(self, facts):
        return self._judged

    async def hide(self, facts):
        self.asked += 1
        return await self._hide()


def gives(name, hidden, judged=None):
    async def hide():
        return hidden

    return Evaluator(name, judged or hidden, hide)


def raises(name, judged, error):
    async def hide():
        raise error

    return Evaluator(name, judged, hide)


async def no_budgets(claims):
    raise AssertionError("nobody asks for budgets here")


async def decided(clock, *evaluators, tools=("a", "b", "c")):
    panel = EvaluatorSet(evaluators, clock)
    return await panel.decide(tools, VisibilityFacts(AGENT, clock.now(), AgentState(), no_budgets))


async def test_what_no_evaluator_judges_is_visible_and_costs_no_question():
    idle = gives("idle", {})

    assert await decided(ManualClock(), idle) == Visibility(("a", "b", "c"))
    assert idle.asked == 0


async def test_every_hidden_tool_has_one_reason_and_tools_with_one_reason_stand_together():
    first, second = gives("first", {"a": "x", "b": "x"}), gives("second", {"b": "y", "c": "y", "gone": "y"})

    visible = await decided(ManualClock(), first, second, tools=("a", "b", "c", "d"))

    assert visible == Visibility(("d",), (Hidden(("a", "b"), "first", "x"), Hidden(("c",), "second", "y")))


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit("broken")])
async def test_an_evaluator_that_raises_hides_what_it_judges_and_nothing_else(error, caplog):
    visible = await decided(ManualClock(), raises("odd", ["a", "b"], error), gives("sound", {}, ["a", "b", "c"]))

    assert visible.visible == ("c",)
    [hidden] = visible.hidden
    assert (hidden.tools, hidden.by) == (("a", "b"), "odd")
    assert hidden.reason.startswith("the evaluator odd failed: ")
    assert "broken" in hidden.reason
    assert "the evaluator odd" in caplog.text


async def test_evaluators_are_asked_at_the_same_time_and_the_late_hide_what_they_judge():
    clock, never = ManualClock(), asyncio.Event()
    slow, slower = (Evaluator(name, [judged], never.wait) for name, judged in (("slow", "a"), ("slower", "b")))

    deciding = asyncio.create_task(decided(clock, slow, slower, gives("quick", {"c": "no"})))
    await clock.advance(LONGEST - 0.1)
    assert not deciding.done()
    await clock.advance(0.2)

    visible = await deciding
    assert visible.visible == ()
    assert [hidden.reason for hidden in visible.hidden] == [
        "the evaluator slow did not decide within 5 s",
        "the evaluator slower did not decide within 5 s",
        "no",
    ]


TOOLS = ("a", "b", "c", "d", "e")
REASONS = st.dictionaries(st.sampled_from([*TOOLS, "gone"]), st.sampled_from(["x", "y", "z"]), max_size=6)


@pytest.mark.property
@examples
@given(st.lists(st.tuples(REASONS, st.booleans()), max_size=5))
async def test_property_13_the_ledger_has_the_result_and_the_reason_of_every_visibility_decision(answers):
    evaluators = [
        raises(f"e{at}", tuple(hidden), ValueError("broken")) if broken else gives(f"e{at}", hidden)
        for at, (hidden, broken) in enumerate(answers)
    ]

    visible = await decided(ManualClock(), *evaluators, tools=TOOLS)

    record = visibility_record(len(visible.visible), "hash", visible.hidden)
    told = {tool: (each["by"], each["reason"]) for each in record["hidden"] for tool in each["tools"]}
    first = {tool: next((at for at, (hidden, _) in enumerate(answers) if tool in hidden), None) for tool in TOOLS}
    assert visible.visible == tuple(tool for tool in TOOLS if first[tool] is None)
    assert told.keys() == {tool for tool in TOOLS if first[tool] is not None}
    for name, (by, reason) in told.items():
        hidden, broken = answers[first[name]]
        assert by == f"e{first[name]}"
        assert reason == (f"the evaluator {by} failed: ValueError: broken" if broken else hidden[name])
    assert (record["visible"], record["tools"]) == (len(visible.visible), "hash")
    assert sum(len(each["tools"]) for each in record["hidden"]) + record["visible"] == len(TOOLS)


async def test_a_tool_for_certain_roles_is_hidden_from_others():
    tools = tool("book", "role:clerk", "role:boss"), tool("look")

    assert await Rules(None, *tools).reasons() == {"book": ("role", "it is for boss, clerk, and the agent has no role")}
    assert await Rules(Governance(frozenset({"guest"})), *tools).reasons() == {
        "book": ("role", "it is for boss, clerk, and the agent is guest")
    }
    assert await Rules(Governance(frozenset({"clerk", "guest"})), *tools).reasons() == {}


@pytest.mark.parametrize(
    ("tags", "hidden"),
    [
        ((), False),
        (("risk:low",), False),
        (("risk:medium",), False),
        (("risk:high",), True),
        (("risk:critical",), True),
        (("risk:whatever",), True),
        (("risk:low", "risk:high"), True),
        (("confirm",), True),
    ],
)
async def test_tools_of_high_and_critical_risk_are_hidden_unconfirmed_where_nobody_can_be_asked(tags, hidden):
    """tool-registry: permissions and configuration match tools by patterns of canonical names and by tags."""
    pay, nobody = tool("shop.pay", *tags), Approver.NOBODY

    assert bool(await Rules(None, pay, approver=nobody).reasons()) == hidden
    assert await Rules(Governance(confirmed=("shop.*",)), pay, approver=nobody).reasons() == {}
    assert await Rules(None, pay).reasons() == {}
    assert bool(Governance().unconfirmed(pay)) == hidden
    assert Governance(confirmed=("shop.*",)).unconfirmed(pay) == ""


async def test_a_definition_can_change_the_risk_of_tools():
    risks = {"shop.pay": Risk.MEDIUM, "shop.*": Risk.CRITICAL}
    tools = tool("shop.pay", "risk:high"), tool("shop.look"), tool("look")
    governed = Rules(Governance(risks=risks), *tools, approver=Approver.NOBODY)

    assert await governed.reasons() == {
        "shop.look": ("risk", "its risk is critical, and it is not confirmed (governance.confirmed in agent.yaml)")
    }


async def test_a_tool_that_is_turned_off_is_hidden():
    limits = (ToolLimit("shop.*", enabled=False), ToolLimit("shop.look"))
    governed = Rules(Governance(tool_limits=limits), tool("shop.pay"), tool("shop.look"))

    assert await governed.reasons() == {"shop.pay": ("choice", "it is turned off in agent.yaml")}


def skill(name, risk="low", *, confirmed=True):
    return Skill(name, name, f"/{name}/SKILL.md", 10, risk_level=risk, requires_confirmation=not confirmed)


@pytest.mark.parametrize(
    ("tags", "of_skill", "why"),
    [
        ((), skill("pay-bills", "high"), "its risk is high"),
        (("risk:critical",), skill("pay-bills", "low"), "its risk is critical"),
        (("risk:low",), skill("pay-bills", "critical"), "its risk is critical"),
        (("risk:low",), skill("pay-bills", "medium"), ""),
        ((), skill("pay-bills", confirmed=False), "its skill pay-bills requires confirmation"),
        ((), skill("pay", "critical"), ""),
        ((), skill("bills", "critical", confirmed=False), ""),
    ],
)
async def test_a_capability_has_the_risk_that_the_skill_of_its_name_says(tags, of_skill, why):
    pay = tool("shop.pay_bills", *tags)
    governed = Rules(Governance(skills=(of_skill,)), pay, tool("shop.look"), approver=Approver.NOBODY)

    told = f"{why}, and it is not confirmed (governance.confirmed in agent.yaml)"
    assert await governed.reasons() == ({"shop.pay_bills": ("risk", told)} if why else {})
    assert Governance(skills=(of_skill,)).unconfirmed(pay) == why
    assert Governance(skills=(of_skill,), confirmed=("shop.*",)).unconfirmed(pay) == ""


def test_what_agent_yaml_says_of_risk_goes_before_what_skills_say():
    rules = Governance(risks={"shop.pay": Risk.LOW}, skills=(skill("pay", "critical"),))

    assert rules.unconfirmed(tool("shop.pay")) == ""


@pytest.mark.parametrize(
    ("governance", "of_skill", "why"),
    [
        (Governance(), skill("restock", "medium"), ""),
        (Governance(), skill("restock", "high"), "its risk is high"),
        (Governance(), skill("restock", confirmed=False), "it requires confirmation"),
        (Governance(confirmed=("re*",)), skill("restock", "critical", confirmed=False), ""),
        (Governance(confirmed=("shop.*",)), skill("restock", "critical"), "its risk is critical"),
        (Governance(risks={"restock": Risk.LOW}), skill("restock", "critical"), ""),
        (Governance(risks={"*": Risk.HIGH}), skill("restock"), "its risk is high"),
    ],
)
def test_a_skill_needs_its_confirmation(governance, of_skill, why):
    assert governance.unconfirmed_skill(of_skill) == why
