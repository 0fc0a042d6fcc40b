"""What every Store promises about runs that wait for others, and about tasks, as tests."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.lineage import ChildRole, Lineage
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.task import Claim, Step, StepStatus, Task, TaskStatus
from owlclaw_ray.domain.tenant import Deletion, Tenant, TenantStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import AgentId, RunId, TaskId, TenantId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    AgentActivated,
    Appended,
    AwaitRuns,
    CancelOutcome,
    CancelRun,
    ClaimRun,
    CommandFailed,
    NothingQueued,
    PutTask,
    PutTenant,
    ReleaseAgent,
    Released,
    RunEnded,
    RunFinished,
    RunReleased,
    RunWaiting,
    StaleEpoch,
    TaskChanged,
    TaskStored,
)
from owlclaw_ray.store.queries import (
    AgentsByKeyPrefix,
    AgentsOfDefinition,
    AgentsWithWork,
    DueUpkeep,
    ReleasedRuns,
    RunById,
    TaskById,
    TasksOfAgent,
    Upkeep,
)
from tests.contracts.store_commands import AGENT, NOW, OTHER, activation, claimed, ending, entries, one, submission

CHILDREN = (RunId("run_a"), RunId("run_b"))
FAMILY = Lineage(
    RunId("run_1"), RunId("run_1"), AGENT.agent_id, 1, ChildRole.WORKER, (("*",), ("code.*", "mcp.*")), named_tools=True
)
TASK = Task(
    TaskId("task_1"),
    AGENT,
    "比较",
    "目标\x00",
    (
        Step("a", "first", "详细", result="done"),
        Step("b", "second", depends_on=("a",), claim=Claim(AgentId("clerk:trader.x"), RunId("run_a"), "key")),
    ),
    applied=("k1", "k2"),
)


def awaiting(*runs: RunId, epoch: int = 1, first: int = 3) -> AwaitRuns:
    """Return the command that has run_1 wait for these runs."""
    return AwaitRuns(RunId("run_1"), AGENT, epoch, entries(first, EntryKind.RUN_WAITING), runs)


def over(*runs: RunId, agent: AgentRef = AGENT) -> RunEnded:
    """Return what tells run_1 that these runs are over."""
    return RunEnded(agent, RunId("run_1"), runs)


async def begun(store: Store) -> None:
    """Have the agent execute run_1."""
    await store.apply([submission("run_1"), activation("act_1")])
    await claimed(store)


async def waits(store: Store) -> None:
    """Have run_1 wait for both children."""
    await begun(store)
    assert await one(store, awaiting(*CHILDREN)) == RunWaiting()


async def status(store: Store) -> RunStatus:
    """Return how run_1 stands."""
    run = await store.read(RunById(AGENT.tenant, RunId("run_1")))
    assert run is not None
    return run.status


class FamilyContract:
    """Runs that wait for the ends of others."""

    async def test_a_run_that_waits_for_others_is_nobodys_and_names_them(self, store: Store) -> None:
        await waits(store)
        await store.apply([submission("run_2")])

        run = await store.read(RunById(AGENT.tenant, RunId("run_1")))
        assert run is not None
        assert (run.status, run.awaits) == (RunStatus.WAITING, CHILDREN)
        assert await one(store, ClaimRun(AGENT, 1, NOW)) == NothingQueued()
        assert AGENT not in await store.read(AgentsWithWork())
        assert await one(store, ReleaseAgent(AGENT, 1, AgentState(), NOW)) == Released(pending=False)

    async def test_it_goes_on_when_the_last_of_them_is_over_under_whoever_claims_it(self, store: Store) -> None:
        await waits(store)

        first = await one(store, over(CHILDREN[1]))
        between = await status(store)
        last = await one(store, over(CHILDREN[0]))
        await one(store, activation("act_2"))
        run = await claimed(store, 2)

        assert (first, last) == (RunReleased(resumes=False), RunReleased(resumes=True))
        assert between is RunStatus.WAITING
        assert run.run.awaits == ()
        assert [each.kind for each in run.journal][-2:] == [EntryKind.RUN_WAITING, EntryKind.RUN_CONTINUED]

    async def test_telling_it_again_or_of_others_changes_nothing(self, store: Store) -> None:
        await waits(store)

        await one(store, over(CHILDREN[0]))
        assert await one(store, over(CHILDREN[0], RunId("run_c"))) == RunReleased(resumes=False)
        assert await one(store, over(CHILDREN[1])) == RunReleased(resumes=True)
        assert await one(store, over(CHILDREN[1])) == RunReleased(resumes=True)
        await claimed(store)
        assert await one(store, over(*CHILDREN)) == RunReleased(resumes=False)
        assert await status(store) is RunStatus.RUNNING

    async def test_a_run_of_another_agent_or_none_is_told_nothing(self, store: Store) -> None:
        await waits(store)

        assert await one(store, over(*CHILDREN, agent=OTHER)) == RunReleased(resumes=False)
        assert await one(store, RunEnded(AGENT, RunId("run_9"), CHILDREN)) == RunReleased(resumes=False)
        assert await status(store) is RunStatus.WAITING

    async def test_having_it_wait_again_changes_nothing_also_when_it_goes_on_since(self, store: Store) -> None:
        await waits(store)

        again = await one(store, awaiting(*CHILDREN))
        await one(store, over(*CHILDREN))
        late = await one(store, awaiting(*CHILDREN))

        assert (again, late) == (RunWaiting(), RunWaiting())
        assert await status(store) is RunStatus.RUNNING

    async def test_a_run_that_was_asked_to_end_does_not_wait(self, store: Store) -> None:
        await begun(store)
        await one(store, CancelRun(AGENT.tenant, RunId("run_1"), NOW))

        outcome = await one(store, awaiting(*CHILDREN))
        again = await one(store, awaiting(*CHILDREN))

        assert outcome == again == Appended(cancel_requested=True)
        assert await status(store) is RunStatus.RUNNING

    async def test_cancelling_it_sets_it_going_to_be_ended_by_its_agent(self, store: Store) -> None:
        await waits(store)

        cancelled = await one(store, CancelRun(AGENT.tenant, RunId("run_1"), NOW))
        run = await claimed(store)

        assert isinstance(cancelled, CancelOutcome)
        assert cancelled.waited
        assert run.run.cancel_requested
        assert run.run.awaits == ()

    async def test_a_stale_activation_can_have_no_run_wait(self, store: Store) -> None:
        await begun(store)
        await one(store, activation("act_2"))

        assert await one(store, awaiting(*CHILDREN)) == StaleEpoch(AGENT, 2)
        assert await status(store) is RunStatus.RUNNING

    async def test_a_run_that_nobody_executes_cannot_wait(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1")])

        assert isinstance(await one(store, awaiting(*CHILDREN, first=2)), CommandFailed)

    async def test_the_sweep_finds_what_nobody_told(self, store: Store) -> None:
        await waits(store)
        await store.apply([submission("run_a", OTHER), activation("act_o", OTHER)])
        assert await store.read(ReleasedRuns()) == [over(CHILDREN[1])]

        await claimed(store, agent=OTHER)
        await one(store, ending("run_a", agent=OTHER))

        assert await store.read(ReleasedRuns()) == [over(*CHILDREN)]
        await one(store, over(*CHILDREN))
        assert await store.read(ReleasedRuns()) == []

    async def test_upkeep_is_due_while_runs_wait_for_others_and_no_more_when_they_were_told(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1")])
        assert await store.read(DueUpkeep(NOW)) == frozenset()

        await one(store, ClaimRun(AGENT, 1, NOW))
        await one(store, awaiting(*CHILDREN))
        assert await store.read(DueUpkeep(NOW)) == {Upkeep.RELEASED_RUNS}

        await one(store, over(*CHILDREN))
        assert await store.read(DueUpkeep(NOW)) == frozenset()

    async def test_upkeep_is_due_while_a_tenant_is_being_deleted(self, store: Store) -> None:
        active = Tenant(TenantId("acme"), "Acme", NOW, "ada")
        await one(store, PutTenant(active, None))
        assert await store.read(DueUpkeep(NOW)) == frozenset()

        leaving = replace(active, status=TenantStatus.DELETING, deletion=Deletion("ada", NOW))
        await one(store, PutTenant(leaving, active))
        assert await store.read(DueUpkeep(NOW)) == {Upkeep.TENANT_DELETIONS}

    async def test_where_a_run_comes_from_stays_with_it(self, store: Store) -> None:
        trigger = Trigger(TriggerKind.AGENT, {"assignment": "数"}, "", "run_1", lineage=FAMILY)
        await store.apply([replace(submission("run_a", OTHER), trigger=trigger), activation("act_o", OTHER)])

        read = await store.read(RunById(AGENT.tenant, RunId("run_a")))
        taken = await claimed(store, agent=OTHER)

        assert read is not None
        assert read.trigger == taken.run.trigger == trigger

    async def test_every_run_of_an_agent_that_another_one_started_is_bound_whatever_triggers_it(
        self, store: Store
    ) -> None:
        started = Trigger(TriggerKind.AGENT, lineage=FAMILY)
        narrower = Trigger(TriggerKind.AGENT, lineage=replace(FAMILY, grants=((),)))
        await store.apply([submission("run_0", OTHER), activation("act_o", OTHER)])
        before = await claimed(store, agent=OTHER)
        await store.apply([replace(submission("run_a", OTHER), trigger=started), submission("run_b", OTHER)])
        assert await store.read(AgentsOfDefinition(OTHER.definition)) == []
        resumed = await one(store, replace(activation("act_p", OTHER), claim=True))
        assert isinstance(resumed, AgentActivated)
        assert resumed.claimed is not None
        asked = await one(store, ending("run_0", 4, epoch=2, agent=OTHER))
        await one(store, replace(submission("run_c", OTHER), trigger=narrower))
        bound = await one(store, ending("run_a", epoch=2, agent=OTHER))
        assert isinstance(asked, RunFinished)
        assert isinstance(bound, RunFinished)
        assert asked.next is not None
        assert bound.next is not None

        assert before.run.trigger.lineage is None
        assert resumed.claimed.run.trigger.lineage == FAMILY
        assert asked.next.run.trigger == started
        assert bound.next.run.trigger.lineage == narrower.lineage
        assert bound.next.run.trigger.asked_by is None

    async def test_a_family_is_the_agents_whose_keys_begin_alike(self, store: Store) -> None:
        ours, others = (
            ("clerk:lead.b", "clerk:lead.a"),
            ("clerk:lead", "clerk:leader.a", "clerks:lead.a", "clerk:lead."),
        )
        stranger = AgentRef(TenantId("acme"), AgentId("clerk:lead.a"))
        agents = [*map(AgentRef.parse, (*ours, *others)), stranger]
        await store.apply([submission(f"run_{at}", agent) for at, agent in enumerate(agents)])

        found = await store.read(AgentsByKeyPrefix(AGENT.tenant, "clerk", "lead."))

        assert [each.agent.agent_id for each in found] == ["clerk:lead.", "clerk:lead.a", "clerk:lead.b"]


class TaskContract:
    """Tasks that agents share."""

    async def test_a_task_is_read_as_it_was_put(self, store: Store) -> None:
        assert await one(store, PutTask(TASK, 0, NOW)) == TaskStored()

        assert await store.read(TaskById(AGENT.tenant, TASK.task_id)) == TASK
        assert await store.read(TasksOfAgent(AGENT)) == [TASK]
        assert await store.read(TaskById(TenantId("acme"), TASK.task_id)) is None
        assert await store.read(TaskById(AGENT.tenant, TaskId("task_2"))) is None
        assert await store.read(TasksOfAgent(OTHER)) == []

    async def test_of_two_changes_of_one_version_the_first_is_stored(self, store: Store) -> None:
        await one(store, PutTask(TASK, 0, NOW))
        first = replace(TASK, version=2, title="first")
        second = replace(TASK, version=2, status=TaskStatus.FAILED)

        outcomes = await store.apply([PutTask(first, 1, NOW), PutTask(second, 1, NOW)])

        assert outcomes == [TaskStored(), TaskChanged(first)]
        assert await store.read(TaskById(AGENT.tenant, TASK.task_id)) == first

    async def test_the_same_change_again_is_stored_already(self, store: Store) -> None:
        changed = replace(TASK, version=2, steps=(replace(TASK.steps[0], status=StepStatus.COMPLETED), TASK.steps[1]))

        await store.apply([PutTask(TASK, 0, NOW), PutTask(changed, 1, NOW)])

        assert await one(store, PutTask(changed, 1, NOW)) == TaskStored()
        assert await one(store, PutTask(TASK, 0, NOW)) == TaskChanged(changed)

    async def test_a_task_that_does_not_exist_cannot_be_changed(self, store: Store) -> None:
        assert await one(store, PutTask(TASK, 3, NOW)) == TaskChanged(None)
        assert await store.read(TasksOfAgent(AGENT)) == []

    async def test_the_newest_tasks_of_an_agent_come_first(self, store: Store) -> None:
        for number in range(3):
            later = NOW + timedelta(seconds=number)
            await one(store, PutTask(replace(TASK, task_id=TaskId(f"task_{number}")), 0, later))

        assert [each.task_id for each in await store.read(TasksOfAgent(AGENT, 2))] == ["task_2", "task_1"]
