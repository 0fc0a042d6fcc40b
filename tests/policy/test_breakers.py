import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.governance import BreakerRule, Governance
from owlclaw_ray.policy.breakers import NO_FAILURES
from tests.policy.world import Rules, tool

RULE = BreakerRule(failures=3, open_seconds=30.0)


def governed(rule=RULE):
    return Rules(Governance(breaker=rule), tool("shop.pay"), tool("shop.look"))


def break_it(rules, error="execution_failed"):
    for at in range(RULE.failures):
        assert rules.call("shop.pay", error, f"f{at}") == ""


@pytest.mark.parametrize(
    "error",
    [
        "execution_failed",
        "timeout",
        "uncertain",
        "command_failed",
        "server_unavailable",
        "upstream_down",
        "child_failed",
    ],
)
async def test_after_failures_in_a_row_a_capability_is_not_called_and_hidden_from_the_next_run(error):
    rules = governed()
    break_it(rules, error)

    assert rules.call("shop.pay") == "circuit_open"
    assert rules.call("shop.look") == ""
    rules.next_run()
    [(by, reason)] = (await rules.reasons()).values()
    assert by == "breaker"
    assert reason.startswith("circuit open until ")


def test_a_success_in_between_begins_the_count_anew():
    rules = governed()
    for error in ("timeout", "timeout", "", "timeout", "timeout", ""):
        assert rules.call("shop.pay", error) == ""
    rules.next_run()
    assert rules.state.breakers == ()


@pytest.mark.parametrize("error", sorted(NO_FAILURES))
def test_errors_that_are_not_the_capabilitys_own_do_not_count(error):
    rules = governed()
    for _ in range(9):
        assert rules.call("shop.pay", error) == ""


def test_a_command_that_the_caller_chose_and_that_fails_does_not_count():
    rules = Rules(Governance(breaker=RULE), tool("code.run_command"))
    for _ in range(9):
        assert rules.call("code.run_command", "command_failed") == ""


async def test_a_half_open_breaker_lets_one_call_pass_whose_success_closes_it():
    rules = governed()
    break_it(rules)
    rules.next_run()
    await rules.clock.advance(30)

    assert await rules.reasons() == {}
    assert [rules.begin("shop.pay", call) for call in ("p1", "p2", "p3")] == ["", "circuit_open", "circuit_open"]
    rules.end("shop.pay", "", "p1")
    assert [rules.begin("shop.pay", call) for call in ("p4", "p5")] == ["", ""]
    rules.next_run()
    assert rules.state.breakers == ()


async def test_a_probe_that_fails_opens_the_breaker_again():
    rules = governed()
    break_it(rules)
    await rules.clock.advance(30)

    assert rules.call("shop.pay", "timeout", "p1") == ""
    assert rules.call("shop.pay", "", "p2") == "circuit_open"
    await rules.clock.advance(29)
    assert rules.call("shop.pay", "", "p3") == "circuit_open"
    await rules.clock.advance(1)
    assert rules.call("shop.pay", "", "p4") == ""


async def test_a_probe_that_never_reached_the_capability_leaves_its_place_to_another():
    rules = governed()
    break_it(rules)
    await rules.clock.advance(30)

    assert rules.call("shop.pay", "invalid_arguments", "p1") == ""
    assert rules.begin("shop.pay", "p2") == ""
    assert rules.begin("shop.pay", "p3") == "circuit_open"


async def test_breakers_can_be_turned_off():
    rules = governed(BreakerRule(failures=0))
    for _ in range(9):
        assert rules.call("shop.pay", "execution_failed") == ""
    rules.next_run()
    assert await rules.reasons() == {}


ENDS = st.sampled_from(["", "execution_failed", "timeout", "invalid_arguments"])
STEPS = st.one_of(
    st.just(("begin",)),
    st.tuples(st.just("end"), st.integers(0, 3), ENDS),
    st.tuples(st.just("wait"), st.sampled_from([1, 29, 30, 31])),
    st.just(("take over",)),
    st.just(("next run",)),
)


class Reference:
    """A circuit as one would draw it."""

    def __init__(self):
        self.failures, self.closed, self.until, self.probe = 0, True, 0.0, None

    def begin(self, call, now):
        if self.closed:
            return True
        if now < self.until or self.probe not in {None, call}:
            return False
        self.probe = call
        return True

    def end(self, call, error, now):
        if self.probe not in {None, call}:
            return
        self.probe = None
        if not self.closed and now < self.until:
            return
        if error and error not in NO_FAILURES:
            self.failures += 1
            if not self.closed or self.failures >= RULE.failures:
                self.closed, self.until = False, now + RULE.open_seconds
        elif not error:
            self.failures, self.closed = 0, True


class Story:
    """Calls of a capability that is also drawn by the reference."""

    def __init__(self):
        self.rules, self.reference, self.under_way, self.count = governed(), Reference(), [], 0

    def begin(self, call):
        admitted = self.rules.begin("shop.pay", call) == ""
        assert admitted == self.reference.begin(call, self.rules.now)
        if admitted:
            self.under_way.append(call)
        else:
            self.rules.end("shop.pay", "circuit_open", call)

    def begin_another(self):
        self.count += 1
        self.begin(f"c{self.count}")

    def end(self, at, error):
        if self.under_way:
            call = self.under_way.pop(at % len(self.under_way))
            self.rules.end("shop.pay", error, call)
            self.reference.end(call, error, self.rules.now)

    def take_over(self):
        self.rules.resume()
        self.reference.probe = None
        again, self.under_way = self.under_way, []
        for call in again:
            self.begin(call)

    def next_run(self):
        if not self.under_way:
            self.rules.next_run()

    def check(self):
        if not self.reference.closed and self.reference.probe is not None:
            assert self.rules.begin("shop.pay", "another") == "circuit_open"


@given(st.lists(STEPS, max_size=60))
async def test_a_half_open_breaker_has_one_probe_whoever_executes_the_run(steps):
    story = Story()
    for step in steps:
        match step:
            case ("begin",):
                story.begin_another()
            case ("end", at, error):
                story.end(at, error)
            case ("wait", seconds):
                await story.rules.clock.advance(seconds)
            case ("take over",):
                story.take_over()
            case ("next run",):
                story.next_run()
        story.check()
