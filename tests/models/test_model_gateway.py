import asyncio
from collections.abc import Callable, Iterable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from owlclaw_ray.domain.concurrency_limit import ConcurrencyLimit
from owlclaw_ray.domain.model import FailedAttempt, ModelReply, NextAttempt
from owlclaw_ray.errors import ContextWindowExceededError, ModelRefusedError, ModelUnavailableError
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.models.model_gateway import ModelGateway
from owlclaw_ray.testing.clock import ManualClock
from tests.model_requests import model_request
from tests.properties import examples

DOWN = ModelUnavailableError("rate limited")
REFUSED = ModelRefusedError("bad key")


class Provider:
    """A client whose models answer, or fail, as their queues say: a reply text, an error, or seconds to take first."""

    def __init__(self, clock, **answers: Iterable[str | Exception | float]) -> None:
        self.clock = clock
        self.answers = {model: list(queue) for model, queue in answers.items()}
        self.asked: list[tuple[str, float]] = []
        self.running = self.most_running = self.cancelled = 0
        self.loading: float | Exception = 0.0

    def serves(self, model):
        return model in self.answers

    async def load(self):
        if isinstance(self.loading, Exception):
            raise self.loading
        if self.loading:
            await self.clock.sleep(self.loading)
            self.loading = 0.0

    async def complete(self, request, model):
        self.asked.append((model, self.clock.monotonic()))
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            return await self._answer(model)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def _answer(self, model):
        answer = self.answers[model].pop(0) if len(self.answers[model]) > 1 else self.answers[model][0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, float):
            await self.clock.sleep(answer)
            return ModelReply("slow", (), model)
        return ModelReply(answer, (), model)


@pytest.fixture
def clock():
    return ManualClock()


def gateway(provider: Provider, *, jitter: Callable[[], float] = lambda: 0.0, **settings) -> ModelGateway:
    return ModelGateway([provider], clock=provider.clock, retry=RetryPolicy(), jitter=jitter, **settings)


async def finish(clock, coroutine, seconds=1_000.0):
    task = asyncio.create_task(coroutine)
    await clock.advance(seconds)
    assert task.done()
    return task


async def test_the_first_model_answers_and_nothing_else_is_asked(clock):
    provider = Provider(clock, a=["hello"], b=["never"])

    reply = await gateway(provider).complete(model_request("a", "b"))

    assert (reply.text, reply.model, reply.failed_attempts) == ("hello", "a", ())
    assert provider.asked == [("a", 0.0)]


async def test_an_outage_is_retried_with_growing_waits(clock):
    provider = Provider(clock, a=[DOWN, DOWN, "back"])

    task = await finish(clock, gateway(provider).complete(model_request("a")))

    assert task.result().text == "back"
    assert [when for _, when in provider.asked] == [0.0, 0.25, 0.75]


async def test_failed_attempts_are_reported_with_the_reply(clock):
    provider = Provider(clock, a=[REFUSED], b=[DOWN, "yes"])

    task = await finish(clock, gateway(provider).complete(model_request("a", "b")))

    assert task.result().failed_attempts == (
        FailedAttempt("a", "bad key", retryable=False),
        FailedAttempt("b", "rate limited", retryable=True),
    )


async def test_each_attempt_that_is_followed_by_another_is_told_when_it_failed(clock):
    told = []
    provider = Provider(clock, a=[DOWN, DOWN, DOWN], b=[REFUSED], c=["yes"])

    listener = lambda news: told.append((clock.monotonic(), news))  # noqa: E731
    await finish(clock, gateway(provider).complete(model_request("a", "b", "c"), listener))

    def down(after_ms: int) -> FailedAttempt:
        return FailedAttempt("a", "rate limited", retryable=True, after_ms=after_ms)

    refused = FailedAttempt("b", "bad key", retryable=False, after_ms=750)
    assert told == [
        (0.0, NextAttempt(down(0), 1, "a", 0.25)),
        (0.25, NextAttempt(down(250), 2, "a", 0.5)),
        (0.75, NextAttempt(down(750), 3, "b")),
        (0.75, NextAttempt(refused, 1, "c")),
    ]


async def test_the_last_attempt_of_all_is_told_of_by_the_error_alone(clock):
    told = []
    provider = Provider(clock, a=[REFUSED])

    task = await finish(clock, gateway(provider).complete(model_request("a"), told.append))

    assert isinstance(task.exception(), ModelRefusedError)
    assert told == []


async def test_the_provider_s_wish_is_waited_for_but_not_over_the_cap(clock):
    provider = Provider(clock, a=[ModelUnavailableError("429", 7.0), ModelUnavailableError("429", 3_600.0), "yes"])

    await finish(clock, gateway(provider).complete(model_request("a")))

    assert [when for _, when in provider.asked] == [0.0, 7.0, 27.0]


async def test_after_its_last_attempt_the_next_model_is_asked_at_once(clock):
    provider = Provider(clock, a=[DOWN], b=["yes"])

    task = await finish(clock, gateway(provider).complete(model_request("a", "b")))

    assert task.result().model == "b"
    assert [model for model, _ in provider.asked] == ["a", "a", "a", "b"]
    assert provider.asked[-1][1] == provider.asked[-2][1]


async def test_a_refusal_is_not_retried_but_falls_back(clock):
    provider = Provider(clock, a=[REFUSED], b=["yes"])

    reply = await gateway(provider).complete(model_request("a", "b"))

    assert reply.model == "b"
    assert provider.asked == [("a", 0.0), ("b", 0.0)]


async def test_an_exhausted_chain_names_every_model_and_why(clock):
    provider = Provider(clock, a=[DOWN], b=[REFUSED])

    task = await finish(clock, gateway(provider).complete(model_request("a", "b", "c")))

    error = task.exception()
    assert isinstance(error, ModelUnavailableError)
    assert "a (3 attempts): rate limited; b: bad key; c: no client serves it" in str(error)


async def test_a_chain_of_refusals_is_a_refusal(clock):
    provider = Provider(clock, a=[REFUSED])

    with pytest.raises(ModelRefusedError, match="no model answered: a: bad key; b: no client serves it"):
        await gateway(provider).complete(model_request("a", "b"))


async def test_an_empty_chain_says_what_to_set(clock):
    with pytest.raises(ModelRefusedError, match=r"`model:` in its agent\.yaml"):
        await gateway(Provider(clock)).complete(model_request())


async def test_each_attempt_has_its_own_time_limit(clock):
    provider = Provider(clock, a=[100.0, 100.0, "yes"])

    task = await finish(clock, gateway(provider).complete(model_request("a", timeout=10)))

    reply = task.result()
    assert [attempt.error for attempt in reply.failed_attempts] == ["did not answer within 10 s"] * 2
    assert [when for _, when in provider.asked] == [0.0, 10.25, 20.75]
    assert provider.cancelled == 2


@pytest.mark.property
@examples
@given(takes=st.lists(st.integers(1, 40).map(float), min_size=1, max_size=5), limit=st.integers(1, 30))
def test_property_12_a_model_call_that_takes_longer_than_its_limit_is_stopped_and_said_to_have_timed_out(takes, limit):
    assume(limit not in takes)
    attempts, clock = RetryPolicy().attempts, ManualClock()
    provider = Provider(clock, a=[*takes, 1_000.0])
    slow = next((number for number, seconds in enumerate([*takes, 1_000.0]) if seconds < limit), attempts)

    task = asyncio.run(finish(clock, gateway(provider).complete(model_request("a", timeout=limit))))

    told = [f"did not answer within {limit} s"] * min(slow, attempts)
    assert provider.cancelled == len(told)
    if slow < attempts:
        assert [each.error for each in task.result().failed_attempts] == told
    else:
        error = task.exception()
        assert isinstance(error, ModelUnavailableError)
        assert told[0] in str(error)


async def test_a_reply_carries_the_duration_of_its_own_attempt(clock):
    provider = Provider(clock, a=[DOWN, 2.5])

    task = await finish(clock, gateway(provider).complete(model_request("a")))

    assert task.result().duration_ms == 2_500


async def test_cancelling_stops_the_attempt_and_frees_its_place(clock):
    provider = Provider(clock, a=[100.0, "yes"])
    models = gateway(provider, max_concurrent=1)
    first = asyncio.create_task(models.complete(model_request("a")))
    await clock.wait_for_sleepers()

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first

    assert provider.cancelled == 1
    assert (await models.complete(model_request("a"))).text == "yes"
    assert clock.sleepers == 0


async def test_cancelling_during_the_wait_for_a_retry_asks_no_more(clock):
    provider = Provider(clock, a=[DOWN])
    task = asyncio.create_task(gateway(provider).complete(model_request("a")))
    await clock.wait_for_sleepers()
    await clock.settle()

    task.cancel()
    await clock.advance(100)

    assert task.cancelled()
    assert len(provider.asked) == 1


async def test_attempts_over_the_limit_wait_in_the_order_of_their_coming(clock):
    provider = Provider(clock, **{f"p/m{number}": [1.0] for number in range(5)})
    models = gateway(provider, max_concurrent=2)

    async with asyncio.TaskGroup() as tasks:
        for number in range(5):
            tasks.create_task(models.complete(model_request(f"p/m{number}")))
        await clock.advance(10)

    assert provider.most_running == 2
    assert provider.asked == [("p/m0", 0.0), ("p/m1", 0.0), ("p/m2", 1.0), ("p/m3", 1.0), ("p/m4", 2.0)]


async def test_waiting_for_a_place_does_not_count_against_the_time_limit(clock):
    provider = Provider(clock, **{"p/a": [8.0], "p/b": [8.0]})
    models = gateway(provider, max_concurrent=1)

    async with asyncio.TaskGroup() as tasks:
        both = [tasks.create_task(models.complete(model_request(model, timeout=10))) for model in ("p/a", "p/b")]
        await clock.advance(20)

    assert [task.result().failed_attempts for task in both] == [(), ()]


async def test_loading_the_client_counts_neither_against_the_time_limit_nor_as_a_running_attempt(clock):
    provider, quick = Provider(clock, a=[8.0]), Provider(clock, b=["at once"])
    provider.loading = 30.0
    models = ModelGateway([provider, quick], clock=clock, retry=RetryPolicy(), max_concurrent=1, jitter=lambda: 0.0)
    first = asyncio.create_task(models.complete(model_request("a", timeout=10)))
    await clock.settle()

    assert (await models.complete(model_request("b"))).text == "at once"
    await clock.advance(40)

    assert (first.result().failed_attempts, first.result().duration_ms) == ((), 8_000)


async def test_a_client_that_cannot_be_loaded_refuses_and_the_next_model_is_asked(clock):
    provider, other = Provider(clock, a=["never"]), Provider(clock, b=["yes"])
    provider.loading = ModelRefusedError("cannot be imported")
    models = ModelGateway([provider, other], clock=clock, retry=RetryPolicy(), jitter=lambda: 0.0)

    reply = await models.complete(model_request("a", "b"))

    assert reply.failed_attempts == (FailedAttempt("a", "cannot be imported", retryable=False),)
    assert provider.asked == []


async def test_a_call_that_waits_for_its_retry_leaves_its_place_to_others(clock):
    provider = Provider(clock, a=[ModelUnavailableError("429", 10.0), "late"], b=["at once"])
    models = gateway(provider, max_concurrent=1)
    first = asyncio.create_task(models.complete(model_request("a")))
    await clock.settle()

    assert (await models.complete(model_request("b"))).text == "at once"
    await clock.advance(10)
    assert first.result().text == "late"


def test_backoff_doubles_is_spread_by_jitter_and_stops_at_the_cap():
    policy = RetryPolicy(base=1.0, cap=5.0)

    assert [policy.delay(attempt, 0.0) for attempt in (1, 2, 3, 4, 5, 2_000)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert policy.delay(2, 0.5) == 1.5


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"base": -1.0}, {"cap": -1.0}])
def test_a_policy_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="at least"):
        RetryPolicy(**wrong)


@pytest.mark.parametrize("others", [DOWN, REFUSED])
async def test_a_chain_of_which_one_model_finds_the_prompt_too_long_says_that(others):
    """A shorter prompt is what may help, whatever the other models said."""
    clock = ManualClock()
    provider = Provider(clock, first=[others], second=[ContextWindowExceededError("9000 tokens")], third=[others])
    gateway = ModelGateway([provider], clock=clock, retry=RetryPolicy(1), jitter=lambda: 0.0)

    with pytest.raises(ContextWindowExceededError, match="second: 9000 tokens"):
        await gateway.complete(model_request("first", "second", "third"))


def of_definition(number, model):
    return replace(model_request(model), agent_id=f"definition{number}:1")


async def test_a_provider_begins_with_the_slots_that_are_known_and_is_asked_for_once(clock):
    asked = []

    async def known(provider):
        asked.append(provider)
        await clock.sleep(0.5)
        return ConcurrencyLimit(6, 6)

    provider = Provider(clock, **{"openai/a": [10.0], "other/b": ["yes"]})
    models = gateway(provider, known_limit=known)
    calls = [asyncio.create_task(models.complete(of_definition(at, "openai/a"))) for at in range(9)]
    calls.append(asyncio.create_task(models.complete(model_request("other/b"))))

    await clock.advance(0.5)
    assert calls[-1].done()
    await clock.advance(4.5)

    assert asked == ["openai", "other"]
    assert provider.running == 6
    assert models.learned == {"openai": ConcurrencyLimit(6, 6)}
    await clock.advance(100.0)
    assert all(call.done() for call in calls)
    assert models.learned == {}


async def test_a_provider_of_which_nothing_is_known_begins_as_without_anybody_to_ask(clock):
    async def nothing(_provider):
        return None

    provider = Provider(clock, a=[10.0])
    models = gateway(provider, known_limit=nothing)
    calls = [asyncio.create_task(models.complete(of_definition(at, "a"))) for at in range(70)]

    await clock.advance(5.0)

    assert provider.running == 64
    await clock.advance(100.0)
    assert all(call.done() for call in calls)
