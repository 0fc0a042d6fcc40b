"""In which order a turn's calls are executed (T6): groups one after another, the calls of a group beside each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import groupby
from typing import TypeVar

from owlclaw_ray.domain.tool import AGENT, Permission, ToolDefinition

_Call = TypeVar("_Call")


class CallLane(Enum):
    """What a call may run beside."""

    READING = "reading"
    """Other readonly calls, and calls of tools that there are not."""
    WRITING = "writing"
    """Nothing: it is a barrier."""
    AGENTS = "agents"
    """Other calls of agent tools, whatever they do: each has an agent of its own. All are waited for."""


def lane_of(tool: ToolDefinition | None) -> CallLane:
    """Return the lane of a tool's calls, which may be refused; None stands for a tool that there is not."""
    if tool is None:
        return CallLane.READING
    if AGENT in tool.tags:
        return CallLane.AGENTS
    return CallLane.WRITING if tool.permission is Permission.WRITE else CallLane.READING


def groups(calls: Iterable[_Call], lane: Callable[[_Call], CallLane]) -> Iterator[list[_Call]]:
    """Yield consecutive calls that may run beside each other, all in the model's order."""
    for kind, together in groupby(calls, key=lane):
        if kind is CallLane.WRITING:
            yield from ([call] for call in together)
        else:
            yield list(together)
