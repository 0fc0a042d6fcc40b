"""agent.list_agent_definitions, agent.list_workers, agent.inspect_agent: what an agent may know of others."""

from __future__ import annotations

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.lineage import child_agent, child_prefixes
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.store.queries import AgentRecord
from owlclaw_ray.tools.agents.api import Agents
from owlclaw_ray.tools.agents.arguments import InspectAgent, Nothing
from owlclaw_ray.tools.agents.options import AgentOptions
from owlclaw_ray.tools.agents.spawn import checked_agent
from owlclaw_ray.tools.failure import ToolFailureError

_CAPABILITIES = 1_000


class InspectionTools:
    """Reads what is known of definitions, and of agents that the caller started."""

    def __init__(self, agents: Agents, options: AgentOptions) -> None:
        self._agents, self._options = agents, options

    def list_agent_definitions(self, arguments: Nothing, caller: ToolInvocation) -> JsonObject:
        """Return the definitions whose agents can be started."""
        del arguments, caller
        found = [each for each in self._agents.definitions() if self._options.allows(each.name)]
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
        for definition in self._agents.definitions():
            if self._options.allows(definition.name):
                for prefix in child_prefixes(parent):
                    workers += [_worker(each) for each in self._agents.family(tenant, definition.name, prefix)]
        return {"workers": workers}

    def inspect_agent(self, arguments: InspectAgent, caller: ToolInvocation) -> JsonObject:
        """Return how an agent stands that the caller started; raises ToolFailureError for any other."""
        agent = checked_agent(arguments.agent_id, caller)
        record = self._agents.agent(agent) if _is_child(agent, caller.agent) else None
        if record is None:
            message = f"you have started no agent {arguments.agent_id!r}; agent.list_workers tells which ones you have"
            raise ToolFailureError("unknown_agent", message)
        run = self._agents.last_run(agent)
        return {**_worker(record), "last_run": None if run is None else self._told(run)}

    def _told(self, run: Run) -> JsonObject:
        told: JsonObject = {"run_id": run.run_id, "status": run.status.value, "focus": run.trigger.focus}
        result = run.result
        if result is not None:
            error = None if result.error is None else {"type": result.error.type, "message": result.error.message}
            return {**told, "answer": result.final_text, "error": error, "tools_called": list(result.tools_called)}
        journal = self._agents.journal(run.agent.tenant, run.run_id)
        called = [entry.data["tool"] for entry in journal if entry.kind is EntryKind.TOOL_FINISHED]
        return {**told, "turns": sum(each.kind is EntryKind.MODEL_REPLIED for each in journal), "tools_called": called}


def _is_child(agent: AgentRef, parent: AgentRef) -> bool:
    name = agent.key.rpartition(".")[2]
    return bool(name) and child_agent(parent.tenant, agent.definition, parent.agent_id, name) == agent


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
