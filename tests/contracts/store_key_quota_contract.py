"""What every Store promises about the quotas of keys, as tests."""

from __future__ import annotations

import asyncio
from itertools import chain

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.quota import OPEN_RUNS, RUNNING_RUNS, KeyQuota, Quotas, key_held_account
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import BusyPolicy
from owlclaw_ray.ids import DEFAULT_TENANT, ActivationId, KeyId, RunId, TenantId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    ActivateAgent,
    AwaitRuns,
    CancelRun,
    ClaimRun,
    CreateSchedule,
    NothingQueued,
    PutKey,
    QuotaReached,
    RunAccepted,
    RunEnded,
    RunFinished,
    RunWaiting,
    SubmitRun,
)
from owlclaw_ray.store.queries import AgentsWithWork, BudgetUses, RunById, RunFilter
from tests.contracts.store_access_contract import KEY
from tests.contracts.store_commands import NOW, activation, claimed, ending, entries, one
from tests.contracts.store_quota_contract import ACME, CLERK, accepted, clerk, start, tenant
from tests.contracts.store_schedule_contract import DUE, firing, schedule

CI, OTHER_KEY = KeyId("4fT0aQ1z"), KeyId("another1")


async def key(store: Store, key_id: KeyId = CI, of: TenantId = ACME, **limits: int) -> KeyQuota:
    """Make a key with these quotas, and return them."""
    made = replace(KEY, key_id=key_id, tenant=of, **limits)
    await one(store, PutKey(made, None, ()))
    assert made.quota is not None
    return made.quota


async def used(store: Store, quota: str, key_id: KeyId = CI, of: TenantId = ACME) -> int:
    """Return how much there is of the key of what the quota counts."""
    account = key_held_account(quota, key_id, of)
    return sum(each.used for each in await store.read(BudgetUses((account,))))


def executing(number: int) -> ActivateAgent:
    """Return the activation of an agent that claims its run."""
    return ActivateAgent(clerk(number), ActivationId(f"act_{number}"), NOW, claim=True)


class KeyQuotaContract:
    """Keys have what they may have beside what their tenants may, and no more."""

    async def test_of_a_thousand_starts_at_once_a_key_has_exactly_as_many_open_as_it_may(self, store: Store) -> None:
        quota = await key(store, open_runs=100)
        batches = [
            [start(number, clerk(number), quota=quota) for number in range(first, 1_000, 20)] for first in range(20)
        ]

        outcomes = [*chain(*await asyncio.gather(*(store.apply(each) for each in batches)))]

        assert accepted(outcomes) == 100
        assert QuotaReached(OPEN_RUNS, 100, of_key=True) in outcomes
        assert len(await store.read(RunFilter(ACME, limit=1_000))) == 100
        assert await used(store, OPEN_RUNS) == 100
        others = await store.apply([start(number, clerk(number)) for number in range(2_000, 2_010)])
        assert accepted([*others]) == 10

    async def test_a_key_of_the_default_tenant_has_quotas_too(self, store: Store) -> None:
        quota, agent = await key(store, of=DEFAULT_TENANT, open_runs=1), AgentRef.parse("clerk")

        outcomes = [*await store.apply([start(number, agent, quota=quota) for number in range(3)])]

        assert accepted(outcomes) == 1
        assert await used(store, OPEN_RUNS, of=DEFAULT_TENANT) == 1

    async def test_the_quota_of_the_key_and_that_of_its_tenant_both_hold(self, store: Store) -> None:
        await one(store, tenant(Quotas(open_runs=3)))
        narrow, wide = await key(store, open_runs=2), await key(store, OTHER_KEY, open_runs=9)

        of_narrow = [*await store.apply([start(number, quota=narrow) for number in range(3)])]
        of_wide = [*await store.apply([start(number, quota=wide) for number in range(3, 6)])]

        assert (accepted(of_narrow), of_narrow[-1]) == (2, QuotaReached(OPEN_RUNS, 2, of_key=True))
        assert (accepted(of_wide), of_wide[-1]) == (1, QuotaReached(OPEN_RUNS, 3))

    async def test_a_run_of_a_key_that_is_over_leaves_its_place_however_it_ends(self, store: Store) -> None:
        quota = await key(store, open_runs=2, running_runs=1)
        await store.apply([start(0, quota=quota), start(1, quota=quota), activation("act_1", CLERK)])
        await claimed(store, agent=CLERK)

        await one(store, ending("run_acme_0", agent=CLERK))
        await one(store, CancelRun(ACME, RunId("run_acme_1"), NOW))
        after = (await used(store, OPEN_RUNS), await used(store, RUNNING_RUNS))
        again = [*await store.apply([start(number, quota=quota) for number in range(2, 5)])]

        assert after == (0, 0)
        assert accepted(again) == 2

    async def test_a_run_that_is_submitted_again_counts_once_for_its_key_and_one_that_joins_for_none(
        self, store: Store
    ) -> None:
        quota, other = await key(store, open_runs=1), await key(store, OTHER_KEY, open_runs=1)
        command = start(1, quota=quota, busy=BusyPolicy.COALESCE)

        first, again = await one(store, command), await one(store, command)
        joins = await one(store, start(2, quota=other, busy=BusyPolicy.COALESCE))

        assert isinstance(first, RunAccepted)
        assert isinstance(again, RunAccepted)
        assert isinstance(joins, RunAccepted)
        assert joins.merged
        assert (await used(store, OPEN_RUNS), await used(store, OPEN_RUNS, OTHER_KEY)) == (1, 0)

    async def test_what_agents_and_schedules_start_counts_for_the_keys_that_asked_for_it(self, store: Store) -> None:
        await key(store, open_runs=2)
        await key(store, OTHER_KEY, starts_a_minute=9)
        keys = (CI, OTHER_KEY, KeyId("unknown1"))
        fired = firing("sch_1", DUE, DUE)
        assert fired.run is not None
        due = replace(fired, run=replace(fired.run, agent=CLERK, counting_keys=keys))

        child = await one(store, start(1, clerk(1), counting_keys=keys))
        await store.apply([CreateSchedule(schedule("sch_1", CLERK), 9), due])
        refused = await one(store, start(2, clerk(2), counting_keys=keys))
        before = await used(store, OPEN_RUNS)
        await one(store, CancelRun(ACME, RunId("run_acme_1"), NOW))

        assert isinstance(child, RunAccepted)
        assert refused == QuotaReached(OPEN_RUNS, 2, of_key=True)
        assert (before, await used(store, OPEN_RUNS)) == (2, 1)

    async def test_as_many_runs_of_a_key_are_executed_at_once_as_may_be_and_those_of_others_go_on(
        self, store: Store
    ) -> None:
        quota = await key(store, running_runs=2)
        await store.apply([*(start(number, clerk(number), quota=quota) for number in range(4)), start(4, clerk(4))])

        claims = await store.apply([executing(number) for number in range(5)])

        executed = [getattr(each, "claimed", None) is not None for each in claims]
        assert executed == [True, True, False, False, True]
        assert await used(store, RUNNING_RUNS) == 2
        assert await one(store, ClaimRun(clerk(2), 1, NOW)) == NothingQueued()
        waits = {run.run_id: run.waits_for for run in await store.read(RunFilter(ACME))}
        assert waits == {
            "run_acme_0": "",
            "run_acme_1": "",
            "run_acme_2": "running_runs_of_key",
            "run_acme_3": "running_runs_of_key",
            "run_acme_4": "",
        }
        ended = await one(store, ending("run_acme_0", agent=clerk(0)))
        again = await one(store, ending("run_acme_0", agent=clerk(0)))
        assert (ended, again) == (RunFinished(None, (clerk(2),)), RunFinished())
        assert (await claimed(store, agent=clerk(2))).run.run_id == "run_acme_2"
        assert await one(store, ClaimRun(clerk(3), 1, NOW)) == NothingQueued()

    async def test_the_end_of_a_run_claims_the_next_one_of_a_full_key_for_who_has_waited_longest_and_others_at_once(
        self, store: Store
    ) -> None:
        quota = await key(store, running_runs=1)
        agents = [activation(f"act_{each}", clerk(each)) for each in range(2)]
        await store.apply([start(0, clerk(0), quota=quota), start(1, clerk(1), quota=quota), *agents])
        await store.apply([start(2, clerk(0), quota=quota), start(3, clerk(1))])
        await claimed(store, agent=clerk(0))

        first = await one(store, ending("run_acme_0", agent=clerk(0)))
        await claimed(store, agent=clerk(1))
        second = await one(store, ending("run_acme_1", agent=clerk(1)))

        assert first == RunFinished(None, (clerk(1),))
        assert isinstance(second, RunFinished)
        assert second.next is not None
        assert (second.next.run.run_id, second.admitted) == ("run_acme_3", (clerk(0),))

    async def test_a_place_of_a_key_goes_to_the_agent_whose_next_run_is_of_it_which_is_that_of_the_highest_priority(
        self, store: Store
    ) -> None:
        quota = await key(store, running_runs=1)
        await store.apply([start(0, clerk(0), quota=quota), executing(0)])
        of_key_later = [start(1, clerk(1), quota=quota), start(2, clerk(1), priority=5)]
        of_key_next = [start(3, clerk(2)), start(4, clerk(2), quota=quota, priority=5)]
        await store.apply([*of_key_later, *of_key_next])

        ended = await one(store, ending("run_acme_0", agent=clerk(0)))

        assert ended == RunFinished(None, (clerk(2),))
        await one(store, activation("act_2", clerk(2)))
        assert (await claimed(store, agent=clerk(2))).run.run_id == "run_acme_4"

    async def test_a_run_of_a_key_that_waits_leaves_its_place_and_needs_one_to_go_on(self, store: Store) -> None:
        quota = await key(store, running_runs=1)
        agents = [activation(f"act_{each}", clerk(each)) for each in range(2)]
        await store.apply([start(0, clerk(0), quota=quota), start(1, clerk(1), counting_keys=(CI,)), *agents])
        await claimed(store, agent=clerk(0))
        child = (RunId("run_acme_1"),)

        waits = await one(
            store, AwaitRuns(RunId("run_acme_0"), clerk(0), 1, entries(3, EntryKind.MODEL_REPLIED), child)
        )
        await claimed(store, agent=clerk(1))
        await one(store, RunEnded(clerk(0), RunId("run_acme_0"), child))
        refused = await one(store, ClaimRun(clerk(0), 1, NOW))
        held = await store.read(RunById(ACME, RunId("run_acme_0")))
        ended = await one(store, ending("run_acme_1", agent=clerk(1)))

        assert waits == RunWaiting((clerk(1),))
        assert refused == NothingQueued()
        assert held is not None
        assert held.waits_for == "running_runs_of_key"
        assert ended == RunFinished(None, (clerk(0),))
        assert (await claimed(store, agent=clerk(0))).run.run_id == "run_acme_0"
        assert await used(store, RUNNING_RUNS) == 1

    async def test_a_place_of_a_tenant_goes_to_a_run_whose_key_has_one_not_to_the_first_that_waits(
        self, store: Store
    ) -> None:
        await one(store, tenant(Quotas(running_runs=2)))
        quota = await key(store, running_runs=1)
        of_key: list[SubmitRun] = [start(number, clerk(number), quota=quota) for number in range(3)]
        await store.apply([*of_key, *(start(number, clerk(number)) for number in range(3, 6))])
        await store.apply([executing(0), executing(3)])

        ended = await one(store, ending("run_acme_3", agent=clerk(3)))

        assert ended == RunFinished(None, (clerk(4),))

    async def test_a_sweep_finds_as_many_agents_of_a_key_as_may_begin_and_those_of_others(self, store: Store) -> None:
        quota, full = await key(store, running_runs=3), await key(store, OTHER_KEY, running_runs=0)
        await store.apply([start(number, clerk(number), quota=quota) for number in range(6)])
        await store.apply([start(number, clerk(number), quota=full) for number in range(6, 9)])
        await store.apply([start(number, clerk(number)) for number in range(9, 11)])
        await one(store, executing(0))

        found = await store.read(AgentsWithWork())
        await one(store, tenant(Quotas(running_runs=3)))
        narrower = await store.read(AgentsWithWork())

        assert [*found] == [clerk(each) for each in (0, 1, 2, 9, 10)]
        assert [*narrower] == [clerk(each) for each in (0, 1, 2)]
        assert {run.status for run in await store.read(RunFilter(ACME))} == {RunStatus.QUEUED, RunStatus.RUNNING}

    async def test_runs_of_keys_without_such_quotas_leave_no_accounts(self, store: Store) -> None:
        quota = await key(store, starts_a_minute=5)

        await one(store, start(1, quota=quota))

        assert await store.read(BudgetUses((key_held_account(OPEN_RUNS, CI, ACME),))) == []
