"""What one tenant's callbacks are to another's, in virtual time, with receivers that take as long as they may."""

from __future__ import annotations

import random
from collections import deque
from datetime import UTC, datetime
from itertools import chain, islice, zip_longest

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.callback import Callback, CallbackRules, CallbackStatus
from owlclaw_ray.domain.run import Run, RunResult, RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT, AgentId, CallbackId, RandomIds, RunId, TenantId
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.runs.callback_rules import TenantCallbackRules
from owlclaw_ray.store.commands import CallbackStored
from owlclaw_ray.store.queries import DueCallbacks, RunById, TenantById
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.webhooks.outbox import CallbackDelivery, CallbackOptions, CallbackUnanswered
from tests.webhooks.conftest import KEY

START = datetime(2026, 11, 22, 12, tzinfo=UTC)
TIMEOUT = 10.0
GREEDY, MODEST = TenantId("greedy"), TenantId("modest")


class Backlog:
    """A store of due callbacks, which reads them as DueCallbacks says. What was tried is not due again."""

    def __init__(self):
        self._lines = {}

    def add(self, tenant, host, number, at=START):
        agent = AgentRef(tenant, AgentId("assistant"))
        for each in range(number):
            url = f"https://{host}/{tenant}/{each}"
            made = Callback(
                CallbackId(f"cb_{url}"), agent, RunId("run_1"), url, at, CallbackStatus.PENDING, next_try_at=at
            )
            self._lines.setdefault((tenant, host), deque()).append(made)

    def clear(self):
        self._lines = {each: deque() for each in self._lines}

    async def read(self, query):
        match query:
            case DueCallbacks():
                return self._due(query)
            case RunById(tenant):
                ended = RunResult(RunStatus.COMPLETED)
                agent = AgentRef(tenant, AgentId("assistant"))
                trigger, done = Trigger(TriggerKind.API), RunStatus.COMPLETED
                return Run(RunId("run_1"), 1, agent, trigger, done, START, START, START, result=ended)
            case TenantById():
                return None
        raise AssertionError(query)

    def _due(self, query):
        turns = {}
        for (tenant, _), line in self._lines.items():
            heads = enumerate(islice((each for each in line if each.next_try_at <= query.now), query.per_host))
            turns.setdefault(tenant, []).extend((place, each.next_try_at, each.url, each) for place, each in heads)
        in_turns = zip_longest(*(sorted(each) for each in turns.values()))
        return [each[-1] for each in chain.from_iterable(in_turns) if each is not None][: query.limit]

    async def apply(self, commands):
        for each in (command.callback for command in commands):
            line = self._lines[each.agent.tenant, each.host]
            if line and line[0].callback_id == each.callback_id:
                line.popleft()
        return [CallbackStored() for _ in commands]


class SlowReceivers:
    """Take as long as they are said to, and note when they were asked."""

    def __init__(self, clock, seconds):
        self._clock, self._seconds, self.asked = clock, seconds, {}

    async def send(self, tenant, url, headers, body, rules):
        self.asked.setdefault(tenant, []).append(self._clock.monotonic())
        await self._clock.sleep(self._seconds())
        return CallbackUnanswered("no answer")

    async def close(self):
        """There are no connections."""


class Post:
    def __init__(self, seconds=lambda: TIMEOUT, weights=None):
        self.clock, self.backlog = ManualClock(START), Backlog()
        self.receivers = SlowReceivers(self.clock, seconds)
        self.sending = CallbackDelivery(
            CallbackOptions((KEY,), RetryPolicy(attempts=3, base=10.0, cap=60.0), TIMEOUT),
            store=self.backlog,
            sender=self.receivers,
            clock=self.clock,
            ids=RandomIds(),
            rules=TenantCallbackRules(CallbackRules(), self.backlog),
            weight=lambda tenant: (weights or {}).get(tenant, 1.0),
            jitter=lambda: 0.0,
        )

    def asked(self, tenant):
        return self.receivers.asked.get(tenant, [])


@pytest.fixture
async def open_post():
    opened = []

    def open_one(**options):
        opened.append(Post(**options))
        return opened[-1]

    yield open_one
    for each in opened:
        await each.sending.stop()


@pytest.mark.parametrize("hosts", [1, 2_500, 10_000])
async def test_beside_ten_thousand_of_a_tenant_whose_receivers_hang_another_s_is_sent_at_once(open_post, hosts):
    post = open_post()
    for host in range(hosts):
        post.backlog.add(GREEDY, f"dead-{host}.example", 10_000 // hosts)
    post.sending.start()
    await post.clock.advance(5.0)

    post.backlog.add(MODEST, "live.example", 1, post.clock.now())
    await post.clock.advance(1.0)

    assert len(post.asked(GREEDY)) == (4 if hosts == 1 else 24)
    assert post.asked(MODEST) == [pytest.approx(6.0, abs=1.0)]


async def test_beside_the_default_tenant_which_has_all_places_another_s_is_the_next(open_post):
    durations = iter([2.0, *[TIMEOUT] * 10_000])
    post = open_post(seconds=lambda: next(durations))
    for host in range(2_500):
        post.backlog.add(DEFAULT_TENANT, f"dead-{host}.example", 4)
    post.sending.start()
    await post.clock.advance(1.5)
    assert len(post.asked(DEFAULT_TENANT)) == 32

    post.backlog.add(MODEST, "live.example", 1, post.clock.now())
    await post.clock.advance(1.0)

    assert (len(post.asked(DEFAULT_TENANT)), post.asked(MODEST)) == (32, [pytest.approx(2.0, abs=0.1)])


async def test_a_host_that_two_tenants_name_is_asked_for_one_though_it_hangs_for_the_other(open_post):
    post = open_post()
    post.backlog.add(GREEDY, "hooks.example", 10_000)
    post.sending.start()
    await post.clock.advance(1.0)

    post.backlog.add(MODEST, "hooks.example", 1, post.clock.now())
    await post.clock.advance(1.0)

    assert (len(post.asked(GREEDY)), len(post.asked(MODEST))) == (4, 1)


@pytest.mark.parametrize("spread", [0.0, 1.0])
async def test_weights_of_three_to_one_show_within_a_twentieth(open_post, spread):
    dice = random.Random(1)
    post = open_post(seconds=lambda: 1.0 + spread * (dice.random() - 0.5), weights={GREEDY: 3.0})
    for host in range(10):
        for tenant in (GREEDY, MODEST):
            post.backlog.add(tenant, f"host-{host}.example", 1_000)
    post.sending.start()
    await post.clock.advance(10.0)
    before = {tenant: len(post.asked(tenant)) for tenant in (GREEDY, MODEST)}

    await post.clock.advance(100.0)

    served = {tenant: len(post.asked(tenant)) - before[tenant] for tenant in (GREEDY, MODEST)}
    assert served[GREEDY] / served[MODEST] == pytest.approx(3.0, rel=0.05)


async def test_what_is_not_taken_gives_its_place_back(open_post, monkeypatch):
    """Somebody else took them, or the store did not commit."""
    post = open_post()
    post.backlog.add(GREEDY, "live.example", 4)
    real, answers = post.backlog.apply, iter([[None] * 4, ConnectionError("the store is away")])

    async def refuse(commands):
        answer = next(answers, None)
        if isinstance(answer, ConnectionError):
            raise answer
        return await real(commands) if answer is None else answer

    monkeypatch.setattr(post.backlog, "apply", refuse)
    assert await post.sending.tick() == 0
    with pytest.raises(ConnectionError):
        await post.sending.tick()

    assert await post.sending.tick() == 4


async def test_what_waits_here_and_was_taken_by_somebody_else_is_not_sent_again(open_post):
    post = open_post()
    for host in range(10):
        post.backlog.add(GREEDY, f"host-{host}.example", 4)
    assert await post.sending.tick() == 24

    post.backlog.clear()
    await post.clock.advance(TIMEOUT)
    assert await post.sending.tick() == 0
    post.backlog.add(MODEST, "live.example", 1)
    assert await post.sending.tick() == 1
