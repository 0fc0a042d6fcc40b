"""The seven tools that every agent has (T11-T18)."""

from owlclaw_ray.tools.builtin.arguments import InvalidToolArgumentsError
from owlclaw_ray.tools.builtin.contract import CallContext, Caller
from owlclaw_ray.tools.builtin.toolset import BuiltInTools, UnknownBuiltInToolError

__all__ = ["BuiltInTools", "CallContext", "Caller", "InvalidToolArgumentsError", "UnknownBuiltInToolError"]
