"""AgentTools: all agent tools behind one adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from msgspec import Struct

from owlclaw_ray.domain import agent_tools as names
from owlclaw_ray.domain.task import TaskStatus
from owlclaw_ray.domain.tool import AGENT, Effect, Permission, ToolClass, ToolDefinition, ToolOrigin
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.tools.agents import arguments as models
from owlclaw_ray.tools.agents.family import FamilyTools
from owlclaw_ray.tools.agents.options import AgentOptions
from owlclaw_ray.tools.agents.runtime_agents import RuntimeAgents
from owlclaw_ray.tools.agents.tasks import PLAN_TEMPLATE, TASK_TEMPLATE, TaskTools
from owlclaw_ray.tools.arguments import decode_arguments
from owlclaw_ray.tools.builtin.arguments import ArgumentModel, parse
from owlclaw_ray.tools.signature import arguments_of_model


class AgentToolDeclaration(Struct, frozen=True):
    """What is known of an agent tool without running it."""

    name: str
    description: str
    arguments: type[ArgumentModel]
    effect: Effect

    def definition(self) -> ToolDefinition:
        """Return the tool's definition. All are readonly: they change nothing outside the runtime."""
        starts = self.name in names.STARTING
        return ToolDefinition(
            name=self.name,
            description=self.description,
            input_schema=arguments_of_model(self.arguments, self.name).schema,
            permission=Permission.READONLY,
            effect=self.effect,
            tool_class=ToolClass.QUICK,
            tags=frozenset({AGENT}) if starts else frozenset({"internal"}),
            origin=ToolOrigin.BUILT_IN,
        )


DECLARATIONS = (
    AgentToolDeclaration(
        names.LIST_AGENT_DEFINITIONS,
        "List the kinds of agents that you can start, with what each can do.",
        models.Nothing,
        Effect.PURE,
    ),
    AgentToolDeclaration(
        names.CREATE_SUB_AGENT,
        "Have a new agent of another kind do one assignment, and get its answer. It knows nothing but the assignment, and ends "
        "with it. Call it several times in one turn to have several work at the same time.",
        models.CreateSubAgent,
        Effect.IDEMPOTENT,
    ),
    AgentToolDeclaration(
        names.FORK_AGENT,
        "Have a copy of yourself that knows this conversation do one assignment, and get its answer. Use it for side work whose "
        "details you do not need.",
        models.ForkAgent,
        Effect.IDEMPOTENT,
    ),
    AgentToolDeclaration(
        names.LIST_WORKERS,
        "List the agents that you have started, with what each does now and how its last assignment ended.",
        models.Nothing,
        Effect.PURE,
    ),
    AgentToolDeclaration(
        names.DISPATCH_WORKER,
        "Give an assignment to a worker of yours, made if it is new, and get its answer. A worker remembers how its last "
        "assignments ended. Dispatch several in one turn to have them work at the same time; all are waited for.",
        models.DispatchWorker,
        Effect.IDEMPOTENT,
    ),
    AgentToolDeclaration(
        names.INSPECT_AGENT,
        "See what an agent that you started does now, or how its last run ended.",
        models.InspectAgent,
        Effect.PURE,
    ),
    AgentToolDeclaration(names.PLAN_TEMPLATE, "Get the form of a good plan.", models.Nothing, Effect.PURE),
    AgentToolDeclaration(
        names.TASK_TEMPLATE, "Get an example of a task with steps for agent.task_create.", models.Nothing, Effect.PURE
    ),
    AgentToolDeclaration(
        names.TASK_CREATE,
        "Make a task: steps that depend on each other, which you and the agents that you start work on. Returns task_id.",
        models.CreateTask,
        Effect.IDEMPOTENT,
    ),
    AgentToolDeclaration(names.TASK_GET, "Get a whole task with all its steps.", models.TaskArgument, Effect.PURE),
    AgentToolDeclaration(names.TASK_LIST, "List your tasks, newest first.", models.ListTasks, Effect.PURE),
    AgentToolDeclaration(
        names.TASK_UPDATE,
        "Change the title, the goal or the pending steps of an open task.",
        models.UpdateTask,
        Effect.IDEMPOTENT,
    ),
    AgentToolDeclaration(
        names.TASK_QUERY_STEPS,
        "List the steps of a task that can be claimed now, or that stand otherwise.",
        models.QuerySteps,
        Effect.PURE,
    ),
    AgentToolDeclaration(
        names.TASK_CLAIM_STEP,
        "Claim a step of a task before you work on it, so that nobody else does. Returns the step, and the results of the steps "
        "before it.",
        models.ClaimStep,
        Effect.IDEMPOTENT,
    ),
    AgentToolDeclaration(
        names.TASK_UPDATE_STEP,
        "Say how the work on a claimed step ended: completed or failed, with the result; or give it back.",
        models.UpdateStep,
        Effect.IDEMPOTENT,
    ),
    AgentToolDeclaration(
        names.TASK_COMPLETE, "End a task whose steps are all completed.", models.EndTask, Effect.IDEMPOTENT
    ),
    AgentToolDeclaration(
        names.TASK_FAIL, "End a task that cannot be done, and say why.", models.EndTask, Effect.IDEMPOTENT
    ),
    AgentToolDeclaration(
        names.TASK_CANCEL, "End a task that is not wanted any more, and say why.", models.EndTask, Effect.IDEMPOTENT
    ),
)
_ARGUMENTS = {each.name: each.arguments for each in DECLARATIONS}


class DeclaredAgentTools:
    """The agent tools in a process that runs none of them. Implements ToolSource."""

    source: ClassVar[str] = "the agent tools"
    own_errors: ClassVar[frozenset[str]] = frozenset({"limit_reached", names.CHILD_FAILED})

    @staticmethod
    def definitions() -> Sequence[ToolDefinition]:
        """See ToolSource.definitions."""
        return tuple(each.definition() for each in DECLARATIONS)


class AgentTools(DeclaredAgentTools):
    """Runs the agent tools. Implements ToolAdapter; synchronous and stateless: a worker makes one and keeps it.

    Everything that a call makes has an id derived from the call's idempotency key, so a repeated call makes nothing new.
    """

    def __init__(self, agents: RuntimeAgents, options: AgentOptions, clock: Clock) -> None:
        family, shared = FamilyTools(agents, options, clock), TaskTools(agents)
        self._perform: Mapping[str, Callable[[Any, ToolInvocation], Any]] = {
            names.LIST_AGENT_DEFINITIONS: family.list_agent_definitions,
            names.CREATE_SUB_AGENT: family.create_sub_agent,
            names.FORK_AGENT: family.fork_agent,
            names.LIST_WORKERS: family.list_workers,
            names.DISPATCH_WORKER: family.dispatch_worker,
            names.INSPECT_AGENT: family.inspect_agent,
            names.PLAN_TEMPLATE: lambda *_: {"template": PLAN_TEMPLATE},
            names.TASK_TEMPLATE: lambda *_: {"template": TASK_TEMPLATE},
            names.TASK_CREATE: shared.create,
            names.TASK_GET: shared.get,
            names.TASK_LIST: shared.list,
            names.TASK_UPDATE: shared.update,
            names.TASK_QUERY_STEPS: shared.query_steps,
            names.TASK_CLAIM_STEP: shared.claim_step,
            names.TASK_UPDATE_STEP: shared.update_step,
            names.TASK_COMPLETE: partial(shared.end, TaskStatus.COMPLETED),
            names.TASK_FAIL: partial(shared.end, TaskStatus.FAILED),
            names.TASK_CANCEL: partial(shared.end, TaskStatus.CANCELLED),
        }

    def run(self, invocation: ToolInvocation) -> Any:
        """See ToolAdapter.run."""
        tool = invocation.tool
        given = parse(tool, _ARGUMENTS[tool], decode_arguments(tool, invocation.arguments))
        return self._perform[tool](given, invocation)
