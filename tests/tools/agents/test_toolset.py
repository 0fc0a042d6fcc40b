"""Agent tools by themselves: their definitions, and what a repeated call does."""

from dataclasses import dataclass, field

import orjson
import pytest
from msgspec.structs import replace

from owlclaw_ray.domain import agent_tools as names
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.lineage import ChildRole, Lineage
from owlclaw_ray.domain.run import Run, RunError, RunResult, RunStatus
from owlclaw_ray.domain.tool import AGENT, Permission, ToolClass
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.errors import ToolArgumentsError
from owlclaw_ray.ids import AgentId, RunId
from owlclaw_ray.runs.tool_dispatch import CallLane, lane_of
from owlclaw_ray.store.commands import QueueFull, QuotaReached, RunAccepted, TaskChanged, TaskStored
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.agents.options import AgentOptions
from owlclaw_ray.tools.agents.runtime_agents import DefinitionView
from owlclaw_ray.tools.agents.toolset import AgentTools, DeclaredAgentTools
from owlclaw_ray.tools.failure import ToolFailureError

LEAD = AgentRef.parse("lead")
ABOVE = Lineage(RunId("run_0"), RunId("run_0"), AgentId("boss"), 1, ChildRole.SUB_AGENT, (("code.*",),))
CREATE = {"title": "t", "steps": [{"step_id": "a", "title": "a"}, {"step_id": "b", "title": "b"}]}


@dataclass
class Fakes:
    """Agents and tasks in memory. Stands in for RuntimeAgents."""

    runs: dict = field(default_factory=dict)
    stored: dict = field(default_factory=dict)
    submitted: list = field(default_factory=list)
    answer: object = None
    race: object = None

    def definitions(self, tenant):
        return [DefinitionView("clerk", "counts", callback_url="https://example.org/ended")]

    def submit(self, command):
        self.submitted.append(command)
        return self.answer or RunAccepted(command.run_id, 1, command.agent)

    def run(self, tenant, run_id):
        return self.runs.get(run_id)

    def read(self, query):
        return self.stored.get(query.task_id)

    def put(self, task, expected):
        if self.race is not None:
            self.race, race = None, self.race
            race()
        known = self.stored.get(task.task_id)
        if (known.version if known else 0) != expected:
            return TaskChanged(known)
        self.stored[task.task_id] = task
        return TaskStored()


@pytest.fixture
def fakes():
    return Fakes()


@pytest.fixture
def tools(fakes):
    return AgentTools(fakes, AgentOptions(), ManualClock())


def invocation(tool, arguments, key="key", **more):
    definition = next(each for each in DeclaredAgentTools.definitions() if each.name == tool)
    return ToolInvocation(
        call_id="c",
        tool=tool,
        arguments=orjson.dumps(arguments).decode(),
        agent=LEAD,
        run_id="run_1",
        trigger=TriggerKind.API,
        effect=definition.effect,
        tool_class=definition.tool_class,
        timeout=30,
        idempotency_key=key,
        **more,
    )


def start(tools, **more):
    arguments = {"agent_definition_id": "clerk", "assignment": "count"}
    return tools.run(invocation(names.CREATE_SUB_AGENT, arguments, **more))


def test_there_are_all_agent_tools_and_each_is_quick_and_changes_nothing_outside():
    """tool-registry: agent tools, agent.plan_template, and eleven tools of tasks."""
    definitions = DeclaredAgentTools.definitions()

    assert {each.name for each in definitions} == names.AGENT_TOOLS
    assert len(definitions) == 18
    assert {each.tool_class for each in definitions} == {ToolClass.QUICK}
    assert {each.permission for each in definitions} == {Permission.READONLY}
    assert {each.name for each in definitions if AGENT in each.tags} == names.STARTING
    assert {each.name for each in definitions if lane_of(each) is CallLane.AGENTS} == names.STARTING
    assert not names.ORCHESTRATING & names.WORKING


def test_a_call_starts_one_run_however_often_it_is_made(tools, fakes):
    first = start(tools)
    [command] = fakes.submitted
    fakes.runs[command.run_id] = Run(
        command.run_id, 1, command.agent, command.trigger, RunStatus.RUNNING, ManualClock().now()
    )
    again = start(tools)
    other = start(tools, key="another key")

    assert first.started == again.started == command.run_id
    assert other.started != first.started
    assert len(fakes.submitted) == 2
    assert fakes.submitted[0].agent != fakes.submitted[1].agent


def test_whom_the_definition_names_is_told_of_the_run_even_if_it_ends_before_it_begins(tools, fakes):
    start(tools)

    [command] = fakes.submitted
    assert command.callback_urls == ("https://example.org/ended",)


def test_what_a_run_came_to_is_the_result_of_its_call(tools, fakes):
    run_id = start(tools).started
    [command] = fakes.submitted
    run = Run(run_id, 1, command.agent, command.trigger, RunStatus.COMPLETED, ManualClock().now())

    fakes.runs[run_id] = replace(run, result=RunResult(RunStatus.COMPLETED, turns=2, final_text="four"))
    completed = start(tools)
    error = RunError("run_timeout", "it took too long", retryable=True)
    fakes.runs[run_id] = replace(run, status=RunStatus.TIMEOUT, result=RunResult(RunStatus.TIMEOUT, error=error))
    with pytest.raises(ToolFailureError, match="its run is timeout: it took too long") as failed:
        start(tools)

    assert (completed.started, completed.result.content["answer"]) == (None, "four")
    assert (failed.value.type, failed.value.retryable) == ("child_failed", True)
    assert failed.value.details["error"] == "run_timeout"


def test_a_started_run_ends_with_the_time_of_the_one_that_started_it(tools, fakes):
    now = ManualClock().now()
    start(tools)
    start(tools, key="k2", deadline=now)

    assert (fakes.submitted[0].deadline - now).total_seconds() == AgentOptions().child_seconds
    assert fakes.submitted[1].deadline == now


def test_what_was_started_starts_nobody(tools, fakes):
    """tool-registry: sub, fork and worker agents never create agents, whatever they are shown."""
    with pytest.raises(ToolFailureError) as refused:
        start(tools, lineage=ABOVE)

    assert refused.value.type == "too_deep"
    assert fakes.submitted == []


def test_an_agent_with_too_many_assignments_is_given_no_more(tools, fakes):
    fakes.answer = QueueFull(100)

    with pytest.raises(ToolFailureError, match="100 assignments") as refused:
        start(tools)

    assert (refused.value.type, refused.value.retryable) == ("limit_reached", True)


def test_an_agent_whose_tenant_has_all_the_runs_that_it_may_have_starts_none_and_is_told_why(tools, fakes):
    fakes.answer = QuotaReached("open_runs", 5)

    with pytest.raises(ToolFailureError, match="the tenant has 5 runs that are not over") as refused:
        start(tools)

    assert (refused.value.type, refused.value.retryable) == ("limit_reached", True)


def test_arguments_are_checked_before_anything_is_done(tools, fakes):
    with pytest.raises(ToolArgumentsError, match="assignment"):
        tools.run(invocation(names.CREATE_SUB_AGENT, {"agent_definition_id": "clerk"}))
    with pytest.raises(ToolArgumentsError, match="did you mean allowed_tools"):
        tools.run(invocation(names.FORK_AGENT, {"assignment": "x", "allow_tools": []}))

    assert fakes.submitted == []


def test_a_call_changes_a_task_once_however_often_it_is_made(tools, fakes):
    created = tools.run(invocation(names.TASK_CREATE, CREATE))
    again = tools.run(invocation(names.TASK_CREATE, CREATE))
    task_id = created["task_id"]
    claims = [tools.run(invocation(names.TASK_CLAIM_STEP, {"task_id": task_id}, "k1")) for _ in range(2)]
    changes = {"task_id": task_id, "put_steps": [{"step_id": "c", "title": "c"}], "remove_steps": ["b"]}
    for _ in range(2):
        tools.run(invocation(names.TASK_UPDATE, changes, "k2"))

    assert created == again
    assert claims[0] == claims[1]
    [task] = fakes.stored.values()
    assert [(step.step_id, step.status.value) for step in task.steps] == [("a", "claimed"), ("c", "pending")]


def test_of_two_claims_at_the_same_time_each_gets_another_step(tools, fakes):
    task_id = tools.run(invocation(names.TASK_CREATE, CREATE))["task_id"]
    arguments, other = {"task_id": task_id}, {}

    def claim_first():
        other.update(tools.run(invocation(names.TASK_CLAIM_STEP, arguments, "faster")))

    fakes.race = claim_first
    own = tools.run(invocation(names.TASK_CLAIM_STEP, arguments, "slower"))

    assert {own["step"]["step_id"], other["step"]["step_id"]} == {"a", "b"}


def test_a_claim_that_is_made_again_after_the_step_was_taken_back_says_so(tools, fakes):
    task_id = tools.run(invocation(names.TASK_CREATE, CREATE))["task_id"]
    tools.run(invocation(names.TASK_CLAIM_STEP, {"task_id": task_id, "step_id": "a"}, "claim"))
    back = {"task_id": task_id, "step_id": "a", "status": "pending"}
    tools.run(invocation(names.TASK_UPDATE_STEP, back, "back"))

    with pytest.raises(ToolFailureError, match="was taken back") as caught:
        tools.run(invocation(names.TASK_CLAIM_STEP, {"task_id": task_id, "step_id": "a"}, "claim"))
    assert caught.value.type == "not_your_step"
