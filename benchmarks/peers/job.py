"""The job that every peer does: model → tool → model, with a scripted model that answers at once. Standard library only, so
that a peer's own interpreter can run it.

It is what the packaged `scripted:tool_once` makes our agents do.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypedDict

TOOL = "log_decision"
LAST_WORD = "done"


class Call(TypedDict):
    """What the model asks a tool to do."""

    id: str
    name: str
    arguments: dict[str, str]


class Reply(TypedDict):
    """What the model says."""

    text: str
    calls: list[Call]


Conversation: TypeAlias = list[dict[str, Any]]
"""What was said so far in a run; empty at its start."""


async def ask_model(conversation: Conversation) -> Reply:
    """Ask for one tool call at first, then be done."""
    if conversation:
        return {"text": LAST_WORD, "calls": []}
    arguments = {"reasoning": "Nothing needs to be done.", "decision_type": "no_action"}
    return {"text": "", "calls": [{"id": "call-0", "name": TOOL, "arguments": arguments}]}


async def log_decision(reasoning: str, decision_type: str) -> dict[str, Any]:
    """Log a decision."""
    return {"decision_id": f"{decision_type}-{len(reasoning)}", "logged": True}
