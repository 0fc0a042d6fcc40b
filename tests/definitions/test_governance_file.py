import pytest

from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.definitions.loader import load_definition
from owlclaw_ray.domain.budget import Budget, BudgetPeriod, BudgetScope, BudgetUnit
from owlclaw_ray.domain.governance import BreakerRule, Governance, Risk, ToolLimit
from owlclaw_ray.domain.hours import Hours
from owlclaw_ray.errors import DefinitionError
from tests.definitions.writing import write_definition

WHOLE_DAY = (
    "watch/agent.yaml:10: governance.hours[1]: has no time between from and to; "
    "for a whole day write from: '00:00' and to: '24:00'"
)


def loaded(tmp_path, agent):
    return load_definition(write_definition(tmp_path / "watch", agent=agent), Defaults()).governance


def problems(tmp_path, agent):
    with pytest.raises(DefinitionError) as caught:
        loaded(tmp_path, agent)
    return [str(problem) for problem in caught.value.problems]


def test_without_rules_every_tool_may_be_used_and_breakers_are_on(tmp_path):
    assert loaded(tmp_path, "") == Governance(breaker=BreakerRule(5, 60.0))


def test_rules_are_read(tmp_path):
    found = loaded(
        tmp_path,
        """
governance:
  roles: [trader]
  confirmed: [shop.pay]
  risk: {"shop.*": high}
  hours:
    - {tools: ["shop.*"], from: 09:30, to: 15:00, zone: Asia/Shanghai, days: [fri, mon]}
    - {tools: [look], from: "22:00", to: "24:00"}
  breaker: {failures: 2, open_seconds: 9}
tools:
  limits:
    shop.pay: {calls: 3, seconds: 10, cooldown: 1.5, attempts: 2, timeout: 4}
    "*": {enabled: false}
    look: {version: v2}
    sell: {version: {v2: 20, v1: 80}}
""",
    )
    assert found == Governance(
        frozenset({"trader"}),
        ("shop.pay",),
        {"shop.*": Risk.HIGH},
        (Hours(("shop.*",), 570, 900, "Asia/Shanghai", (0, 4)), Hours(("look",), 1_320, 1_440)),
        BreakerRule(2, 9.0),
        (
            ToolLimit("shop.pay", True, 3, 10.0, 1.5, 2, 4.0),
            ToolLimit("*", enabled=False),
            ToolLimit("look", versions=(("v2", 1),)),
            ToolLimit("sell", versions=(("v1", 80), ("v2", 20))),
        ),
    )


def test_budgets_are_read(tmp_path):
    found = loaded(
        tmp_path,
        """
governance:
  budgets:
    - {name: a, unit: money, limit: 0.5, period: day, zone: Asia/Shanghai, reserve: 0.01, alerts: [80, 20], cheaper: m}
    - {name: b, unit: tokens, limit: 1000, scope: tenant, period: month}
    - {name: c, unit: calls, limit: 3, scope: run, tools: [shop.pay], alerts: []}
""",
    ).budgets
    assert found == (
        Budget(
            "a",
            BudgetScope.AGENT,
            BudgetUnit.MONEY,
            500_000_000,
            BudgetPeriod.DAY,
            "Asia/Shanghai",
            (),
            10_000_000,
            (20, 80),
            "m",
        ),
        Budget("b", BudgetScope.TENANT, BudgetUnit.TOKENS, 1_000, BudgetPeriod.MONTH),
        Budget("c", BudgetScope.RUN, BudgetUnit.CALLS, 3, tools=("shop.pay",), alerts=()),
    )


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("{name: A, unit: calls, limit: 1}", "[0].name: is 'A'"),
        ("{name: a, unit: coins, limit: 1}", "[0].unit: is 'coins' (it must be 'tokens', 'money' or 'calls')"),
        ("{name: a, unit: calls, limit: 0}", "[0].limit: is 0 (it must be greater than 0)"),
        ("{name: a, unit: calls, limit: 1.5}", "[0]: has the limit 1.5: calls are whole numbers"),
        (
            "{name: a, unit: money, limit: 1, tools: [x]}",
            "[0]: counts money of tools: a budget of tools has the unit calls",
        ),
        ("{name: a, unit: calls, limit: 1, scope: run, period: day}", "[0]: is of a run and of a day"),
        ("{name: a, unit: calls, limit: 1, cheaper: m, alerts: []}", "[0]: names a cheaper model, but no alert"),
        ("{name: a, unit: calls, limit: 1, cheaper: m, tools: [x]}", "[0]: names a cheaper model, but counts calls of"),
        ("{name: a, unit: calls, limit: 1}, {name: a, unit: money, limit: 1}", "governance: has two budgets named 'a'"),
    ],
)
def test_mistakes_in_budgets_are_told(tmp_path, written, problem):
    [told] = problems(tmp_path, f"governance:\n  budgets: [{written}]\n")
    assert told.startswith("watch/agent.yaml:")
    assert problem in told


def test_every_mistake_is_told_with_its_line(tmp_path):
    assert problems(
        tmp_path,
        """
governance:
  risk: {"shop.*": hihg}
  hours:
    - tools: []
      from: "25:00"
      to: "09:00"
      zone: Mars/Olympus
      dais: [mon]
    - {tools: [x], from: "09:00", to: "09:00"}
  breaker: {failures: -1}
tools:
  limits:
    shop.pay: {calls: 0, secnds: 5}
""",
    ) == [
        "watch/agent.yaml:3: governance.risk.shop.*: is 'hihg' (it must be 'low', 'medium', 'high' or 'critical')",
        "watch/agent.yaml:6: governance.hours[0].from: is '25:00': write a time of day such as '09:30', up to '24:00'",
        "watch/agent.yaml:8: governance.hours[0].zone: is 'Mars/Olympus', which is no IANA time zone such as Europe/Berlin",
        "watch/agent.yaml:5: governance.hours[0].tools: is [] (it must have at least 1 item after validation, not 0)",
        "watch/agent.yaml:9: governance.hours[0].dais: there is no such key (did you mean days?)",
        WHOLE_DAY,
        "watch/agent.yaml:11: governance.breaker.failures: is -1 (it must be greater than or equal to 0)",
        "watch/agent.yaml:14: tools.limits.shop.pay.calls: is 0 (it must be greater than or equal to 1)",
        "watch/agent.yaml:14: tools.limits.shop.pay.secnds: there is no such key (did you mean seconds?)",
    ]


def test_budgets_of_everybody_stand_beside_the_definitions_own(tmp_path):
    everybody = Budget("house", BudgetScope.TENANT, BudgetUnit.CALLS, 5)
    own = "governance: {budgets: [{name: own, unit: calls, limit: 3}]}"
    folder = write_definition(tmp_path / "watch", agent=own)

    found = load_definition(folder, Defaults(budgets=(everybody,)))

    assert found.governance.budgets == (Budget("own", BudgetScope.AGENT, BudgetUnit.CALLS, 3), everybody)
    assert found.version != load_definition(folder, Defaults()).version


def test_a_budget_that_has_the_name_of_everybodys_is_a_mistake(tmp_path):
    house = Budget("house", BudgetScope.TENANT, BudgetUnit.CALLS, 5)
    agent = "governance: {budgets: [{name: house, unit: tokens, limit: 3}]}"
    with pytest.raises(DefinitionError) as caught:
        load_definition(write_definition(tmp_path / "watch", agent=agent), Defaults(budgets=(house,)))
    assert [str(problem) for problem in caught.value.problems] == [
        (
            "watch/agent.yaml: governance.budgets: has a budget named 'house', and so has owlclaw.yaml, or its "
            "tenant's tenant.yaml, whose budgets hold for every definition (remove it, or give it another name)"
        )
    ]
