from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from owlclaw_ray.domain.budget import NANO, Budget, BudgetPeriod, BudgetScope, BudgetUnit
from owlclaw_ray.domain.governance import Governance
from owlclaw_ray.domain.model import Message, MessageRole, ModelChoice, ModelRequest
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.errors import BudgetExhaustedError, UnpricedModelError
from owlclaw_ray.ids import RequestId
from owlclaw_ray.policy import budgets as budgets_module
from owlclaw_ray.testing.clock import ManualClock
from tests.policy.world import RUN, BudgetAccount, Rules, at_once, tool

TOKENS, MONEY, CALLS = BudgetUnit.TOKENS, BudgetUnit.MONEY, BudgetUnit.CALLS
OF_RUN, OF_AGENT, OF_TENANT = BudgetScope.RUN, BudgetScope.AGENT, BudgetScope.TENANT
ZONES = ("UTC", "Asia/Shanghai", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo")
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001


def budget(unit=TOKENS, limit=100, scope=OF_AGENT, **options):
    return Budget("b", scope, unit, limit, **options)


def governed(*budgets, clock=None, budget_account=None):
    return Rules(
        Governance(budgets=budgets), tool("shop.pay"), tool("shop.look"), clock=clock, budget_account=budget_account
    )


class Turns:
    """Model calls of one run, one after another."""

    def __init__(self, rules, **choice):
        self.rules, self.used, self.calls = rules, Usage(), 0
        self.choice = ModelChoice(("dear",), **choice)

    def ask(self, prompt="x" * 40):
        """Return the request as it is made."""
        messages = (Message(MessageRole.USER, prompt),)
        request = ModelRequest(
            RequestId(f"req_{self.calls}"), self.choice, "", messages, b"", 60.0, "trader", "run_1", RUN.trigger
        )
        return at_once(self.rules.run.budgets.before_model(request, self.used, self.calls))

    def reply(self, tokens=0, cost=0.0):
        usage = Usage(prompt_tokens=tokens, cost=cost)
        self.used, self.calls = self.used + usage, self.calls + 1
        self.rules.run.budgets.after_model(usage, self.used, self.calls)

    def turn(self, tokens=0, cost=0.0):
        made = self.ask()
        self.reply(tokens, cost)
        return made


@given(at=MOMENTS, zone=st.sampled_from(ZONES), period=st.sampled_from([BudgetPeriod.DAY, BudgetPeriod.MONTH]))
def test_a_window_holds_its_moments_and_ends_at_a_midnight_of_its_zone_where_the_next_begins(at, zone, period):
    each = budget(period=period, zone=zone)

    window = each.window(at)

    assert window.ends_at > at
    assert window.ends_at - at <= timedelta(days=32 if period is BudgetPeriod.MONTH else 1, hours=1)
    assert each.window(window.ends_at - timedelta(microseconds=1)) == window
    assert each.window(window.ends_at).key > window.key
    local = window.ends_at.astimezone(ZoneInfo(zone))
    assert (local.hour, local.minute, local.second) == (0, 0, 0)
    assert period is BudgetPeriod.DAY or local.day == 1


def test_the_day_on_which_summer_time_begins_has_23_hours():
    berlin = budget(period=BudgetPeriod.DAY, zone="Europe/Berlin")
    before = berlin.window(datetime(2026, 3, 28, 12, tzinfo=UTC)).ends_at
    assert berlin.window(before).ends_at - before == timedelta(hours=23)


def test_a_budget_without_a_period_is_never_renewed():
    assert budget().window(ManualClock().now()).ends_at is None


def test_budgets_of_other_owners_units_and_windows_have_other_accounts():
    window = budget().window(ManualClock().now())
    accounts = {
        each.account(tenant, agent, window)
        for each in (budget(), budget(MONEY), budget(scope=OF_TENANT))
        for tenant in ("t", "t/x")
        for agent in ("a", "a:b")
    }
    assert len(accounts) == 10


async def test_a_spent_budget_stops_the_model_call_and_names_itself_its_limit_its_use_and_its_renewal():
    clock = ManualClock(datetime(2026, 11, 22, 10, tzinfo=UTC))
    turns = Turns(governed(budget(period=BudgetPeriod.DAY, zone="Asia/Shanghai"), clock=clock))
    turns.turn(60)
    turns.turn(60)

    with pytest.raises(BudgetExhaustedError) as caught:
        turns.ask()

    assert str(caught.value) == (
        "the budget b (100 tokens for the agent a day) is spent: 120 tokens used; it is renewed at 2026-11-22T16:00:00+00:00"
    )
    await clock.advance(6 * 3_600)
    turns.turn(10)


@pytest.mark.parametrize("scope", [OF_RUN, OF_AGENT, OF_TENANT])
@pytest.mark.parametrize(
    ("unit", "limit", "turns_left"), [(TOKENS, 25, 3), (MONEY, NANO // 4, 3), (CALLS, 4, 4)], ids=str
)
def test_each_unit_is_counted_for_each_scope(scope, unit, limit, turns_left):
    turns = Turns(governed(budget(unit, limit, scope)))
    for _ in range(turns_left):
        turns.turn(tokens=10, cost=0.1)
    with pytest.raises(BudgetExhaustedError):
        turns.ask()


def test_a_reply_may_have_the_tokens_that_were_set_aside_for_it_and_no_more():
    budget_account = BudgetAccount()
    asked = Turns(governed(budget(reserve=50), budget(scope=OF_RUN, reserve=70), budget_account=budget_account)).ask(
        "x" * 40
    )
    assert asked.model.max_tokens == 50
    assert list(budget_account.reserved.values()) == [{"b.tokens.@default/trader:AAPL": 10 + 50}]

    assert Turns(governed(budget(reserve=50)), max_tokens=20).ask().model.max_tokens == 20
    assert Turns(governed(budget(MONEY, NANO))).ask().model.max_tokens == 4_096
    assert Turns(governed(budget(MONEY, NANO)), max_tokens=9_000).ask().model.max_tokens == 9_000
    assert Turns(governed()).ask().model.max_tokens is None


ACCOUNT = "b.money.@default/trader:AAPL"


@pytest.mark.parametrize(
    ("options", "choice", "dollars"),
    [
        ({}, {}, 10 * 2.5e-6 + 4_096 * 10e-6),
        ({}, {"max_tokens": 100}, 10 * 2.5e-6 + 100 * 10e-6),
        ({"reserve": NANO // 1_000}, {"max_tokens": 1}, 0.001),
        ({"reserve": NANO // 1_000}, {"max_tokens": 1_000}, 10 * 2.5e-6 + 1_000 * 10e-6),
        ({"cheaper": "cheaper"}, {"max_tokens": 100}, 10 * 2.5e-6 + 100 * 40e-6),
    ],
)
def test_a_call_reserves_what_it_may_cost_at_most(options, choice, dollars):
    budget_account = BudgetAccount()
    Turns(governed(budget(MONEY, NANO, **options), budget_account=budget_account), **choice).ask("x" * 40)

    assert list(budget_account.reserved.values()) == [{ACCOUNT: pytest.approx(dollars * NANO, abs=1)}]


def test_a_call_is_not_made_whose_price_nobody_knows_while_money_is_counted():
    for scope in (OF_RUN, OF_AGENT, OF_TENANT):
        turns = Turns(governed(budget(MONEY, NANO, scope)))
        turns.choice = ModelChoice(("dear", "own/secret"))
        with pytest.raises(
            UnpricedModelError, match=r"own/secret costs, and the budget b counts money.*models\.prices"
        ):
            turns.ask()
        turns.choice = ModelChoice(("dear", "scripted:echo"))
        turns.ask()
    turns = Turns(governed(budget(TOKENS, 10_000)))
    turns.choice = ModelChoice(("own/secret",))
    turns.ask()


def test_people_are_told_once_of_each_share_of_a_runs_own_budget():
    budget_account = BudgetAccount()
    turns = Turns(governed(budget(scope=OF_RUN), budget_account=budget_account))
    for tokens in (49, 1, 20, 29):
        turns.turn(tokens)
    assert budget_account.told == [
        "50 % of the budget b (100 tokens for the run) is used",
        "80 % of the budget b (100 tokens for the run) is used",
    ]


@pytest.mark.parametrize("scope", [OF_RUN, OF_AGENT])
def test_the_cheaper_model_is_used_from_the_last_alert_on(scope):
    turns = Turns(governed(budget(scope=scope, cheaper="cheap")), temperature=0.5)
    chains = [turns.turn(40).model.chain for _ in range(2)]
    asked = turns.ask().model
    assert (*chains, asked.chain, asked.temperature) == (("dear",), ("dear",), ("cheap",), 0.5)


@pytest.mark.parametrize("scope", [OF_RUN, OF_AGENT])
async def test_calls_of_tools_are_counted_by_the_budgets_of_these_tools(scope):
    rules = governed(budget(CALLS, 2, scope, tools=("shop.pay",)))
    for number in range(2):
        assert rules.call("shop.pay", call_id=f"c{number}") == ""
        rules.over("shop.pay", f"c{number}")

    refused = rules.admit("shop.pay", "c2")

    assert (refused.type, refused.retryable) == ("budget_exhausted", False)
    assert "(2 calls for the " in refused.message
    assert rules.begin("shop.look", "c3") == ""
    rules.resume()
    assert rules.begin("shop.pay", "c4") == "budget_exhausted"
    hidden = await rules.reasons()
    assert hidden.keys() == (set() if scope is OF_RUN else {"shop.pay"})


async def test_a_run_that_is_taken_over_in_another_window_is_charged_in_that_one():
    clock, budget_account = ManualClock(datetime(2026, 11, 22, 23, 59, tzinfo=UTC)), BudgetAccount()
    rules = governed(budget(period=BudgetPeriod.DAY), clock=clock, budget_account=budget_account)
    Turns(rules).ask()
    await clock.advance(60)

    rules.resume()
    Turns(rules).turn(7)

    assert budget_account.used == {"b.tokens.2026-11-23@default/trader:AAPL": 7}
    assert [set(amounts) for amounts in budget_account.reserved.values()] == [
        {"b.tokens.2026-11-22@default/trader:AAPL"}
    ]


def test_a_call_whose_end_nobody_saw_is_charged():
    budget_account = BudgetAccount()
    rules = governed(budget(CALLS, 2, tools=("shop.pay",)), budget_account=budget_account)
    rules.begin("shop.pay")

    rules.resume()
    rules.end("shop.pay", "uncertain")
    rules.over("shop.pay")

    assert (budget_account.used, budget_account.reserved) == ({"b.calls.@default/trader:AAPL": 1}, {})


def test_calls_under_way_count():
    rules = governed(budget(CALLS, 2, OF_RUN, tools=("*",)), budget(CALLS, 9, OF_AGENT, tools=("*",)))
    assert [rules.begin("shop.pay", f"c{at}") for at in range(3)] == ["", "", "budget_exhausted"]


def test_who_has_no_budget_asks_nobody():
    class Closed(BudgetAccount):
        async def reserve(self, reservation_id, claims):
            raise AssertionError("it is asked")

    turns = Turns(governed(budget_account=Closed()))
    assert turns.turn(5).model == turns.choice
    assert turns.rules.call("shop.pay") == ""
    turns.rules.over("shop.pay")
    of_run = governed(budget(scope=OF_RUN), replace(budget(CALLS, 5, OF_RUN), tools=("*",)), budget_account=Closed())
    assert Turns(of_run).turn(5)
    assert of_run.call("shop.pay") == ""


def test_a_runs_own_budget_of_calls_costs_each_call_the_same(monkeypatch):
    compared = []
    real = budgets_module.matches
    monkeypatch.setattr(budgets_module, "matches", lambda *pair: compared.append(pair) or real(*pair))
    rules = governed(budget(CALLS, 1_000, OF_RUN, tools=("shop.*",)))

    refusals = [rules.call("shop.pay", call_id=f"c{at}") or rules.over("shop.pay", f"c{at}") for at in range(1_001)]

    assert refusals[-2:] == [None, "budget_exhausted"]
    assert len(compared) < 5 * len(refusals)
