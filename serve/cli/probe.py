"""Whether real models understand tools: each is asked once, which may cost a little."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import orjson

from owlclaw_ray.domain.agent import ModelChoice
from owlclaw_ray.domain.model import Message, MessageRole, ModelRequest
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.ids import RequestId
from serve.cli.findings import CheckFinding, fail, ok, warn

if TYPE_CHECKING:
    from owlclaw_ray.domain.endpoint import RealModel
    from owlclaw_ray.models.litellm_client import LiteLLMClient

_SECONDS = 60.0
_PARAMETERS = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
_TOOL = {"name": "report_status", "description": "Report how you are.", "parameters": _PARAMETERS}


def probe(models: Sequence[RealModel]) -> list[CheckFinding]:
    """Offer each model one tool and ask for a call of it; return how each answered."""

    async def ask_all() -> list[CheckFinding]:
        from owlclaw_ray.models.litellm_client import LiteLLMClient

        client = LiteLLMClient()
        try:
            return [await _finding(client, each) for each in models]
        finally:
            await client.close()

    return asyncio.run(ask_all())


async def _finding(client: LiteLLMClient, asked: RealModel) -> CheckFinding:
    subject = f"model {asked.model}"
    endpoints = () if asked.endpoint is None else (asked.endpoint,)
    request = ModelRequest(
        request_id=RequestId("req_probe"),
        model=ModelChoice((asked.model,), endpoints=endpoints),
        system="You act by calling tools.",
        messages=(Message(MessageRole.USER, f"Call the tool {_TOOL['name']} with the status ok. Write nothing else."),),
        tools=orjson.dumps([{"type": "function", "function": _TOOL}]),
        timeout=_SECONDS,
        agent_id="doctor",
        run_id="probe",
        trigger=Trigger(TriggerKind.API),
    )
    try:
        reply = await client.complete(request, asked.model)
    except OwlClawError as error:
        return fail(subject, f"does not answer: {error}", "")
    if any(call.name == _TOOL["name"] for call in reply.tool_calls):
        return ok(subject, "tools offered: 1, understood: 1")
    counted = f" (its prompt had {reply.usage.prompt_tokens} tokens)" if reply.usage.prompt_tokens else ""
    fix = "see docs/models.md for what its server needs, such as llama-server --jinja, or take a model that is trained for tools"
    return warn(subject, f"tools offered: 1, understood: 0: asked for a call, it answered with text{counted}", fix)
