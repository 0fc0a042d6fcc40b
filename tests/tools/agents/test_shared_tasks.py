"""Tasks that an agent shares with those that it starts, through whole runs."""

from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.task import StepStatus, TaskStatus
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.store.queries import TasksOfAgent
from tests.runs.test_families import DONE, all_runs, calls, results, sub, worker, world

__all__ = ["world"]

STEPS = [
    {"step_id": "a", "title": "first"},
    {"step_id": "b", "title": "second"},
    {"step_id": "c", "title": "third", "depends_on": ["a", "b"]},
]
TASK = "{{ result.agent__task_create.task_id }}"
GIVEN = "{{ payload.task_id }}"
CREATE = ("agent.task_create", {"title": "report", "goal": "a report", "steps": STEPS})


def by_tool(ended):
    found = {}
    for each in ended:
        found.setdefault(each["tool"].removeprefix("agent."), []).append(each)
    return found


async def test_workers_claim_different_steps_at_the_same_time_and_their_results_reach_those_after_them(world):
    """tool-registry: started agents query ready steps, claim one, and update the one that they claimed."""
    world.define(
        "lead",
        calls(("agent.plan_template", {}), ("agent.task_template", {})),
        calls(CREATE),
        calls(*(worker("clerk", name, "work", task_id=TASK) for name in ("anna", "ben"))),
        calls(worker("clerk", "anna", "go on", task_id=TASK)),
        calls(("agent.task_complete", {"task_id": TASK, "result": "all there"})),
        calls(("agent.task_get", {"task_id": TASK}), ("agent.task_list", {"status": "completed"})),
        DONE,
    )
    world.define(
        "clerk",
        calls(("agent.task_query_steps", {"task_id": GIVEN})),
        calls(("agent.task_claim_step", {"task_id": GIVEN})),
        calls(
            (
                "agent.task_update_step",
                {
                    "task_id": GIVEN,
                    "step_id": "{{ result.agent__task_claim_step.step.step_id }}",
                    "status": "completed",
                    "result": "did {{ result.agent__task_claim_step.step.title }}",
                },
            )
        ),
        {"text": "knew {{ result.agent__task_claim_step.results_before }}"},
    )
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead")
        ended = by_tool(await results(runtime, run))
        [task] = await runtime.store.read(TasksOfAgent(run.agent))

    assert run.status is RunStatus.COMPLETED
    assert (task.status, task.result) == (TaskStatus.COMPLETED, "all there")
    assert [step.result for step in task.steps] == ["did first", "did second", "did third"]
    assert {step.claim.agent for step in task.steps} == {"clerk:lead.anna", "clerk:lead.ben"}
    assert len({step.claim.run_id for step in task.steps}) == 3
    [*_, last] = ended["dispatch_worker"]
    assert last["content"]["answer"] == 'knew {"a":"did first","b":"did second"}'
    [told] = ended["task_get"]
    assert [step["status"] for step in told["content"]["steps"]] == ["completed"] * 3
    assert [each["task_id"] for each in ended["task_list"][0]["content"]["tasks"]] == [task.task_id]
    assert {"plan_template", "task_template"} <= ended.keys()


async def test_a_worker_changes_only_the_step_that_its_own_run_claimed(world):
    """tool-registry: a started agent reads and updates only its own claimed step."""
    world.define("lead", calls(CREATE), calls(worker("clerk", "a", "x", task_id=TASK)), DONE)
    world.define(
        "clerk",
        calls(("agent.task_claim_step", {"task_id": GIVEN, "step_id": "a"})),
        calls(
            ("agent.task_update_step", {"task_id": GIVEN, "step_id": "b", "status": "completed"}),
            ("agent.task_query_steps", {"task_id": GIVEN, "status": "mine"}),
            ("agent.task_claim_step", {"task_id": GIVEN, "step_id": "c"}),
            ("agent.task_cancel", {"task_id": GIVEN}),
        ),
        DONE,
    )
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead")
        [child] = [each for each in await all_runs(runtime) if each.run_id != run.run_id]
        ended = by_tool(await results(runtime, child))
        [task] = await runtime.store.read(TasksOfAgent(run.agent))

    [update], [mine] = ended["task_update_step"], ended["task_query_steps"]
    assert update["error"]["type"] == "not_your_step"
    assert [step["step_id"] for step in mine["content"]["steps"]] == ["a"]
    assert ended["task_claim_step"][1]["error"]["type"] == "step_not_ready"
    assert "depends on a, b" in ended["task_claim_step"][1]["error"]["message"]
    assert ended["agent__task_cancel"][0]["error"]["type"] == "tool_not_available"
    assert [step.status for step in task.steps] == [StepStatus.CLAIMED, StepStatus.PENDING, StepStatus.PENDING]


async def test_an_agent_sees_the_tasks_of_its_parent_and_of_nobody_else(world):
    world.define("lead", calls(CREATE), calls(sub("clerk", TASK)), DONE)
    world.define("clerk", calls(("agent.task_get", {"task_id": "{{ payload.assignment }}"})), DONE)
    world.define("stranger", calls(("agent.task_get", {"task_id": GIVEN})), DONE)
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead")
        [task] = await runtime.store.read(TasksOfAgent(run.agent))
        [child] = [each for each in await all_runs(runtime) if each.run_id != run.run_id]
        other = await runtime.trigger("stranger", {"task_id": task.task_id})
        seen, unseen = await results(runtime, child), await results(runtime, other)

    assert seen[0]["content"]["task_id"] == task.task_id
    assert unseen[0]["error"]["type"] == "unknown_task"


async def test_a_task_that_cannot_be_done_is_refused_with_what_is_wrong(world):
    ring = [{"step_id": "a", "title": "a", "depends_on": ["b"]}, {"step_id": "b", "title": "b", "depends_on": ["a"]}]
    lost = [{"step_id": "a", "title": "a", "depends_on": ["z"]}]
    twice = [{"step_id": "a", "title": "a"}, {"step_id": "a", "title": "b"}]
    refused = [("agent.task_create", {"title": "t", "steps": steps}) for steps in (ring, lost, twice, [])]
    world.define("lead", *(calls(each) for each in refused), DONE)
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead")
        errors = [each["error"] for each in await results(runtime, run)]
        tasks = await runtime.store.read(TasksOfAgent(run.agent))

    assert [each["type"] for each in errors] == ["cycle", "unknown_dependency", "duplicate_step", "invalid_arguments"]
    assert errors[0]["message"] in {
        "these steps wait for each other: a → b → a",
        "these steps wait for each other: b → a → b",
    }
    assert tasks == []


async def test_the_owner_changes_a_task_takes_a_step_back_and_ends_it(world):
    world.define(
        "lead",
        calls(CREATE),
        calls(
            ("agent.task_update", {"task_id": TASK, "title": "new", "remove_steps": ["c"], "put_steps": [STEPS[2]]}),
        ),
        calls(("agent.task_update", {"task_id": TASK, "remove_steps": ["c"]})),
        calls(("agent.task_claim_step", {"task_id": TASK})),
        calls(("agent.task_update_step", {"task_id": TASK, "step_id": "a", "status": "failed", "result": "no ink"})),
        calls(("agent.task_complete", {"task_id": TASK})),
        calls(("agent.task_update_step", {"task_id": TASK, "step_id": "a", "status": "pending"})),
        calls(("agent.task_fail", {"task_id": TASK, "result": "no paper"})),
        calls(("agent.task_cancel", {"task_id": TASK})),
        DONE,
    )
    async with world.runtime() as runtime:
        run = await runtime.trigger("lead")
        ended = by_tool(await results(runtime, run))
        [task] = await runtime.store.read(TasksOfAgent(run.agent))

    assert (task.title, task.status, task.result) == ("new", TaskStatus.FAILED, "no paper")
    assert [(step.step_id, step.status) for step in task.steps] == [
        ("a", StepStatus.CANCELLED),
        ("b", StepStatus.CANCELLED),
    ]
    assert ended["task_complete"][0]["error"]["type"] == "steps_left"
    assert ended["task_cancel"][0]["error"]["type"] == "task_over"
    assert ended["task_cancel"][0]["error"]["details"]["task"]["task_id"] == task.task_id
    assert task.owner.tenant == DEFAULT_TENANT
