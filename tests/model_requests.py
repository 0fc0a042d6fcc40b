"""Requests to models, as tests make them that care about little of what is in one."""

from __future__ import annotations

from owlclaw_ray.domain.agent import ModelChoice
from owlclaw_ray.domain.model import Message, MessageRole, ModelRequest
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import RequestId


def model_request(*chain, question="你好", timeout=60.0):
    """Return a question to the models of that chain."""
    return ModelRequest(
        request_id=RequestId(f"req_{question}"),
        model=ModelChoice(chain),
        system="You are calm.",
        messages=(Message(MessageRole.USER, question),),
        tools=b"[]",
        timeout=timeout,
        agent_id="trader",
        run_id="run_1",
        trigger=Trigger(TriggerKind.API),
    )
