"""The model of a chaos session: it says what the trigger's payload tells it to say. The session copies this file."""

from __future__ import annotations

from owlclaw_ray.models.scripted import ScriptedCall, ScriptedReply, ScriptedRequest


def reply(request: ScriptedRequest) -> ScriptedReply:
    """Return the turn of the payload that follows the replies so far; after the last one, the end."""
    payload = request.trigger.payload
    turns = payload.get("turns", []) if isinstance(payload, dict) else []
    if request.turn >= len(turns):
        return ScriptedReply(text="done")
    turn = turns[request.turn]
    calls = [ScriptedCall(name, arguments) for name, arguments in turn["calls"]]
    return ScriptedReply(tool_calls=calls, latency=turn["latency"])
