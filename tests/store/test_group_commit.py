from __future__ import annotations

import asyncio

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.commands import EndHandover, HoldLease, LeaseReleased, ReleaseLease, RunAccepted
from owlclaw_ray.store.group_commit import GroupCommit
from tests.contracts.store_commands import AGENT, submission


class GatedStore:
    """Keeps every batch waiting until the test lets it through, with outcomes or an error."""

    def __init__(self, *outcomes):
        self.batches = []
        self.gate = asyncio.Semaphore(0)
        self.error = None
        self._outcomes = outcomes

    async def apply(self, commands):
        self.batches.append(list(commands))
        await self.gate.acquire()
        if self.error is not None:
            raise self.error
        return self._outcomes or [RunAccepted(command.run_id, 1, AGENT) for command in commands]


class Observer:
    """Notes what was committed."""

    def __init__(self):
        self.seen = []

    def committed(self, commands, _outcomes, _seconds):
        self.seen.append(list(commands))


async def started(task_count, commit, *, first=0):
    tasks = [asyncio.ensure_future(commit.apply([submission(f"run_{first + at}")])) for at in range(task_count)]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def test_what_arrives_during_a_commit_goes_into_the_next():
    store = GatedStore()
    commit = GroupCommit(store, linger=0)
    first = await started(1, commit)
    rest = await started(5, commit, first=1)

    assert [len(batch) for batch in store.batches] == [1]
    store.gate.release()
    store.gate.release()
    outcomes = await asyncio.gather(*first, *rest)

    assert [len(batch) for batch in store.batches] == [1, 5]
    assert [outcome.run_id for [outcome] in outcomes] == [f"run_{at}" for at in range(6)]


@pytest.mark.parametrize(
    "command",
    [HoldLease("b", "directory", 1), ReleaseLease("b", "directory"), EndHandover("b")],
    ids=lambda each: type(each).__name__,
)
async def test_what_is_about_the_lease_waits_for_no_request_that_came_before(command):
    store = GatedStore(LeaseReleased())
    commit = GroupCommit(store, linger=0)
    requests = [*await started(1, commit), *await started(600, commit, first=1)]

    about_lease = asyncio.ensure_future(commit.apply([command]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert [len(batch) for batch in store.batches] == [1, 1]
    assert store.batches[1] == [command]
    for _ in range(4):
        store.gate.release()

    assert await about_lease == (LeaseReleased(),)
    await asyncio.gather(*requests)


async def test_a_transaction_about_the_lease_is_observed_and_waited_for_by_who_closes():
    store, observer = GatedStore(LeaseReleased()), Observer()
    commit = GroupCommit(store, observer=observer)
    about_lease = asyncio.ensure_future(commit.apply([EndHandover("b")]))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(commit.close())
    about_lease.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not closing.done()

    store.gate.release()
    await closing

    assert observer.seen == [[EndHandover("b")]]


async def test_callers_that_come_together_share_a_transaction():
    store = GatedStore()
    store.gate.release()
    commit = GroupCommit(store, linger=3_600)

    await asyncio.gather(*(commit.apply([submission(f"run_{at}")]) for at in range(20)))

    assert [len(batch) for batch in store.batches] == [20]


async def test_a_request_that_comes_alone_waits_for_nobody_and_one_behind_a_shared_transaction_for_company():
    store = GatedStore()
    commit = GroupCommit(store, max_batch=3, linger=3_600)
    for _ in range(4):
        store.gate.release()
    await commit.apply([submission("alone")])
    await commit.apply([submission("alone again")])
    await asyncio.gather(commit.apply([submission("one")]), commit.apply([submission("two")]))
    [waiting] = await started(1, commit)
    lingered = [len(batch) for batch in store.batches]
    await asyncio.gather(waiting, *await started(2, commit, first=1))

    assert lingered == [1, 1, 2]
    assert [len(batch) for batch in store.batches] == [1, 1, 2, 3]


async def test_a_full_batch_does_not_linger_and_requests_stay_whole():
    store = GatedStore()
    commit = GroupCommit(store, max_batch=4, linger=3_600)
    for _ in range(4):
        store.gate.release()
    await asyncio.gather(commit.apply([submission("one")]), commit.apply([submission("two")]))

    tasks = [asyncio.ensure_future(commit.apply([submission(f"{at}_{each}") for each in range(3)])) for at in range(2)]
    large = asyncio.ensure_future(commit.apply([submission(f"large_{each}") for each in range(9)]))

    await asyncio.gather(*tasks, large)
    assert [len(batch) for batch in store.batches] == [2, 3, 3, 9]


async def test_a_failed_commit_fails_all_its_callers_and_no_others():
    store = GatedStore()
    commit = GroupCommit(store, linger=0)
    first = await started(1, commit)
    second = await started(2, commit, first=1)
    store.gate.release()
    await asyncio.gather(*first)
    store.error = StoreUnavailableError("disk full")
    store.gate.release()

    results = await asyncio.gather(*second, return_exceptions=True)

    assert results == [store.error] * 2
    store.error = None
    store.gate.release()
    assert len(await commit.apply([submission("run_9")])) == 1


async def test_a_caller_that_gives_up_does_not_disturb_the_others():
    store = GatedStore()
    commit = GroupCommit(store, linger=0)
    tasks = await started(3, commit)
    tasks[1].cancel()
    store.gate.release()

    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert isinstance(results[1], asyncio.CancelledError)
    assert [len(results[0]), len(results[2])] == [1, 1]


async def test_closing_commits_what_waits_and_refuses_the_rest():
    store = GatedStore()
    commit = GroupCommit(store, linger=3_600)
    waiting = await started(2, commit)
    store.gate.release()

    await commit.close()

    assert all(task.done() for task in waiting)
    assert [len(batch) for batch in store.batches] == [2]
    with pytest.raises(StoreUnavailableError):
        await commit.apply([submission("run_9")])


async def test_requests_of_tenants_are_committed_in_turns():
    store = GatedStore()
    commit = GroupCommit(store, max_batch=4, linger=0)
    requests = [(tenant, f"{tenant}_{at}", size) for tenant, size in (("greedy", 3), ("modest", 1)) for at in range(3)]
    tasks = await started(1, commit)
    for tenant, name, size in requests:
        agent = AgentRef(TenantId(tenant), AGENT.agent_id)
        commands = [submission(f"{name}.{each}", agent) for each in range(size)]
        tasks.append(asyncio.ensure_future(commit.apply(commands)))
        await asyncio.sleep(0)
    for _ in range(10):
        store.gate.release()
    await asyncio.gather(*tasks)

    told = [[command.run_id for command in batch if command.run_id.endswith(".0")] for batch in store.batches[1:]]
    assert told == [["greedy_0.0", "modest_0.0"], ["greedy_1.0", "modest_1.0"], ["greedy_2.0", "modest_2.0"]]
