"""OwlClaw Ray: a durable runtime for many LLM agents at once."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from owlclaw_ray.app import OwlClaw
    from owlclaw_ray.app_loader import load_app
    from owlclaw_ray.domain.agent import AgentRef
    from owlclaw_ray.domain.tool import ToolError, ToolResult
    from owlclaw_ray.errors import ApprovalNeededError, ConfigurationError, OwlClawError
    from owlclaw_ray.tools.adapter import CallTarget
    from owlclaw_ray.tools.context import ToolContext
    from owlclaw_ray.tools.hooks import Change, Deny, ToolUse

__all__ = [
    "AgentRef",
    "ApprovalNeededError",
    "CallTarget",
    "Change",
    "ConfigurationError",
    "Deny",
    "OwlClaw",
    "OwlClawError",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "ToolUse",
    "load_app",
]

_MODULES = {
    "AgentRef": "owlclaw_ray.domain.agent",
    "ApprovalNeededError": "owlclaw_ray.errors",
    "CallTarget": "owlclaw_ray.tools.adapter",
    "Change": "owlclaw_ray.tools.hooks",
    "ConfigurationError": "owlclaw_ray.errors",
    "Deny": "owlclaw_ray.tools.hooks",
    "OwlClaw": "owlclaw_ray.app",
    "OwlClawError": "owlclaw_ray.errors",
    "ToolContext": "owlclaw_ray.tools.context",
    "ToolError": "owlclaw_ray.domain.tool",
    "ToolResult": "owlclaw_ray.domain.tool",
    "ToolUse": "owlclaw_ray.tools.hooks",
    "load_app": "owlclaw_ray.app_loader",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that an agent's process loads nothing that it does not need."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
