"""The arguments of the agent tools: one pydantic model each gives both the JSON schema and the validation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from owlclaw_ray.tools.builtin.arguments import ArgumentModel

_NOT_BLANK = r"\S"

Assignment = Annotated[
    str,
    Field(
        min_length=1,
        max_length=20_000,
        pattern=_NOT_BLANK,
        description="What the agent is to do and what it is to answer, complete in itself: it knows nothing of your conversation "
        "unless you say it here.",
    ),
]
Pattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.*?-]+$", max_length=64)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,32}$")]
AgentName = Annotated[str, Field(min_length=1, max_length=200)]
TaskName = Annotated[
    str, Field(min_length=1, max_length=64, description="The task_id that agent.task_create returned.")
]
StepName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Title = Annotated[str, Field(min_length=1, max_length=200, pattern=_NOT_BLANK)]
Text = Annotated[str, Field(max_length=4_000)]

DefinitionName = Annotated[
    str,
    Field(min_length=1, max_length=64, description="As agent.list_agent_definitions gives it: agent_definition_id."),
]


class Nothing(ArgumentModel):
    """Arguments of tools that take none."""


class StartArguments(ArgumentModel):
    """What all tools that start a run have in common."""

    assignment: Assignment
    allowed_tools: list[Pattern] | None = Field(
        default=None,
        max_length=50,
        description="The tools that it may use of those its definition has: canonical names with * and ?. "
        "Not given: its definition's own.",
    )


class CreateSubAgent(StartArguments):
    """Arguments of agent.create_sub_agent."""

    agent_definition_id: DefinitionName


class ForkAgent(StartArguments):
    """Arguments of agent.fork_agent."""


class DispatchWorker(StartArguments):
    """Arguments of agent.dispatch_worker."""

    agent_definition_id: DefinitionName
    worker: Name = Field(
        description="A name for the worker: letters, digits, _ and -. The same name is the same worker, which remembers "
        "the outcomes of its last assignments; a new name makes a new worker."
    )
    allowed_tools: list[Pattern] | None = Field(
        default=None,
        max_length=50,
        description="The tools that it may use of those its definition has: canonical names with * and ?. "
        "Not given: only readonly ones. Name the tools that write if it needs them.",
    )
    task_id: TaskName | None = Field(default=None, description="The task that it works on, if any.")
    step_id: StepName | None = Field(default=None, description="The step of the task that it is to claim, if any.")


class InspectAgent(ArgumentModel):
    """Arguments of agent.inspect_agent."""

    agent_id: AgentName = Field(description="An agent that you started: agent_id as the other agent tools give it.")


class StepArguments(ArgumentModel):
    """One step of a task."""

    step_id: StepName = Field(description="A short name, unique in the task: letters, digits, _ and -.")
    title: Title
    description: Text = Field(default="", description="What is to be done, and how one sees that it is done.")
    depends_on: list[StepName] = Field(
        default=[], max_length=100, description="The steps that have to be completed before this one can begin."
    )


class CreateTask(ArgumentModel):
    """Arguments of agent.task_create."""

    title: Title
    goal: Text = Field(default="", description="What is true when the task is done.")
    steps: list[StepArguments] = Field(min_length=1, max_length=100)


class TaskArgument(ArgumentModel):
    """Arguments of agent.task_get."""

    task_id: TaskName


class ListTasks(ArgumentModel):
    """Arguments of agent.task_list."""

    status: Literal["open", "completed", "failed", "cancelled", "any"] = "any"


class UpdateTask(ArgumentModel):
    """Arguments of agent.task_update."""

    task_id: TaskName
    title: Title | None = None
    goal: Text | None = None
    put_steps: list[StepArguments] = Field(
        default=[],
        max_length=100,
        description="Steps to add, or to put in the place of pending ones of the same step_id.",
    )
    remove_steps: list[StepName] = Field(default=[], max_length=100, description="Pending steps to take out.")


class QuerySteps(ArgumentModel):
    """Arguments of agent.task_query_steps."""

    task_id: TaskName
    status: Literal["ready", "pending", "claimed", "completed", "failed", "cancelled", "mine", "any"] = Field(
        default="ready",
        description="ready: can be claimed now. mine: claimed by this run.",
    )


class ClaimStep(ArgumentModel):
    """Arguments of agent.task_claim_step."""

    task_id: TaskName
    step_id: StepName | None = Field(default=None, description="Not given: the first that is ready.")


class UpdateStep(ArgumentModel):
    """Arguments of agent.task_update_step."""

    task_id: TaskName
    step_id: StepName
    status: Literal["completed", "failed", "pending"] = Field(
        description="completed or failed: how the work on it ended. pending: give it back, so that somebody else can claim it."
    )
    result: Text = Field(default="", description="What came of it, or why it failed: for those who go on from it.")


class EndTask(ArgumentModel):
    """Arguments of agent.task_complete, agent.task_fail and agent.task_cancel."""

    task_id: TaskName
    result: Text = Field(default="", description="What came of it, or why it ends.")
