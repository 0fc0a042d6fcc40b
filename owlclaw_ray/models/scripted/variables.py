"""What templates can say about the conversation."""

from __future__ import annotations

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.model import MessageRole
from owlclaw_ray.models.scripted.script import ScriptedRequest, ScriptedResult


def conversation_variables(request: ScriptedRequest) -> JsonObject:
    """Return the variables by name; docs/scripted-model.md lists them. `last` is missing while no tool has run."""
    trigger, payload = request.trigger, request.trigger.payload
    results = [_result(result) for result in request.results]
    by_tool: JsonObject = {}
    for result in results:
        by_tool[result["name"]] = by_tool[result["name"].replace(".", "__")] = result["content"]
    variables: JsonObject = {
        "trigger": {
            "kind": trigger.kind.value,
            "focus": trigger.focus,
            "payload": payload,
            "source": trigger.source,
        },
        "payload": payload,
        "focus": trigger.focus,
        "agent_id": request.agent_id,
        "run_id": request.run_id,
        "turn": request.turn,
        "attempt": request.attempt,
        "system": request.system,
        "user": next((message.content for message in request.messages if message.role is MessageRole.USER), ""),
        "results": results,
        "result": by_tool,
    }
    if results:
        variables["last"] = results[-1]
    return variables


def _result(result: ScriptedResult) -> JsonObject:
    return {"name": result.name, "call_id": result.call_id, "content": result.content, "is_error": result.is_error}
