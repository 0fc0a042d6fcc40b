"""What every Store promises about how long queues were, as tests."""

from __future__ import annotations

from datetime import datetime, timedelta

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.queue_length import KEPT, LengthRange, Queue, QueueMinute
from owlclaw_ray.domain.usage import Grain, floored
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import ClaimRun, NoteQueueLengths, QueueLengthsNoted
from owlclaw_ray.store.queries import LongestQueues
from owlclaw_ray.store.usage import QueueMinutes
from tests.contracts.store_commands import AGENT, NOW, activation, one, submission

MINUTE = floored(NOW, Grain.MINUTE)
ONE = timedelta(minutes=1)
QUEUED, CALLS = Queue.QUEUED_RUNS, Queue.WAITING_MODEL_CALLS


def minute(least: int, most: int, queue: Queue = QUEUED, at: datetime = MINUTE) -> QueueMinute:
    """Return what is known of a minute."""
    return QueueMinute(queue, at, LengthRange(least, most))


class QueueLengthsContract:
    """Lengths of queues, by minutes, and the longest queues of agents."""

    async def test_the_longest_queues_are_told_with_their_oldest_runs(self, store: Store) -> None:
        asked = {"a": 1, "b": 3, "c": 2, "idle": 1}
        for name, number in asked.items():
            agent = AgentRef.parse(f"trader:{name}")
            await store.apply([submission(f"run_{name}_{at}", agent) for at in range(number)])
        stranger = AgentRef.parse("trader:b", TenantId("acme"))
        await store.apply([submission(f"run_strange_{at}", stranger) for at in range(9)])
        idle = AgentRef.parse("trader:idle")
        await store.apply([activation("act_1", idle), ClaimRun(idle, 1, NOW)])

        async def found(limit: int = 9) -> list[tuple[str, int, str]]:
            queues = await store.read(LongestQueues(AGENT.tenant, limit))
            return [(each.oldest.agent.agent_id, each.length, each.oldest.run_id) for each in queues]

        longest = [("trader:b", 3, "run_b_0"), ("trader:c", 2, "run_c_0"), ("trader:a", 1, "run_a_0")]
        assert await found() == longest
        assert await found(2) == longest[:2]

    async def test_of_each_minute_and_queue_the_least_and_the_most_are_kept(self, store: Store) -> None:
        noted = ((0, {QUEUED: 7, CALLS: 0}), (20, {QUEUED: 2, CALLS: 5}), (59, {QUEUED: 3}), (60, {QUEUED: 9}))
        for seconds, lengths in noted:
            command = NoteQueueLengths(MINUTE + timedelta(seconds=seconds), lengths)
            assert await one(store, command) == QueueLengthsNoted()
            assert await one(store, command) == QueueLengthsNoted()

        found = await store.read(QueueMinutes(MINUTE))

        assert list(found) == [minute(2, 7), minute(0, 5, CALLS), minute(9, 9, at=MINUTE + ONE)]
        assert list(await store.read(QueueMinutes(MINUTE + ONE))) == [minute(9, 9, at=MINUTE + ONE)]

    async def test_lengths_that_are_noted_together_are_one_minutes(self, store: Store) -> None:
        await store.apply([NoteQueueLengths(MINUTE, {QUEUED: each}) for each in (4, 9, 1)])

        assert list(await store.read(QueueMinutes(MINUTE))) == [minute(1, 9)]

    async def test_minutes_are_forgotten_when_their_time_is_over(self, store: Store) -> None:
        await one(store, NoteQueueLengths(MINUTE, {QUEUED: 1}))
        await one(store, NoteQueueLengths(MINUTE + ONE, {QUEUED: 2, CALLS: 3}))
        await one(store, NoteQueueLengths(MINUTE + KEPT + ONE, {QUEUED: 4}))

        found = await store.read(QueueMinutes(MINUTE - KEPT))

        assert list(found) == [
            minute(2, 2, at=MINUTE + ONE),
            minute(3, 3, CALLS, at=MINUTE + ONE),
            minute(4, 4, at=MINUTE + KEPT + ONE),
        ]
