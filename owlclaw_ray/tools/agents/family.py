"""Calls that start a run of another agent, and what an agent may know of others.

A call that starts a run never waits. It commits the run under an id that it derives from its own idempotency key, and says that the run is
not over; its own run then waits in the store. When it is made again, be it because the run is over or after a crash, it finds
the run of the first time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import orjson
from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef, InvalidAgentNameError
from owlclaw_ray.domain.agent_tools import CHILD_FAILED
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.lineage import MAX_DEPTH, ChildRole, Lineage, child_agent, child_prefixes, child_run_id
from owlclaw_ray.domain.principal import keys_among
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.tool import ToolResult
from owlclaw_ray.domain.tool_call import ToolInvocation, ToolOutcome
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.commands import QuotaReached, RunAccepted, SubmitRun
from owlclaw_ray.store.queries import AgentByRef, AgentRecord, AgentsByKeyPrefix, JournalOfRun, RunFilter
from owlclaw_ray.tools.agents.arguments import (
    CreateSubAgent,
    DispatchWorker,
    ForkAgent,
    InspectAgent,
    Nothing,
    StartArguments,
)
from owlclaw_ray.tools.agents.options import AgentOptions
from owlclaw_ray.tools.agents.runtime_agents import RuntimeAgents
from owlclaw_ray.tools.failure import ToolFailureError

_QUEUED = 100
"""How many runs a started agent may have queued."""
_FOCUS = 200
_CAPABILITIES = 1_000


class Assignment(Struct, frozen=True):
    """What is to be started."""

    agent: AgentRef
    role: ChildRole
    arguments: StartArguments
    payload: JsonObject


class FamilyTools:
    """Starts runs of other agents, and reads what is known of definitions and of the agents that the caller started."""

    def __init__(self, agents: RuntimeAgents, options: AgentOptions, clock: Clock) -> None:
        self._agents, self._options, self._clock = agents, options, clock

    def create_sub_agent(self, arguments: CreateSubAgent, caller: ToolInvocation) -> ToolOutcome:
        """Start an agent of a definition that nobody else is, for one assignment."""
        name = derived_id("sub", caller.idempotency_key)[:16]
        agent = _child(caller, arguments.agent_definition_id, name)
        return self._start(caller, Assignment(agent, ChildRole.SUB_AGENT, arguments, {}))

    def fork_agent(self, arguments: ForkAgent, caller: ToolInvocation) -> ToolOutcome:
        """Start an agent of the caller's own definition that is told what the caller's run was."""
        name = derived_id("fork", caller.idempotency_key)[:16]
        agent = _child(caller, caller.agent.definition, name)
        journal = self._agents.read(JournalOfRun(caller.agent.tenant, caller.run_id))
        context = conversation_of(journal, self._options.context_characters)
        return self._start(caller, Assignment(agent, ChildRole.FORK, arguments, {"conversation": context}))

    def dispatch_worker(self, arguments: DispatchWorker, caller: ToolInvocation) -> ToolOutcome:
        """Give a worker its next assignment."""
        agent = _child(caller, arguments.agent_definition_id, arguments.worker)
        named = {"task_id": arguments.task_id, "step_id": arguments.step_id}
        payload = {key: value for key, value in named.items() if value is not None}
        return self._start(caller, Assignment(agent, ChildRole.WORKER, arguments, payload))

    def list_agent_definitions(self, arguments: Nothing, caller: ToolInvocation) -> JsonObject:
        """Return the definitions whose agents can be started."""
        del arguments
        found = [each for each in self._agents.definitions(caller.agent.tenant) if self._options.allows(each.name)]
        return {
            "agent_definitions": [
                {"agent_definition_id": each.name, "capabilities": each.capabilities[:_CAPABILITIES]}
                | ({"problem": each.problem} if each.problem else {})
                for each in found
            ]
        }

    def list_workers(self, arguments: Nothing, caller: ToolInvocation) -> JsonObject:
        """Return the agents that the caller ever started, of definitions that it may still use."""
        del arguments
        tenant, parent = caller.agent.tenant, caller.agent.agent_id
        workers = []
        for definition in self._agents.definitions(tenant):
            if self._options.allows(definition.name):
                for prefix in child_prefixes(parent):
                    found = self._agents.read(AgentsByKeyPrefix(tenant, definition.name, prefix))
                    workers += [_worker(each) for each in found]
        return {"workers": workers}

    def inspect_agent(self, arguments: InspectAgent, caller: ToolInvocation) -> JsonObject:
        """Return how an agent stands that the caller started; raises ToolFailureError for any other."""
        try:
            agent = AgentRef.parse(arguments.agent_id, caller.agent.tenant)
        except InvalidAgentNameError as error:
            raise ToolFailureError("unknown_agent", str(error)) from None
        name = agent.key.rpartition(".")[2]
        child = child_agent(caller.agent.tenant, agent.definition, caller.agent.agent_id, name) if name else None
        record = self._agents.read(AgentByRef(agent)) if child == agent else None
        if record is None:
            message = f"you have started no agent {arguments.agent_id!r}; agent.list_workers tells which ones you have"
            raise ToolFailureError("unknown_agent", message)
        run = next(iter(self._agents.read(RunFilter(agent.tenant, agent, limit=1))), None)
        return {**_worker(record), "last_run": None if run is None else _last_run(self._agents, run)}

    def _start(self, caller: ToolInvocation, assignment: Assignment) -> ToolOutcome:
        run_id = child_run_id(caller.idempotency_key)
        run = self._agents.run(caller.agent.tenant, run_id)
        if run is not None and run.status.final:
            return ToolOutcome(ToolResult(caller.call_id, content=_told(run)), 0)
        if run is None:
            lineage = caller.lineage
            if lineage is not None and lineage.depth >= MAX_DEPTH:
                message = "an agent that was started by another one cannot start agents itself"
                raise ToolFailureError("too_deep", message, details={"depth": lineage.depth, "limit": MAX_DEPTH})
            known = {each.name: each for each in self._agents.definitions(caller.agent.tenant)}
            may = [each for each in known if self._options.allows(each)]
            name = assignment.agent.definition
            definition = known.get(name)
            if definition is None or name not in may:
                message = f"no agent of definition {name!r} can be started; there are {', '.join(may) or 'none'}"
                raise ToolFailureError("unknown_definition", message, details={"definitions": list(may)})
            if definition.problem:
                raise ToolFailureError("broken_definition", f"{name} cannot be used: {definition.problem}")
            self._submit(caller, assignment, tuple(filter(None, (definition.callback_url,))))
        return ToolOutcome(ToolResult(caller.call_id), 0, started=run_id)

    def _submit(self, caller: ToolInvocation, assignment: Assignment, told: tuple[str, ...]) -> None:
        arguments, now = assignment.arguments, self._clock.now()
        end = now + timedelta(seconds=self._options.child_seconds)
        grants = (self._options.grant, *(() if arguments.allowed_tools is None else (tuple(arguments.allowed_tools),)))
        above = caller.lineage
        lineage = Lineage(
            root_run=caller.run_id if above is None else above.root_run,
            parent_run=caller.run_id,
            parent=caller.agent.agent_id,
            depth=1 if above is None else above.depth + 1,
            role=assignment.role,
            grants=grants if above is None else (*above.grants, *grants),
            named_tools=arguments.allowed_tools is not None,
            submitters=caller.submitters,
        )
        payload = {"assignment": arguments.assignment, "from": caller.agent.agent_id, **assignment.payload}
        focus = arguments.assignment.strip().splitlines()[0][:_FOCUS]
        trigger = Trigger(
            TriggerKind.AGENT,
            payload,
            focus,
            caller.run_id,
            lineage=lineage,
            traceparent=caller.traceparent,
            session=caller.session,
            user=caller.user,
        )
        outcome = self._agents.submit(
            SubmitRun(
                child_run_id(caller.idempotency_key),
                assignment.agent,
                trigger,
                now,
                deadline=end if caller.deadline is None else min(end, caller.deadline),
                queue_limit=_QUEUED,
                callback_urls=told,
                counting_keys=keys_among(caller.submitters),
            )
        )
        if isinstance(outcome, QuotaReached):
            raise ToolFailureError("limit_reached", str(outcome.error(now)), retryable=True)
        if not isinstance(outcome, RunAccepted):
            message = f"{assignment.agent.agent_id} has {_QUEUED} assignments waiting already"
            raise ToolFailureError("limit_reached", message, retryable=True)


def _child(caller: ToolInvocation, definition: str, name: str) -> AgentRef:
    try:
        return child_agent(caller.agent.tenant, definition, caller.agent.agent_id, name)
    except InvalidAgentNameError as error:
        raise ToolFailureError("unknown_definition", str(error)) from None


def _told(run: Run) -> JsonObject:
    """Return what a run came to, for the one that started it; raises ToolFailureError if it did not complete."""
    result = run.result
    assert result is not None
    usage = result.usage
    told = {
        "agent_id": run.agent.agent_id,
        "run_id": run.run_id,
        "status": result.status.value,
        "turns": result.turns,
        "tools_called": list(result.tools_called),
        "tokens": usage.prompt_tokens + usage.completion_tokens,
        "cost": usage.cost,
    }
    if result.status is RunStatus.COMPLETED:
        return {**told, "answer": result.final_text}
    error = result.error
    why = f": {error.message}" if error is not None else ""
    message = f"{run.agent.agent_id} did not complete its assignment; its run is {result.status.value}{why}"
    details = {**told, "error": None if error is None else error.type}
    raise ToolFailureError(CHILD_FAILED, message, retryable=error is not None and error.retryable, details=details)


def conversation_of(journal: Sequence[JournalEntry], characters: int) -> list[JsonObject]:
    """Return the newest messages and tool results of a run, oldest first, within so many characters, none in part."""
    told: list[JsonObject] = []
    message: JsonObject
    for entry in reversed(journal):
        data = entry.data
        match entry.kind:
            case EntryKind.PROMPT_BUILT:
                message = {"role": "user", "text": data["user"]}
            case EntryKind.MODEL_REPLIED:
                called = [{"tool": each["name"], "arguments": each["arguments"]} for each in data["tool_calls"]]
                message = {"role": "assistant", "text": data["text"], **({"called": called} if called else {})}
            case EntryKind.TOOL_FINISHED:
                came = {"error": data["error"]} if "error" in data else {"content": data.get("content")}
                message = {"role": "tool", "tool": data["tool"], **came}
            case _:
                continue
        characters -= len(orjson.dumps(message).decode())
        if characters < 0:
            break
        told.append(message)
    return told[::-1]


def _last_run(agents: RuntimeAgents, run: Run) -> JsonObject:
    told: JsonObject = {"run_id": run.run_id, "status": run.status.value, "focus": run.trigger.focus}
    result = run.result
    if result is not None:
        error = None if result.error is None else {"type": result.error.type, "message": result.error.message}
        return {**told, "answer": result.final_text, "error": error, "tools_called": list(result.tools_called)}
    journal = agents.read(JournalOfRun(run.agent.tenant, run.run_id))
    called = [entry.data["tool"] for entry in journal if entry.kind is EntryKind.TOOL_FINISHED]
    return {**told, "turns": sum(each.kind is EntryKind.MODEL_REPLIED for each in journal), "tools_called": called}


def _worker(record: AgentRecord) -> JsonObject:
    agent, outcomes = record.agent, record.state.recent_outcomes
    return {
        "agent_id": agent.agent_id,
        "agent_definition_id": agent.definition,
        "worker": agent.key.rpartition(".")[2],
        "state": "busy" if record.running_run is not None or record.queued_runs else "idle",
        "queued": record.queued_runs,
        "runs": record.state.runs,
        "last_outcome": outcomes[-1] if outcomes else "",
    }
