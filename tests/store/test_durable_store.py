"""Writing that does not give up."""

import asyncio

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.errors import StoreUnavailableError
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
