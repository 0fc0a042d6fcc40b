"""Writing that does not give up."""

import asyncio

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.commands import ActivateAgent, ClaimRun, NothingQueued, ReleaseAgent
from owlclaw_ray.store.durable_store import DurableStore
from owlclaw_ray.testing.clock import ManualClock

SOLO = AgentRef.parse("solo")


class Failing:
    """A store that is unavailable for so many tries."""

    def __init__(self, failures):
        self.failures, self.tries = failures, []

    async def apply(self, commands):
        self.tries.append(list(commands))
        if len(self.tries) <= self.failures:
            raise StoreUnavailableError("not now")
        return [NothingQueued()] * len(commands)


async def test_a_claim_that_is_tried_again_says_when_it_is_made_and_what_happened_before_keeps_its_time():
    clock, store = ManualClock(), Failing(2)
    begun = clock.now()
    commands = [
        ReleaseAgent(SOLO, 1, AgentState(), begun),
        ActivateAgent(SOLO, "act_1", begun, claim=True),
        ClaimRun(SOLO, 1, begun),
    ]
    applying = asyncio.create_task(DurableStore(store, clock).apply_all(commands))
    while not applying.done():
        await clock.advance(1)

    assert len(store.tries) == 3
    assert store.tries[0] == commands
    release, activation, claim = store.tries[-1]
    assert release.at == begun
    assert activation.at == claim.at > begun
    assert (activation.activation_id, claim.epoch) == ("act_1", 1)


async def test_a_text_that_was_stored_is_not_stored_again_for_an_hour():
    clock = ManualClock()
    store = DurableStore(Failing(0), clock)
    store.note_stored_blobs(SOLO.tenant, {"h-1": "You are."})
    given = {"h-1": "You are.", "h-2": "[]"}

    await clock.advance(3_599)
    assert store.unstored_blobs(SOLO.tenant, given) == {"h-2": "[]"}
    await clock.advance(1)
    assert store.unstored_blobs(SOLO.tenant, given) == given
    assert store.unstored_blobs(TenantId("acme"), given) == given


async def test_a_text_is_stored_again_where_the_clock_was_put_back():
    late, early = ManualClock(), ManualClock()
    await late.advance(60)

    class PutBack(ManualClock):
        def now(self):
            return clocks.pop().now()

    clocks = [early, late]
    store = DurableStore(Failing(0), PutBack())
    store.note_stored_blobs(SOLO.tenant, {"h-1": "You are."})

    assert store.unstored_blobs(SOLO.tenant, {"h-1": "You are."}) == {"h-1": "You are."}


async def test_the_texts_that_are_remembered_are_those_that_were_stored_last(monkeypatch):
    monkeypatch.setattr("owlclaw_ray.store.durable_store._KNOWN_BLOBS", 2)
    store = DurableStore(Failing(0), ManualClock())
    for digest in ("h-1", "h-2", "h-1", "h-3"):
        store.note_stored_blobs(SOLO.tenant, {digest: "text"})

    given = dict.fromkeys(("h-1", "h-2", "h-3"), "text")
    assert store.unstored_blobs(SOLO.tenant, given).keys() == {"h-2"}
