"""Agents that wait for a place on a host."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from owlclaw_ray.domain.agent import AgentRef, Isolation


class _QueueEntry(NamedTuple):
    number: int
    beat: int
    """When it was taken."""


class PlacementQueue:
    """One line for both kinds of agents: it knows who came first of each kind, and of all."""

    def __init__(self) -> None:
        self._entry_numbers = count()
        self._beats = 0
        self._lines: dict[Isolation, dict[AgentRef, _QueueEntry]] = {isolation: {} for isolation in Isolation}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def join(self, agent: AgentRef, isolation: Isolation) -> None:
        """Have the agent wait. Whoever waits already for a place of that kind keeps its turn."""
        if agent not in self._lines[isolation]:
            self.leave(agent)
            self._lines[isolation][agent] = _QueueEntry(next(self._entry_numbers), self._beats)

    def leave(self, agent: AgentRef) -> None:
        """Have the agent wait no more; harmless if it does not."""
        for line in self._lines.values():
            line.pop(agent, None)

    def beat(self) -> None:
        """Note that a heartbeat has passed."""
        self._beats += 1

    def heartbeats_waited(self, isolation: Isolation) -> int:
        """Return for how many heartbeats the first of that kind has waited."""
        return next((self._beats - ticket.beat for ticket in self._lines[isolation].values()), 0)

    def number(self, isolation: Isolation) -> int:
        """Return how many wait for a place of that kind."""
        return len(self._lines[isolation])

    def queue_fronts(self) -> list[tuple[AgentRef, Isolation]]:
        """Return who has waited for longest of each kind, the one that came first before the other."""
        queue_fronts = [(*next(iter(line.items())), isolation) for isolation, line in self._lines.items() if line]
        return [(agent, isolation) for agent, _, isolation in sorted(queue_fronts, key=lambda front: front[1])]
