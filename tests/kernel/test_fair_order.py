"""Whose turn it is: what tenants, their agents and the calls of one agent get of few places, in virtual time."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.kernel.fair_order import LEAST_WEIGHT, FairOrder

GREEDY, MODEST = ("greedy", "bot"), ("modest", "bot")


class Hall:
    """Places that calls hold for a known time: what happens is a function of what is asked for."""

    def __init__(self, places, *, each=None, weights=None):
        self.weights = {} if weights is None else weights
        self.order = FairOrder(places, each=each, weight=lambda tenant: self.weights.get(tenant, 1.0))
        self.now, self._number, self._events = 0.0, count(), []
        self.begun, self.served, self.waits = [], Counter(), {}
        self.place_time = Counter()
        self._asked = {}

    def ask(self, owner, seconds, at=0.0, then=None):
        """Have a call come at that time; `then` is called when it has ended."""
        heapq.heappush(self._events, (at, next(self._number), "ask", owner, seconds, then))

    def flood(self, owner, number, seconds):
        """Have so many calls wait at once, each followed by another when it ends."""
        for _ in range(number):
            self.ask(owner, seconds, self.now, lambda: self.flood(owner, 1, seconds))

    def run(self, until):
        while self._events and self._events[0][0] <= until:
            self.now, number, what, owner, seconds, then = heapq.heappop(self._events)
            if what == "ask":
                self._asked[number] = (self.now, seconds, then)
                if self.order.free > 0 and self.order.may_hold(owner):
                    self.order.hold(owner)
                    self._begin(owner, number)
                else:
                    self.order.add(owner, number)
            else:
                self.order.give_back(owner)
                if then is not None:
                    then()
                while self.order.free > 0 and (first := self.order.first()) is not None:
                    self.order.grant(*first)
                    self._begin(*first)
        self.now = until

    def _begin(self, owner, number):
        asked, seconds, then = self._asked.pop(number)
        self.begun.append((owner, number))
        self.served[owner[0]] += 1
        self.place_time[owner[0]] += seconds
        self.waits.setdefault(owner, []).append(self.now - asked)
        heapq.heappush(self._events, (self.now + seconds, next(self._number), "end", owner, seconds, then))


def p99(values):
    return sorted(values)[int(len(values) * 0.99)]


def drain(order, number):
    """Let one place go round: return who has it, so many times."""
    had = []
    for _ in range(number):
        first = order.first()
        order.grant(*first)
        order.give_back(first[0])
        had.append(first)
    return had


@pytest.mark.parametrize("places", [1, 2, 3, 4, 5, 8, 10, 64])
@pytest.mark.parametrize("weights", [(3.0, 1.0), (0.75, 0.25), (30.0, 10.0)])
def test_tenants_with_weights_of_three_to_one_get_places_within_a_twentieth_of_it(places, weights):
    hall = Hall(places, weights=dict(zip(("greedy", "modest"), weights, strict=True)))
    hall.flood(GREEDY, 100, 1.0)
    hall.flood(MODEST, 100, 1.0)

    hall.run(100 + 400 / places)

    assert hall.served["greedy"] / hall.served["modest"] == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize("places", [4, 8, 64])
def test_weights_are_of_places_and_not_of_turns_whoever_has_the_longer_calls(places):
    hall = Hall(places, weights={"greedy": 3.0})
    hall.flood(GREEDY, 100, 1.0)
    hall.flood(MODEST, 100, 10.0)

    hall.run(1_000.0 if places < 10 else 300.0)

    assert hall.place_time["greedy"] / hall.place_time["modest"] == pytest.approx(3.0, rel=0.05)


def test_a_tenant_of_short_calls_does_not_wait_behind_one_of_long_calls():
    hall = Hall(64)
    hall.flood(GREEDY, 200, 60.0)
    for number in range(500):
        hall.ask(MODEST, 1.0, at=200 + number / 10)

    hall.run(300.0)

    assert max(hall.waits[MODEST]) == 0
    assert hall.served["modest"] == 500


def test_a_tenant_of_short_calls_gets_its_share_beside_one_of_long_calls_that_has_all_places():
    hall = Hall(64)
    hall.flood(("default", "bot"), 200, 60.0)
    hall.run(30.0)
    hall.flood(MODEST, 200, 1.0)

    hall.run(61.0)
    began = hall.served["modest"]
    hall.run(71.0)

    assert hall.served["modest"] - began == 10 * 32


def load(number, seconds, spread):
    """Return the arrivals of so many calls a second, each with how long it takes."""
    dice = random.Random(number)
    at, calls = 0.0, []
    while (at := at + dice.expovariate(number)) < seconds:
        calls.append((at, dice.expovariate(1) if spread else 1.0))
    return calls


@pytest.mark.parametrize("spread", [True, False], ids=["times vary", "all take as long"])
@pytest.mark.parametrize("places", [8, 64])
def test_a_hundred_times_the_load_of_one_tenant_moves_another_s_p99_by_a_fifth_at_most(places, spread):
    def latencies(times):
        hall = Hall(places)
        modest = load(places / 32, 4_000 / places, spread)
        for at, seconds in load(times * places / 32, 4_000 / places, spread):
            hall.ask(GREEDY, seconds, at)
        for at, seconds in modest:
            hall.ask(MODEST, seconds, at)
        hall.run(1e9)
        return [wait + seconds for wait, (_, seconds) in zip(hall.waits[MODEST], modest, strict=True)]

    assert p99(latencies(100)) <= 1.2 * p99(latencies(1))


def test_a_tenant_that_comes_back_has_saved_nothing_up():
    order = FairOrder(1)
    for number in range(1_000):
        order.add(GREEDY, number)
    drain(order, 500)
    for number in range(1_000, 1_100):
        order.add(MODEST, number)

    had = [owner for owner, _ in drain(order, 20)]

    assert had.count(MODEST) == 10
    assert all(one != other for one, other in pairwise(had))


def test_a_tenant_that_leaves_and_comes_back_at_once_has_not_had_its_turn_forgotten():
    order = FairOrder(1, weight=lambda tenant: 0.1 if tenant == "modest" else 1.0)
    for number in range(1_000):
        order.add(GREEDY, number)
    had = []
    for number in range(1_000, 1_220):
        order.remove(MODEST, number - 1)
        order.add(MODEST, number)
        had += drain(order, 1)

    assert 18 <= [owner for owner, _ in had].count(MODEST) <= 22


def test_what_a_tenant_had_within_its_share_does_not_delay_its_next_turn_for_long():
    order = FairOrder(2)
    for number in range(1_000):
        order.add(GREEDY, number)
        order.add(MODEST, number)
    order.grant(*order.first())
    order.grant(*order.first())
    for _ in range(900):  # the other one's call lasts, this one's are over at once
        order.give_back(GREEDY)
        order.grant(*order.first())
    for number in range(500):
        order.add((f"tenant-{number % 10}", "bot"), number)
    order.give_back(GREEDY)

    had = [owner for owner, _ in drain(order, 150)]

    assert GREEDY in had


def test_an_agent_with_ten_thousand_waiting_calls_does_not_hold_up_its_sibling():
    order = FairOrder(1)
    for number in range(10_000):
        order.add(("tenant", "bot", "bot:busy"), number)
    order.add(("tenant", "bot", "bot:calm"), "calm")

    had = [item for _, item in drain(order, 2)]

    assert "calm" in had


def test_another_definition_of_a_tenant_does_not_wait_behind_a_thousand_agents_of_one():
    order = FairOrder(1)
    for number in range(1_000):
        order.add(("tenant", "bot", f"bot:{number}"), number)
    order.add(("tenant", "clerk", "clerk"), "clerk")

    had = [item for _, item in drain(order, 2)]

    assert "clerk" in had


def test_a_tenant_gets_no_more_for_having_more_agents():
    order = FairOrder(1)
    for number in range(1_000):
        order.add(("greedy", f"bot-{number}"), number)
        order.add(MODEST, number)

    had = [owner[0] for owner, _ in drain(order, 100)]

    assert had.count("modest") == 50


def test_calls_of_one_agent_come_in_their_order_whatever_is_withdrawn():
    order = FairOrder(1)
    for number in range(10):
        order.add(MODEST, number)

    withdrawn = [order.remove(MODEST, number) for number in (0, 4, 9, 9)]

    assert withdrawn == [True, True, True, False]
    assert [item for _, item in drain(order, 7)] == [1, 2, 3, 5, 6, 7, 8]
    assert order.first() is None


def test_calls_that_are_withdrawn_cost_their_owner_no_turn():
    order = FairOrder(1)
    for number in range(200):
        order.add(GREEDY, number)
        order.add(MODEST, number)
    for number in range(100):
        order.remove(MODEST, number)

    had = [owner for owner, _ in drain(order, 50)]

    assert had.count(MODEST) == 25


def test_a_weight_that_changes_counts_for_those_who_wait_already():
    hall = Hall(8)
    hall.flood(GREEDY, 100, 1.0)
    hall.flood(MODEST, 100, 1.0)
    hall.run(100.0)
    before = hall.served.copy()

    hall.weights["modest"] = 3.0
    hall.run(102.0)
    between = hall.served.copy()
    hall.run(202.0)

    assert before["modest"] / before["greedy"] == pytest.approx(1.0, rel=0.05)
    after = hall.served - between
    assert after["modest"] / after["greedy"] == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), LEAST_WEIGHT / 10])
def test_a_tenant_without_weight_is_served_all_the_same(weight):
    order = FairOrder(1, weight=lambda tenant: weight if tenant == "modest" else 1.0)
    for number in range(1_000):
        order.add(GREEDY, number)
    order.add(MODEST, "modest")
    order.add(MODEST, "modest again")

    had = [item for _, item in drain(order, 202)]

    assert {"modest", "modest again"} <= set(had)


def test_a_quarter_of_the_places_is_kept_for_others_where_there_is_a_tenant_beside_the_default_one():
    alone, several, other = Hall(64), Hall(64), Hall(64)
    alone.flood(("default", "bot"), 100, 1.0)
    several.ask(MODEST, 1.0)
    several.flood(("default", "bot"), 100, 1.0)
    other.flood(GREEDY, 100, 1.0)

    for hall in (alone, several, other):
        hall.run(0.5)

    assert alone.order.held == 64
    assert several.order.held == 48 + 1
    assert other.order.held == 48


def test_no_more_is_kept_for_others_than_their_weights_give_them():
    hall = Hall(64, weights={"default": 15.0})
    hall.ask(MODEST, 1.0)
    hall.flood(("default", "bot"), 100, 1.0)

    hall.run(0.5)

    assert hall.order.held == 60 + 1


def test_what_is_known_of_owners_that_are_gone_does_not_grow():
    order = FairOrder(2)
    for number in range(5_000):
        order.add((f"tenant-{number % 3}", f"bot-{number}"), number)
        if number % 7:
            drain(order, 1)
    while order.first() is not None:
        drain(order, 1)
    for number in range(1_000):
        order.hold(("tenant-0", f"clerk-{number}"))
        order.give_back(("tenant-0", f"clerk-{number}"))

    assert (order.held, order.waiting) == (0, 0)
    assert sum(len(each.below.children) for each in order._top.children.values()) <= 3 * 80


OWNER = st.tuples(st.sampled_from("abc"), st.sampled_from("xy"))
STEP = st.one_of(
    st.tuples(st.just("ask"), OWNER),
    st.tuples(st.just("end"), st.integers(0, 50)),
    st.tuples(st.just("withdraw"), st.integers(0, 50)),
    st.tuples(st.just("weigh"), st.tuples(st.sampled_from("abc"), st.sampled_from([0.5, 1.0, 3.0]))),
    st.tuples(st.just("resize"), st.integers(1, 8)),
)


class Reference:
    """What FairOrder promises of shares and limits, by looking at everything each time."""

    def __init__(self, places, each, weights):
        self.places, self.each, self.weights = places, each, weights
        self.held, self.waiting, self.known = Counter(), {}, {"default"}

    def limit(self, tenant):
        if len(self.known) < 2:
            return self.places
        weights = {each: self.weights[each] for each in self.known}
        return self.places - int(self.places * min(0.25, 1 - weights[tenant] / sum(weights.values())) + 1e-9)

    def of(self, tenant):
        return sum(number for owner, number in self.held.items() if owner[0] == tenant)

    def able(self, owner):
        return self.of(owner[0]) < self.limit(owner[0]) and self.held[owner] < self.each

    def expected(self):
        """Return the owners of which one is next."""
        able = [owner for owner, items in self.waiting.items() if items and self.able(owner)]
        tenants = {owner[0] for owner in able}
        active = {owner[0] for owner, items in self.waiting.items() if items} | {owner[0] for owner in +self.held}
        whole = sum(self.weights[tenant] for tenant in active)
        best = self._least(tenants, {each: (self.of(each) + 1) / self.weights[each] for each in tenants})
        share = (self.held.total() + 1) / whole if whole else 0
        if best and (self.of(best[0]) + 1) / self.weights[best[0]] <= share * (1 + 1e-9):
            tenants = best
        chosen = []
        for tenant in tenants:
            agents = [owner for owner in able if owner[0] == tenant]
            least = self._least(agents, {each: self.held[each] + 1 for each in agents})
            busy = {owner for owner in +self.held if owner[0] == tenant}
            busy |= {owner for owner, items in self.waiting.items() if items and owner[0] == tenant}
            chosen += least if (self.held[least[0]] + 1) * len(busy) <= self.of(tenant) + 1 else agents
        return chosen

    def _least(self, things, burdens):
        return [each for each in things if burdens[each] <= min(burdens.values()) * (1 + 1e-9)]


@given(places=st.integers(1, 8), each=st.integers(1, 5), steps=st.lists(STEP, max_size=80))
def test_the_next_place_is_whose_a_look_at_everything_says_and_none_stays_free(places, each, steps):
    weights = dict.fromkeys(("a", "b", "c", "default"), 1.0)
    reference, order = Reference(places, each, weights), FairOrder(places, each=each, weight=weights.__getitem__)
    holders = []

    def grant_all():
        while order.free > 0:
            first, expected = order.first(), reference.expected()
            assert (first is None) == (not expected)
            if first is None:
                return
            owner, item = first
            assert owner in expected
            assert item == reference.waiting[owner].pop(0)
            order.grant(owner, item)
            reference.held[owner] += 1
            holders.append(owner)

    for number, (step, choice) in enumerate(steps):
        if step == "ask":
            reference.known.add(choice[0])
            reference.waiting.setdefault(choice, []).append(number)
            order.add(choice, number)
        elif step == "end" and holders:
            owner = holders.pop(choice % len(holders))
            reference.held[owner] -= 1
            order.give_back(owner)
        elif step == "withdraw":
            waiting = [(owner, item) for owner, items in reference.waiting.items() for item in items]
            if waiting:
                owner, item = waiting[choice % len(waiting)]
                reference.waiting[owner].remove(item)
                assert order.remove(owner, item)
        elif step == "weigh":
            weights[choice[0]] = choice[1]
            for owner in OWNERS:  # a weight counts from its tenant's next event
                order.add(owner, "event")
                order.remove(owner, "event")
                reference.known.add(owner[0])
        elif step == "resize":
            reference.places = choice
            order.resize(choice, each)
        grant_all()
        assert order.held == reference.held.total() == len(holders)
        assert order.waiting == sum(map(len, reference.waiting.values()))


OWNERS = [(tenant, agent) for tenant in "abc" for agent in "xy"]


@given(
    weights=st.lists(st.sampled_from([0.1, 0.5, 1.0, 3.0, 10.0]), min_size=2, max_size=6),
    steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=30),
)
def test_no_tenant_that_waits_is_behind_another_by_more_than_a_turn_of_each(weights, steps):
    """The bound of start-time fair queueing, for each two tenants and each interval in which both wait."""
    order = FairOrder(1, weight=lambda tenant: weights[int(tenant)] if tenant.isdecimal() else 1.0)
    numbers, waiting, since = count(), Counter(), {}
    for tenant, calls in steps:
        owner = (str(tenant % len(weights)), "bot")
        for _ in range(calls):
            order.add(owner, next(numbers))
        waiting[owner] += calls
        for _ in range(calls // 2 + 1):
            if not +waiting:
                break
            ((granted, _),) = drain(order, 1)
            waiting[granted] -= 1
            since = {pair: gained for pair, gained in since.items() if all(waiting[each] > 0 for each in pair)}
            for pair in [(one, other) for one in +waiting for other in +waiting if one < other]:
                gained = since.setdefault(pair, Counter())
                gained[granted] += granted in pair
                one, other = pair
                part = [gained[each] / weights[int(each[0])] for each in pair]
                assert abs(part[0] - part[1]) <= 1 / weights[int(one[0])] + 1 / weights[int(other[0])] + 1e-6


@given(
    places=st.integers(1, 4),
    floods=st.lists(
        st.tuples(st.sampled_from([0.1, 1.0, 20.0]), st.sampled_from([0.5, 1.0, 5.0])), min_size=1, max_size=5
    ),
)
def test_whoever_waits_is_served_whatever_the_others_ask_for(places, floods):
    weights = {f"t{number}": weight for number, (weight, _) in enumerate(floods)}
    hall = Hall(places, weights=weights)
    for number, (_, seconds) in enumerate(floods):
        hall.flood((f"t{number}", "bot"), 3 * places, seconds)
    hall.ask(MODEST, 1.0, at=20.0)

    while not hall.served["modest"] and hall.now < 20.0 + 5.0 * 10 * (1 + sum(max(1, weight) for weight, _ in floods)):
        hall.run(hall.now + 5.0)

    assert hall.served["modest"] == 1
