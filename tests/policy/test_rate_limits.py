from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain import governance as governance_module
from owlclaw_ray.domain.governance import Governance, ToolLimit
from tests.policy.world import Rules, tool


def governed(*limits):
    return Rules(Governance(tool_limits=limits), tool("shop.pay"), tool("shop.look"))


async def test_a_rate_limit_lets_so_many_calls_begin_and_then_one_whenever_its_share_of_the_time_passed():
    rules = governed(ToolLimit("shop.*", calls=3, seconds=60))

    assert [rules.call("shop.pay", call_id=f"c{at}") for at in range(4)] == ["", "", "", "rate_limited"]
    assert rules.call("shop.look") == ""
    await rules.clock.advance(19)
    assert rules.call("shop.pay", call_id="c4") == "rate_limited"
    await rules.clock.advance(1)
    assert [rules.call("shop.pay", call_id=f"d{at}") for at in range(2)] == ["", "rate_limited"]


async def test_a_cool_down_lies_between_the_beginnings_of_calls():
    rules = governed(ToolLimit("shop.pay", cooldown=5))

    assert rules.call("shop.pay", call_id="c0") == ""
    await rules.clock.advance(4.5)
    refused = rules.admit("shop.pay", "c1")
    assert refused.retryable
    assert refused.details == {"retry_after": 0.5}
    await rules.clock.advance(0.5)
    assert rules.call("shop.pay", call_id="c2") == ""


async def test_a_tool_that_may_not_be_called_yet_is_hidden_from_the_next_run():
    rules = governed(ToolLimit("shop.pay", calls=1, seconds=60))
    rules.call("shop.pay")
    await rules.clock.advance(20)
    rules.next_run()

    assert await rules.reasons() == {
        "shop.pay": ("rate", "the limit is 1 call of shop.pay in 60 s; the next call may begin in 40.0 s")
    }
    await rules.clock.advance(40)
    assert await rules.reasons() == {}


async def test_the_pace_of_a_tool_that_rested_is_forgotten():
    rules = governed(ToolLimit("shop.pay", calls=2, seconds=10, cooldown=15))
    rules.call("shop.pay")
    await rules.clock.advance(14)
    rules.next_run()
    assert [pace.tool for pace in rules.state.paces] == ["shop.pay"]
    await rules.clock.advance(1)
    rules.next_run()
    assert rules.state.paces == ()


def test_calls_of_an_earlier_activation_count():
    rules = governed(ToolLimit("shop.pay", calls=2, seconds=60))
    rules.call("shop.pay", call_id="c0")
    rules.call("shop.pay", call_id="c1")
    rules.call("shop.pay", call_id="c2")

    rules.resume()

    assert rules.begin("shop.pay", "c3") == "rate_limited"


STEPS = st.one_of(
    st.just("call"),
    st.sampled_from([0.25, 1.0, 2.5, 7.0, 30.0]),
    st.just("next run"),
    st.just("take over"),
)


@given(
    calls=st.none() | st.integers(1, 4),
    seconds=st.sampled_from([1.0, 8.0, 60.0]),
    cooldown=st.sampled_from([0.0, 0.5, 10.0]),
    steps=st.lists(STEPS, max_size=60),
)
async def test_no_span_of_time_has_more_calls_than_the_bucket_and_what_dripped_into_it(calls, seconds, cooldown, steps):
    rules = governed(ToolLimit("shop.pay", calls=calls, seconds=seconds, cooldown=cooldown))
    begun, refused, count = [], None, 0
    for step in steps:
        match step:
            case "call":
                count += 1
                error = rules.admit("shop.pay", f"c{count}")
                rules.end("shop.pay", error.type if error else "", f"c{count}")
                if error is None:
                    begun.append(rules.now)
                else:
                    refused = rules.now + error.details["retry_after"]
                    last_refused = len(begun)
            case "next run":
                rules.next_run()
            case "take over":
                rules.resume()
            case wait:
                await rules.clock.advance(wait)
    for first, since in enumerate(begun):
        for last in range(first, len(begun)):
            span = begun[last] - since
            assert calls is None or last - first + 1 <= calls + span * calls / seconds + 1e-6
    assert all(later - earlier >= cooldown - 1e-6 for earlier, later in pairwise(begun))
    if refused is not None and last_refused == len(begun):
        await rules.clock.advance(max(0.0, refused - rules.now) + 0.002)
        assert rules.begin("shop.pay", "last") == ""


def test_a_limit_is_looked_for_once_however_often_its_tool_is_called(monkeypatch):
    compared = []
    real = governance_module.fnmatchcase
    monkeypatch.setattr(governance_module, "fnmatchcase", lambda *names: compared.append(names) or real(*names))
    rules = Governance(tool_limits=tuple(ToolLimit(f"shop.tool_{number}", calls=5) for number in range(500)))

    assert {rules.limit_of("shop.tool_499") for _ in range(100)} == {rules.tool_limits[-1]}
    assert rules.limit_of("shop.other") is None
    assert len(compared) == 2 * 500
