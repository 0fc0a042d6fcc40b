"""What a gateway learned of its providers is noted in a real store, and found there by the next one."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from owlclaw_ray.domain.concurrency_limit import KEPT, ConcurrencyLimit
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.models.learned_limits import NOTE_SECONDS, LearnedLimits
from owlclaw_ray.store.commands import CommandFailed, ConcurrencyLimitsNoted
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock

PROVIDER = "https://models.example.org with the key of acme"
MANY = ConcurrencyLimit(500)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def store(tmp_path):
    opened = await open_store(f"sqlite:///{tmp_path}/store.db", writer="keeper-1")
    yield opened
    await opened.close()


class Seen:
    """A store whose writes are seen, and which can be away."""

    def __init__(self, store=None):
        self.store, self.applied, self.away = store, [], None

    async def apply(self, commands):
        if isinstance(self.away, Exception):
            raise self.away
        self.applied += commands
        if self.away is not None:
            return [self.away]
        return [ConcurrencyLimitsNoted()] if self.store is None else await self.store.apply(commands)

    async def read(self, query):
        if self.away is not None:
            raise self.away
        return await self.store.read(query)


async def test_a_gateway_begins_with_what_the_last_one_of_its_node_learned(store, clock):
    await LearnedLimits(store, "here", clock).note({PROVIDER: ConcurrencyLimit(90, 80)})
    await LearnedLimits(store, "elsewhere", clock).note({PROVIDER: MANY})

    assert await LearnedLimits(store, "here", clock).limit(PROVIDER) == ConcurrencyLimit(90, 80)


async def test_a_gateway_of_a_new_node_begins_with_the_mean_of_the_others(store, clock):
    await LearnedLimits(store, "a", clock).note({PROVIDER: ConcurrencyLimit(90, 80)})
    await LearnedLimits(store, "b", clock).note({PROVIDER: ConcurrencyLimit(190, 120)})
    new = LearnedLimits(store, "new", clock)

    assert await new.limit(PROVIDER) == ConcurrencyLimit(140, 100)
    await LearnedLimits(store, "c", clock).note({PROVIDER: ConcurrencyLimit(500)})
    assert await new.limit(PROVIDER) == ConcurrencyLimit(260, None)


async def test_what_was_learned_of_another_provider_or_long_ago_is_not_begun_with(store, clock):
    before = LearnedLimits(store, "before", clock)
    await before.note({PROVIDER: MANY})
    after = LearnedLimits(store, "after", clock)

    assert await after.limit("openai") is None
    await clock.advance(KEPT.total_seconds())
    assert await after.limit(PROVIDER) == MANY
    await clock.advance(0.001)
    assert await after.limit(PROVIDER) is None


async def test_names_of_tenants_and_addresses_are_not_in_the_store(store, clock, tmp_path):
    await LearnedLimits(store, "here", clock).note({PROVIDER: MANY})

    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"here" in written
    assert b"acme" not in written
    assert b"example.org" not in written


async def test_a_store_that_is_away_or_silent_holds_up_no_call(store, clock, caplog):
    seen = Seen(store)
    limits = LearnedLimits(seen, "here", clock)
    seen.away = StoreUnavailableError("the Keeper is being restarted")

    assert await limits.limit(PROVIDER) is None
    assert "its slots begin anew: the Keeper is being restarted" in caplog.text

    async def silence(_query):
        await asyncio.Event().wait()

    seen.read = silence
    asked = asyncio.create_task(limits.limit(PROVIDER))
    await clock.advance(2.0)
    assert await asked is None
    assert "its slots begin anew: no answer" in caplog.text


async def test_only_what_has_changed_is_noted_and_what_is_used_does_not_grow_old(clock):
    seen, present = Seen(), {PROVIDER: ConcurrencyLimit(100)}
    keeping = asyncio.create_task(LearnedLimits(seen, "here", clock).keep(lambda: present))

    async def noted_after(seconds):
        seen.applied.clear()
        await clock.advance(seconds)
        return [limit.calls for command in seen.applied for limit in command.limits.values()]

    assert await noted_after(NOTE_SECONDS) == [100]
    present[PROVIDER] = ConcurrencyLimit(109)
    assert await noted_after(2 * NOTE_SECONDS) == []
    present[PROVIDER] = ConcurrencyLimit(111)
    assert await noted_after(2 * NOTE_SECONDS) == [111]
    present[PROVIDER] = ConcurrencyLimit(105, 105)
    assert await noted_after(2 * NOTE_SECONDS) == [105]
    present[PROVIDER] = ConcurrencyLimit(50, 50)
    assert await noted_after(2 * NOTE_SECONDS) == [50]
    seen.away = StoreUnavailableError("disk full")
    present[PROVIDER] = ConcurrencyLimit(20, 20)
    assert await noted_after(2 * NOTE_SECONDS) == []
    seen.away = None
    assert await noted_after(NOTE_SECONDS) == [20]
    assert await noted_after(KEPT.total_seconds()) == [20] * 5
    present.clear()
    assert await noted_after(KEPT.total_seconds()) == []
    keeping.cancel()


@pytest.mark.parametrize("failure", [StoreUnavailableError("disk full"), CommandFailed("disk full")])
async def test_what_could_not_be_noted_is_noted_when_the_store_is_back(store, clock, failure):
    seen = Seen(store)
    limits, after = LearnedLimits(seen, "here", clock), LearnedLimits(store, "after", clock)
    seen.away = failure
    with suppress(StoreUnavailableError):
        await limits.note({PROVIDER: MANY})
    assert await after.limit(PROVIDER) is None

    seen.away = None
    await limits.note({PROVIDER: MANY})

    assert await after.limit(PROVIDER) == MANY
