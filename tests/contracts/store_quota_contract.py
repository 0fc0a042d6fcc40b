"""What every Store promises about quotas, as tests."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import BudgetUse, minute_of
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.memory import ACKNOWLEDGED
from owlclaw_ray.domain.quota import (
    AGENTS,
    ARTIFACT_BYTES,
    MEMORIES,
    MEMORY_BYTES,
    OPEN_RUNS,
    RUNNING_RUNS,
    SCHEDULES,
    KeyQuota,
    Quotas,
    held_account,
    key_starts_account,
    starts_account,
)
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import ScheduleKind, TickOutcome
from owlclaw_ray.domain.tenant import Tenant, TenantStatus
from owlclaw_ray.domain.trigger import BusyPolicy
from owlclaw_ray.domain.webhook import DeliveryStatus
from owlclaw_ray.ids import ActivationId, ArtifactId, KeyId, RunId, ScheduleId, TenantId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.artifacts import ArtifactById, ArtifactPart
from owlclaw_ray.store.commands import (
    ActivateAgent,
    AgentActivated,
    ArtifactStored,
    AwaitApprovals,
    AwaitRuns,
    BackfillTick,
    CancelRun,
    CancelSchedule,
    ClaimRun,
    CommandFailed,
    CreateSchedule,
    DeliveryStored,
    FireSchedule,
    ForgetArtifacts,
    MemoriesStored,
    NothingQueued,
    OldArtifact,
    Outcome,
    PauseSchedule,
    PutArtifact,
    PutArtifactPart,
    PutKey,
    PutTenant,
    QuotaReached,
    ReceiveDelivery,
    RunAccepted,
    RunEnded,
    RunFinished,
    RunReleased,
    RunWaiting,
    ScheduleCreated,
    ScheduleFired,
    SubmitRun,
)
from owlclaw_ray.store.queries import (
    AgentByRef,
    AgentsWithWork,
    BudgetUses,
    MemoryOfAgent,
    RunById,
    RunFilter,
    TicksOfSchedule,
)
from tests.contracts.store_access_contract import KEY
from tests.contracts.store_approval_contract import deciding, request
from tests.contracts.store_commands import AGENT, NOW, activation, claimed, ending, entries, one, submission
from tests.contracts.store_memory_contract import ACTIVE, ARCHIVE, appended, change, written
from tests.contracts.store_schedule_contract import DUE, backfilling, firing, schedule
from tests.contracts.store_webhook_contract import delivery

ACME, OTHER = TenantId("acme"), TenantId("other")
CLERK = AgentRef.parse("clerk", ACME)
MINUTE = timedelta(minutes=1)


def tenant(quotas: Quotas, name: TenantId = ACME) -> PutTenant:
    """Return the making of a tenant with these quotas."""
    return PutTenant(Tenant(name, "Acme", NOW, "system:local", quotas=quotas), None)


def start(number: int, agent: AgentRef = CLERK, **changes: object) -> SubmitRun:
    """Return the submission of a run of the tenant."""
    return replace(submission(f"run_{agent.tenant}_{number}", agent), **changes)


def accepted(outcomes: list[Outcome]) -> int:
    """Return how many of these runs were accepted; all others were refused for a quota."""
    found = sum(isinstance(each, RunAccepted) for each in outcomes)
    assert found + sum(isinstance(each, QuotaReached) for each in outcomes) == len(outcomes)
    return found


async def used(store: Store, quota: str) -> int:
    """Return how much the tenant has of what the quota counts."""
    (use,) = await store.read(BudgetUses((held_account(quota, ACME),)))
    assert use.reserved == 0
    return use.used


def clerk(number: int) -> AgentRef:
    """Return an agent of the tenant."""
    return AgentRef.parse(f"clerk:{number}", ACME)


def artifact_id(number: int) -> ArtifactId:
    """Return the id of an artifact."""
    return ArtifactId(f"art_{number:026d}")


def artifact(number: int, size: int, agent: AgentRef = CLERK) -> tuple[PutArtifactPart, PutArtifact]:
    """Return what stores an artifact of that size."""
    part = PutArtifactPart(agent, artifact_id(number), 0, b"x" * size, NOW, total_bytes=size)
    return part, PutArtifact(agent, artifact_id(number), "text/plain", size, 1, "", NOW)


class QuotaContract:
    """Runs are accepted as far as quotas go, and no further."""

    async def test_exactly_as_many_runs_start_in_a_minute_as_may_and_then_as_many_in_the_next_one(
        self, store: Store
    ) -> None:
        await one(store, tenant(Quotas(starts_a_minute=10)))

        first = [*await store.apply([start(number) for number in range(7)])]
        second = [*await store.apply([start(number) for number in range(7, 20)])]
        later = [*await store.apply([start(number, at=NOW + MINUTE) for number in range(20, 40)])]

        assert (accepted(first), accepted(second), accepted(later)) == (7, 3, 10)
        assert second[-1] == QuotaReached("starts_a_minute", 10, minute_of(NOW).ends_at)
        uses = await store.read(
            BudgetUses((starts_account(ACME, minute_of(NOW)), starts_account(ACME, minute_of(NOW + MINUTE)), "none"))
        )
        assert {each.account: each.used for each in uses} == {
            starts_account(ACME, minute_of(NOW)): 10,
            starts_account(ACME, minute_of(NOW + MINUTE)): 10,
        }

    async def test_a_run_that_is_submitted_again_counts_once_and_is_not_refused(self, store: Store) -> None:
        await one(store, tenant(Quotas(starts_a_minute=2, open_runs=2)))
        commands = [start(1), start(2)]

        for _ in range(3):
            assert accepted([*await store.apply([*commands, *commands])]) == 4
        assert isinstance(await one(store, start(3)), QuotaReached)

    async def test_quotas_are_of_a_tenant_alone(self, store: Store) -> None:
        await store.apply([tenant(Quotas(starts_a_minute=1, open_runs=1)), tenant(Quotas(open_runs=2), OTHER)])
        strangers = [AgentRef.parse("clerk", OTHER), AgentRef.parse("clerk")]

        outcomes = await store.apply([start(number, agent) for number in range(3) for agent in (CLERK, *strangers)])

        assert [sum(isinstance(each, RunAccepted) for each in outcomes[at::3]) for at in range(3)] == [1, 2, 3]

    async def test_a_run_that_is_over_leaves_its_place_to_another(self, store: Store) -> None:
        await one(store, tenant(Quotas(open_runs=2)))
        await store.apply([start(1), start(2), activation("act_1", CLERK)])
        assert await one(store, start(3)) == QuotaReached("open_runs", 2)
        await claimed(store, agent=CLERK)
        assert await one(store, start(3)) == QuotaReached("open_runs", 2)

        await one(store, ending("run_acme_1", agent=CLERK, claim_next=False))
        assert isinstance(await one(store, start(3)), RunAccepted)
        await one(store, CancelRun(ACME, RunId("run_acme_3"), NOW))
        assert isinstance(await one(store, start(4)), RunAccepted)

        assert await one(store, start(5)) == QuotaReached("open_runs", 2)
        assert await store.read(BudgetUses((held_account(OPEN_RUNS, ACME),))) == [
            BudgetUse(held_account(OPEN_RUNS, ACME), 2, 0)
        ]

    async def test_runs_that_a_cancelled_schedule_ends_give_their_places_back(self, store: Store) -> None:
        await one(store, tenant(Quotas(open_runs=2)))
        await one(store, CreateSchedule(schedule("sch_1", CLERK), 9))
        fired = firing("sch_1", DUE, DUE + timedelta(minutes=5))
        assert fired.run is not None
        await one(store, replace(fired, run=replace(fired.run, agent=CLERK)))
        assert await store.read(BudgetUses((held_account(OPEN_RUNS, ACME),))) == [
            BudgetUse(held_account(OPEN_RUNS, ACME), 1, 0)
        ]

        await one(store, CancelSchedule(CLERK, ScheduleId("sch_1"), NOW))

        assert await store.read(BudgetUses((held_account(OPEN_RUNS, ACME),))) == [
            BudgetUse(held_account(OPEN_RUNS, ACME), 0, 0)
        ]

    async def test_a_webhook_that_finds_a_quota_reached_is_kept_as_refused(self, store: Store) -> None:
        await one(store, tenant(Quotas(open_runs=0)))
        arrived = replace(delivery("1"), tenant=ACME, agent=CLERK)

        stored = await one(store, ReceiveDelivery(arrived, start(1)))

        assert isinstance(stored, DeliveryStored)
        assert (stored.delivery.status, stored.submitted) == (DeliveryStatus.REFUSED, QuotaReached("open_runs", 0))
        assert stored.delivery.reason.startswith("quota reached: the tenant has 0 runs that are not over (open_runs)")

    async def test_minutes_that_are_long_over_leave_nothing_behind(self, store: Store) -> None:
        key, agent = KeyQuota(KeyId("4fT0aQ1z"), 2), AgentRef.parse("clerk")
        minutes = [NOW + number * timedelta(days=1) for number in range(600)]

        for at in range(0, 600, 100):
            await store.apply([start(n, agent, quota=key, at=minutes[n]) for n in range(at, at + 100)])

        accounts = tuple(key_starts_account(key.key_id, minute_of(at)) for at in minutes)
        assert len(await store.read(BudgetUses(accounts))) < 200

    async def test_runs_that_are_submitted_and_end_in_one_batch_leave_nothing_behind(self, store: Store) -> None:
        await one(store, tenant(Quotas(open_runs=1)))

        ends = [CancelRun(ACME, RunId(f"run_acme_{number}"), NOW) for number in range(5)]
        commands = [each for number in range(5) for each in (start(number), ends[number])]
        outcomes = [*await store.apply(commands)]

        assert accepted(outcomes[::2]) == 5
        assert await store.read(BudgetUses((held_account(OPEN_RUNS, ACME),))) == [
            BudgetUse(held_account(OPEN_RUNS, ACME), 0, 0)
        ]

    async def test_a_trigger_that_joins_a_queued_run_is_none_more(self, store: Store) -> None:
        await one(store, tenant(Quotas(open_runs=1, starts_a_minute=1)))

        outcomes = await store.apply([start(number, busy=BusyPolicy.COALESCE) for number in range(3)])

        assert [isinstance(each, RunAccepted) and each.merged for each in outcomes] == [False, True, True]

    async def test_a_key_starts_as_many_as_it_may_whatever_its_tenant_may(self, store: Store) -> None:
        key, agent = KeyQuota(KeyId("4fT0aQ1z"), 2), AgentRef.parse("clerk")

        outcomes = [*await store.apply([start(number, agent, quota=key) for number in range(4)])]
        others = [*await store.apply([start(number, agent) for number in range(4, 6)])]

        assert (accepted(outcomes), accepted(others)) == (2, 2)
        assert outcomes[-1] == QuotaReached("starts_a_minute", 2, minute_of(NOW).ends_at, of_key=True)

    async def test_what_a_schedule_starts_counts_for_the_keys_that_asked_for_it(self, store: Store) -> None:
        unlimited, limited = KEY, replace(KEY, key_id=KeyId("limited1"), starts_a_minute=2)
        await store.apply([PutKey(unlimited, None, ()), PutKey(limited, None, ())])
        revoked = replace(limited, revoked_at=NOW)
        await one(store, PutKey(revoked, limited, ()))
        keys = (unlimited.key_id, KeyId("unknown1"), limited.key_id)

        def due(number: int) -> FireSchedule:
            fired = firing(f"sch_{number}", DUE, DUE + MINUTE)
            assert fired.run is not None
            return replace(fired, run=replace(fired.run, counting_keys=keys))

        await store.apply([CreateSchedule(schedule(f"sch_{number}"), 9) for number in range(3)])
        own = KeyQuota(limited.key_id, 2)
        asked = await one(store, start(1, AGENT, quota=own, at=DUE))
        fired = await store.apply([due(number) for number in range(3)])
        late = await one(store, start(2, AGENT, quota=own, at=DUE))

        assert isinstance(asked, RunAccepted)
        assert [isinstance(each, ScheduleFired) and each.run is not None for each in fired] == [True, False, False]
        (tick,) = await store.read(TicksOfSchedule(ScheduleId("sch_1")))
        assert tick.outcome is TickOutcome.SKIPPED
        assert tick.reason == (
            "quota reached: the key has 2 starts in this minute (starts_a_minute), and may have no more"
        )
        assert late == QuotaReached("starts_a_minute", 2, minute_of(DUE).ends_at, of_key=True)
        accounts = tuple(key_starts_account(each, minute_of(DUE)) for each in keys)
        assert await store.read(BudgetUses(accounts)) == [BudgetUse(accounts[2], 2, 0)]

    async def test_a_time_that_is_due_and_finds_a_quota_reached_is_skipped_and_says_so(self, store: Store) -> None:
        await one(store, tenant(Quotas(open_runs=1)))
        await store.apply([start(1), CreateSchedule(schedule("sch_1", CLERK), 9)])
        fired = firing("sch_1", DUE, DUE + timedelta(minutes=5))
        assert fired.run is not None
        command: FireSchedule = replace(fired, run=replace(fired.run, agent=CLERK))
        past: BackfillTick = backfilling("sch_1", DUE - timedelta(minutes=5), CLERK)

        await one(store, command)
        refused = await one(store, past)

        (tick,) = await store.read(TicksOfSchedule(command.schedule_id))
        assert (tick.outcome, tick.run_id) == (TickOutcome.SKIPPED, None)
        assert tick.reason == "quota reached: the tenant has 1 run that is not over (open_runs), and may have no more"
        assert refused == QuotaReached("open_runs", 1)

    async def test_nothing_of_a_suspended_tenant_starts_and_what_was_queued_starts_when_it_is_resumed(
        self, store: Store
    ) -> None:
        made, stranger = tenant(Quotas()), AgentRef.parse("clerk", OTHER)
        suspended = PutTenant(replace(made.tenant, status=TenantStatus.SUSPENDED), made.tenant)
        await one(store, made)
        waiting = start(2, busy=BusyPolicy.COALESCE)
        await store.apply([start(1), waiting, activation("act_1", CLERK), CreateSchedule(schedule("sch_1", CLERK), 9)])
        await claimed(store, agent=CLERK)
        await one(store, suspended)
        fired = firing("sch_1", DUE, DUE + timedelta(minutes=5))
        assert fired.run is not None

        refused = await one(store, start(3))
        joined = await one(store, start(4, busy=BusyPolicy.COALESCE, trigger=waiting.trigger))
        await one(store, replace(fired, run=replace(fired.run, agent=CLERK)))
        ended = await one(store, ending("run_acme_1", agent=CLERK))
        again = await store.apply([ActivateAgent(CLERK, ActivationId("act_2"), NOW, claim=True), start(1, stranger)])

        assert refused == joined == QuotaReached("suspended", 0)
        (tick,) = await store.read(TicksOfSchedule(ScheduleId("sch_1")))
        assert (tick.outcome, tick.reason) == (TickOutcome.SKIPPED, "the tenant is suspended: nothing of it is started")
        assert isinstance(ended, RunFinished)
        assert ended.next is None
        assert isinstance(again[0], AgentActivated)
        assert (again[0].claimed, isinstance(again[1], RunAccepted)) == (None, True)
        assert await store.read(AgentsWithWork()) == [stranger]

        await one(store, PutTenant(made.tenant, suspended.tenant))
        assert {*await store.read(AgentsWithWork())} == {stranger, CLERK}
        assert (await claimed(store, epoch=2, agent=CLERK)).run.run_id == "run_acme_2"

    async def test_a_run_that_lost_its_host_stands_still_while_its_tenant_is_suspended(self, store: Store) -> None:
        made = tenant(Quotas())
        await one(store, made)
        await store.apply([start(1), activation("act_1", CLERK)])
        await claimed(store, agent=CLERK)
        suspended = PutTenant(replace(made.tenant, status=TenantStatus.SUSPENDED), made.tenant)
        await store.apply([suspended, activation("act_2", CLERK)])

        assert await one(store, ClaimRun(CLERK, 2, NOW)) == NothingQueued()
        await one(store, PutTenant(made.tenant, suspended.tenant))
        assert (await claimed(store, epoch=2, agent=CLERK)).run.run_id == "run_acme_1"

    async def test_a_quota_that_is_made_smaller_lets_what_is_there_end_and_nothing_new_in(self, store: Store) -> None:
        made = tenant(Quotas(open_runs=3))
        await one(store, made)
        await store.apply([*(start(number) for number in range(3)), activation("act_1", CLERK)])
        await one(store, PutTenant(replace(made.tenant, quotas=Quotas(open_runs=0)), made.tenant))

        assert await one(store, start(9)) == QuotaReached("open_runs", 0)
        await claimed(store, agent=CLERK)
        await one(store, ending("run_acme_0", agent=CLERK))
        assert await store.read(BudgetUses((held_account(OPEN_RUNS, ACME),))) == [
            BudgetUse(held_account(OPEN_RUNS, ACME), 2, 0)
        ]

    async def test_runs_that_are_open_when_the_quota_is_given_count(self, store: Store) -> None:
        made = tenant(Quotas())
        await one(store, made)
        await store.apply([start(1), start(2), start(3), start(1, AgentRef.parse("clerk", OTHER)), start(1, AGENT)])
        await one(store, CancelRun(ACME, RunId("run_acme_3"), NOW))
        given = replace(made.tenant, quotas=Quotas(open_runs=3))

        outcomes = await store.apply([start(4), PutTenant(given, made.tenant)])

        assert isinstance(outcomes[0], RunAccepted)
        assert await used(store, OPEN_RUNS) == 3
        assert await one(store, start(5)) == QuotaReached("open_runs", 3)
        await one(store, CancelRun(ACME, RunId("run_acme_1"), NOW))
        assert await used(store, OPEN_RUNS) == 2
        assert accepted([*await store.apply([start(5), start(6)])]) == 1

    async def test_a_quota_that_is_taken_and_given_again_counts_what_there_is_then(self, store: Store) -> None:
        with_quota, without = tenant(Quotas(open_runs=9)), tenant(Quotas())
        await one(store, with_quota)
        await store.apply([start(1), start(2)])
        await one(store, PutTenant(without.tenant, with_quota.tenant))
        await store.apply([start(3), *(CancelRun(ACME, RunId(f"run_acme_{number}"), NOW) for number in (1, 2))])

        await one(store, PutTenant(with_quota.tenant, without.tenant))
        await one(store, PutTenant(with_quota.tenant, without.tenant))

        assert await used(store, OPEN_RUNS) == 1

    async def test_a_tenant_has_as_many_agents_as_it_may_and_these_go_on(self, store: Store) -> None:
        made = tenant(Quotas())
        await store.apply([made, start(1)])
        await one(store, PutTenant(replace(made.tenant, quotas=Quotas(agents=2, open_runs=4)), made.tenant))
        second, third = AgentRef.parse("clerk:2", ACME), AgentRef.parse("clerk:3", ACME)

        outcomes = [*await store.apply([start(2, second), start(3, third), start(4), start(2, second)])]
        again = await one(store, start(5, third))

        assert [isinstance(each, RunAccepted) for each in outcomes] == [True, False, True, True]
        assert outcomes[1] == again == QuotaReached("agents", 2)
        assert await store.read(AgentByRef(third)) is None
        assert await used(store, AGENTS) == 2
        await one(store, PutTenant(made.tenant, replace(made.tenant, quotas=Quotas(agents=2, open_runs=4))))
        assert isinstance(await one(store, start(5, third)), RunAccepted)

    async def test_an_agent_whose_first_trigger_is_refused_takes_no_place(self, store: Store) -> None:
        await one(store, tenant(Quotas(agents=1, open_runs=0)))

        assert await one(store, start(1)) == QuotaReached("open_runs", 0)
        assert (await used(store, AGENTS), await store.read(AgentByRef(CLERK))) == (0, None)
        created = await one(store, CreateSchedule(schedule("sch_1", AgentRef.parse("clerk:2", ACME)), 9))

        assert isinstance(created, ScheduleCreated)
        assert await one(store, start(1)) == QuotaReached("agents", 1)

    async def test_whatever_else_would_make_one_agent_too_many_does_not(self, store: Store) -> None:
        await one(store, tenant(Quotas(agents=0)))
        waiting = replace(delivery("1", status=DeliveryStatus.WAITING), tenant=ACME, agent=CLERK)

        activated = await one(store, activation("act_1", CLERK))
        heard = await one(store, ReceiveDelivery(waiting, None))
        arrived = await one(store, ReceiveDelivery(replace(delivery("2"), tenant=ACME, agent=CLERK), start(1)))
        planned = await one(store, CreateSchedule(schedule("sch_1", CLERK), 9))

        assert isinstance(activated, CommandFailed)
        assert "the tenant has 0 agents (agents), and may have no more" in activated.message
        for stored in (heard, arrived):
            assert isinstance(stored, DeliveryStored)
            assert stored.delivery.status is DeliveryStatus.REFUSED
            assert "the tenant has 0 agents" in stored.delivery.reason
        assert planned == QuotaReached("agents", 0)
        assert await store.read(AgentByRef(CLERK)) is None

    async def test_a_tenant_has_as_many_schedules_as_it_may_and_one_that_is_over_makes_room(self, store: Store) -> None:
        made = tenant(Quotas())
        await store.apply([made, CreateSchedule(schedule("sch_1", CLERK), 9)])
        await one(store, PutTenant(replace(made.tenant, quotas=Quotas(schedules=2)), made.tenant))
        other = AgentRef.parse("clerk:2", ACME)

        outcomes = await store.apply([CreateSchedule(schedule(f"sch_{each}", other), 9) for each in (2, 3, 2)])
        assert [isinstance(each, ScheduleCreated) for each in outcomes] == [True, False, True]
        assert outcomes[1] == QuotaReached("schedules", 2)
        await one(store, PauseSchedule(CLERK, ScheduleId("sch_1"), NOW))
        assert await one(store, CreateSchedule(schedule("sch_3", other), 9)) == QuotaReached("schedules", 2)

        for _ in range(2):
            await one(store, CancelSchedule(CLERK, ScheduleId("sch_1"), NOW))
        assert isinstance(await one(store, CreateSchedule(schedule("sch_3", other), 9)), ScheduleCreated)
        last = firing("sch_2", DUE, None, queues=False)
        assert isinstance(await one(store, last), ScheduleFired)
        assert await used(store, SCHEDULES) == 1
        assert isinstance(await one(store, CreateSchedule(schedule("sch_4", other), 9)), ScheduleCreated)
        assert await one(store, CreateSchedule(schedule("sch_5", other), 9)) == QuotaReached("schedules", 2)

    async def test_heartbeats_are_no_schedules_that_a_tenant_makes(self, store: Store) -> None:
        made = tenant(Quotas())
        beats = replace(schedule("sch_1", CLERK), kind=ScheduleKind.HEARTBEAT, cron_expression="")
        await store.apply([made, CreateSchedule(beats, 9)])
        await one(store, PutTenant(replace(made.tenant, quotas=Quotas(schedules=0)), made.tenant))

        more = await one(store, CreateSchedule(replace(beats, schedule_id=ScheduleId("sch_2")), 9))
        refused = await one(store, CreateSchedule(schedule("sch_3", CLERK), 9))
        counted = await used(store, SCHEDULES)
        await one(store, CancelSchedule(CLERK, ScheduleId("sch_1"), NOW))

        assert isinstance(more, ScheduleCreated)
        assert counted == 0
        assert refused == QuotaReached("schedules", 0)
        assert await used(store, SCHEDULES) == 0

    async def test_as_many_runs_are_executed_at_once_as_may_be_and_the_others_wait_in_the_queue(
        self, store: Store
    ) -> None:
        await one(store, tenant(Quotas(running_runs=2)))
        await store.apply([start(number, clerk(number)) for number in range(4)])
        claims = [ActivateAgent(clerk(each), ActivationId(f"act_{each}"), NOW, claim=True) for each in range(4)]

        first = await store.apply([*claims, *claims])

        executed = [isinstance(each, AgentActivated) and each.claimed is not None for each in first]
        assert executed == 2 * [True, True, False, False]
        assert await used(store, RUNNING_RUNS) == 2
        assert await one(store, ClaimRun(clerk(2), 1, NOW)) == NothingQueued()
        waiting = await store.read(RunById(ACME, RunId("run_acme_2")))
        assert waiting is not None
        assert (waiting.status, waiting.waits_for) == (RunStatus.QUEUED, "running_runs")
        assert [each.waits_for for each in await store.read(RunFilter(ACME))] == [
            "running_runs",
            "running_runs",
            "",
            "",
        ]

        ended = await one(store, ending("run_acme_0", agent=clerk(0)))
        again = await one(store, ending("run_acme_0", agent=clerk(0)))
        assert (ended, again) == (RunFinished(None, (clerk(2),)), RunFinished())
        assert await used(store, RUNNING_RUNS) == 1
        assert (await claimed(store, agent=clerk(2))).run.run_id == "run_acme_2"
        assert await one(store, ClaimRun(clerk(3), 1, NOW)) == NothingQueued()

    async def test_the_place_of_a_run_goes_to_who_has_waited_longest_not_to_the_same_agent(self, store: Store) -> None:
        await one(store, tenant(Quotas(running_runs=1)))
        agents = [activation(f"act_{each}", clerk(each)) for each in range(2)]
        await store.apply([start(0, clerk(0)), start(1, clerk(1)), start(2, clerk(0)), *agents])
        await claimed(store, agent=clerk(0))

        first = await one(store, ending("run_acme_0", agent=clerk(0)))
        await claimed(store, agent=clerk(1))
        second = await one(store, ending("run_acme_1", agent=clerk(1)))

        assert (first, second) == (RunFinished(None, (clerk(1),)), RunFinished(None, (clerk(0),)))

    async def test_while_places_are_free_an_end_claims_the_next_run_as_ever(self, store: Store) -> None:
        await one(store, tenant(Quotas(running_runs=2)))
        await store.apply([start(0), start(1), activation("act_1", CLERK)])
        await claimed(store, agent=CLERK)

        ended = await one(store, ending("run_acme_0", agent=CLERK))

        assert isinstance(ended, RunFinished)
        assert ended.next is not None
        assert await used(store, RUNNING_RUNS) == 1

    async def test_a_run_that_waits_leaves_its_place_and_needs_one_to_go_on(self, store: Store) -> None:
        await one(store, tenant(Quotas(running_runs=1)))
        agents = [activation(f"act_{each}", clerk(each)) for each in range(2)]
        await store.apply([start(0, clerk(0)), start(1, clerk(1)), *agents])
        await claimed(store, agent=clerk(0))
        child = (RunId("run_acme_1"),)
        facts = entries(3, EntryKind.MODEL_REPLIED)

        waits = await one(store, AwaitRuns(RunId("run_acme_0"), clerk(0), 1, facts, child))
        await claimed(store, agent=clerk(1))
        resumed = await one(store, RunEnded(clerk(0), RunId("run_acme_0"), child))
        refused = await one(store, ClaimRun(clerk(0), 1, NOW))
        held = await store.read(RunById(ACME, RunId("run_acme_0")))
        ended = await one(store, ending("run_acme_1", agent=clerk(1)))

        assert waits == RunWaiting((clerk(1),))
        assert resumed == RunReleased(resumes=True)
        assert refused == NothingQueued()
        assert held is not None
        assert held.waits_for == "running_runs"
        assert ended == RunFinished(None, (clerk(0),))
        assert (await claimed(store, agent=clerk(0))).run.run_id == "run_acme_0"
        assert await used(store, RUNNING_RUNS) == 1

    async def test_a_run_that_waits_for_a_person_leaves_its_place_and_needs_one_to_go_on(self, store: Store) -> None:
        await one(store, tenant(Quotas(running_runs=1)))
        asks = replace(request(agent=clerk(0)), run_id=RunId("run_acme_0"))
        agents = [activation(f"act_{each}", clerk(each)) for each in range(2)]
        await store.apply([start(0, clerk(0)), start(1, clerk(1)), *agents])
        await claimed(store, agent=clerk(0))
        facts = entries(3, EntryKind.APPROVAL_REQUESTED, EntryKind.RUN_WAITING)

        waits = await one(store, AwaitApprovals(asks.run_id, clerk(0), 1, facts, (asks,)))
        await claimed(store, agent=clerk(1))
        await one(store, replace(deciding(), tenant=ACME))

        assert waits == RunWaiting((clerk(1),))
        assert await one(store, ClaimRun(clerk(0), 1, NOW)) == NothingQueued()
        await one(store, ending("run_acme_1", agent=clerk(1)))
        assert (await claimed(store, agent=clerk(0))).run.run_id == "run_acme_0"
        assert await used(store, RUNNING_RUNS) == 1

    async def test_a_run_that_lost_its_host_keeps_its_place_and_goes_on_in_it(self, store: Store) -> None:
        await one(store, tenant(Quotas(running_runs=1)))
        await store.apply([start(0, clerk(0)), start(1, clerk(1)), activation("act_0", clerk(0))])
        await claimed(store, agent=clerk(0))

        assert await store.read(AgentsWithWork()) == [clerk(0)]
        other = await one(store, ActivateAgent(clerk(1), ActivationId("act_1"), NOW, claim=True))
        taken = await one(store, ActivateAgent(clerk(0), ActivationId("act_2"), NOW, claim=True))

        assert isinstance(other, AgentActivated)
        assert other.claimed is None
        assert isinstance(taken, AgentActivated)
        assert taken.claimed is not None
        assert await used(store, RUNNING_RUNS) == 1

    async def test_a_sweep_finds_as_many_agents_as_may_begin_and_those_of_others(self, store: Store) -> None:
        made, stranger = tenant(Quotas()), AgentRef.parse("clerk", OTHER)
        await one(store, made)
        await store.apply([*(start(number, clerk(number)) for number in range(6)), activation("act_0", clerk(0))])
        await claimed(store, agent=clerk(0))
        await store.apply([start(1, stranger), start(2, AgentRef.parse("clerk:2", OTHER))])

        await one(store, PutTenant(replace(made.tenant, quotas=Quotas(running_runs=3)), made.tenant))
        assert await used(store, RUNNING_RUNS) == 1
        found = await store.read(AgentsWithWork())
        pages = [*await store.read(AgentsWithWork(3)), *await store.read(AgentsWithWork(3, 3))]
        await one(
            store,
            PutTenant(
                replace(made.tenant, quotas=Quotas(running_runs=1)), replace(made.tenant, quotas=Quotas(running_runs=3))
            ),
        )

        assert pages == found
        assert {*found} == {clerk(0), clerk(1), clerk(2), stranger, AgentRef.parse("clerk:2", OTHER)}
        assert {*await store.read(AgentsWithWork())} == {clerk(0), stranger, AgentRef.parse("clerk:2", OTHER)}

    async def test_memories_grow_as_far_as_their_tenant_may_have_bytes_and_shrink_whenever(self, store: Store) -> None:
        made = tenant(Quotas())
        await store.apply([made, change(0, written(b"12345"), written(b"123", "ARCHIVE.md"), agent=CLERK)])
        await one(store, PutTenant(replace(made.tenant, quotas=Quotas(memory_bytes=12)), made.tenant))
        assert await used(store, MEMORY_BYTES) == 8

        grown = change(1, appended(b"6789"), written(b"x" * 99, ACKNOWLEDGED), agent=CLERK)
        outcomes = [await one(store, grown), await one(store, grown)]
        refused = await one(store, change(2, appended(b"0"), agent=CLERK))
        other = await one(store, change(0, written(b"1"), agent=clerk(2)))
        assert outcomes == [MemoriesStored(2), MemoriesStored(2)]
        assert refused == other == QuotaReached("memory_bytes", 12)
        assert (await store.read(MemoryOfAgent(CLERK, {ACTIVE: 0}))).texts[ACTIVE].text == b"123456789"

        assert await one(store, change(2, written(b"1234567"), agent=CLERK)) == MemoriesStored(3)
        assert await used(store, MEMORY_BYTES) == 10
        assert await one(store, change(0, written(b"12"), agent=clerk(2))) == MemoriesStored(1)
        await one(
            store,
            PutTenant(
                replace(made.tenant, quotas=Quotas(memory_bytes=1)),
                replace(made.tenant, quotas=Quotas(memory_bytes=12)),
            ),
        )
        assert await one(store, change(3, written(b"123"), agent=CLERK)) == MemoriesStored(4)
        assert await used(store, MEMORY_BYTES) == 8

    async def test_a_tenant_has_as_many_memories_as_it_may_archived_ones_too(self, store: Store) -> None:
        made = tenant(Quotas())
        given = replace(made.tenant, quotas=Quotas(memories=3))
        stranger = AgentRef.parse("clerk", OTHER)
        await store.apply([made, change(0, written(b"x", memories=1), written(b"y", ARCHIVE, 1), agent=CLERK)])
        await store.apply([change(0, written(b"x", memories=9), agent=stranger), PutTenant(given, made.tenant)])
        assert await used(store, MEMORIES) == 2

        grown = change(1, appended(b"z", memories=1), written(b"...", ACKNOWLEDGED, 9), agent=CLERK)
        outcomes = [await one(store, grown), await one(store, grown)]
        refused = await one(store, change(2, appended(b"z", memories=1), agent=CLERK))
        other = await one(store, change(0, written(b"x", memories=1), agent=clerk(2)))

        assert outcomes == [MemoriesStored(2), MemoriesStored(2)]
        assert refused == other == QuotaReached("memories", 3)
        assert await one(store, change(0, written(b"x"), agent=clerk(2))) == MemoriesStored(1)
        archived = change(2, written(b"x", memories=1), appended(b"z", ARCHIVE, 1), agent=CLERK)
        assert await one(store, archived) == MemoriesStored(3)
        assert await used(store, MEMORIES) == 3
        assert await one(store, change(3, written(b"", memories=0), agent=CLERK)) == MemoriesStored(4)
        assert await used(store, MEMORIES) == 2
        assert await one(store, change(1, appended(b"y", memories=1), agent=clerk(2))) == MemoriesStored(2)

    async def test_artifacts_are_kept_as_far_as_their_tenant_may_have_bytes(self, store: Store) -> None:
        made = tenant(Quotas())
        await store.apply([made, *artifact(1, 40), *artifact(2, 20, AgentRef.parse("clerk", OTHER))])
        await one(store, PutTenant(replace(made.tenant, quotas=Quotas(artifact_bytes=100)), made.tenant))
        assert await used(store, ARTIFACT_BYTES) == 40

        for _ in range(2):
            assert [*await store.apply([*artifact(2, 60)])] == 2 * [ArtifactStored()]
        refused = [*await store.apply([*artifact(3, 1), *artifact(2, 61)])]
        assert refused == 4 * [QuotaReached("artifact_bytes", 100)]
        assert await store.read(ArtifactById(CLERK, artifact_id(3))) is None
        assert await store.read(ArtifactPart(CLERK, artifact_id(3), 0)) is None
        await store.apply([*artifact(2, 10)])
        assert await used(store, ARTIFACT_BYTES) == 50

        gone = ForgetArtifacts((OldArtifact(CLERK, artifact_id(1)), OldArtifact(CLERK, artifact_id(9))), NOW)
        await one(store, gone)
        assert await used(store, ARTIFACT_BYTES) == 50
        for _ in range(2):
            await one(store, replace(gone, before=NOW + MINUTE))
        assert await used(store, ARTIFACT_BYTES) == 10
        assert [*await store.apply([*artifact(3, 90)])] == 2 * [ArtifactStored()]
