"""Agents that wait for a place on a host."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from owlclaw_ray.domain.agent import AgentRef, Isolation
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.fair_order import FairOrder, Weights, equal_weights

_SHARE = 1 - 1e-9
TURN = 3
"""Heartbeats that agents keep a host while others wait for one, and for which who wants a host alone lets shared agents go first."""


class _QueueEntry(NamedTuple):
    number: int
    beat: int
    """When it was taken."""


class PlacementQueue:
    """A line for each kind of agents. Tenants get places by weight, agents of one tenant in the order of their waiting.

    What tenants hold is counted in places of shared agents: a host of one's own is `agents_per_host` of them.
    """

    def __init__(self, agents_per_host: int, weight: Weights = equal_weights) -> None:
        self._agents_per_host = agents_per_host
        self._entry_numbers = count()
        self._beats = 0
        self._lines: dict[Isolation, dict[AgentRef, _QueueEntry]] = {isolation: {} for isolation in Isolation}
        sizes = {Isolation.DEDICATED: agents_per_host, Isolation.SHARED: 1}
        self._orders: dict[Isolation, FairOrder[AgentRef]] = {
            isolation: FairOrder(0, size=sizes[isolation], weight=weight) for isolation in Isolation
        }

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def set_hosts(self, most: int) -> None:
        """Note how many hosts there may be: some are kept for other tenants."""
        for order in self._orders.values():
            order.resize(most * self._agents_per_host)

    def seated(self, tenant: TenantId, places: int) -> None:
        """Note that the tenant holds so many more places of shared agents; fewer, if it is negative."""
        for order in self._orders.values():
            if places > 0:
                order.hold((tenant,), places)
            else:
                order.give_back((tenant,), -places)

    def may_sit(self, agent: AgentRef, isolation: Isolation) -> bool:
        """Return whether the agent's tenant may have a place of that kind more while others have none free."""
        return self._orders[isolation].may_hold((agent.tenant,))

    def join(self, agent: AgentRef, isolation: Isolation) -> None:
        """Have the agent wait. Whoever waits already for a place of that kind keeps its turn."""
        if agent not in self._lines[isolation]:
            self.leave(agent)
            self._lines[isolation][agent] = _QueueEntry(next(self._entry_numbers), self._beats)
            self._orders[isolation].add((agent.tenant,), agent)

    def leave(self, agent: AgentRef) -> None:
        """Have the agent wait no more; harmless if it does not."""
        for isolation, line in self._lines.items():
            if line.pop(agent, None) is not None:
                self._orders[isolation].remove((agent.tenant,), agent)

    def beat(self) -> None:
        """Note that a heartbeat has passed."""
        self._beats += 1

    def heartbeats_waited(self, isolation: Isolation) -> int:
        """Return for how many heartbeats the one has waited that came first of that kind."""
        return next((self._beats - ticket.beat for ticket in self._lines[isolation].values()), 0)

    def number(self, isolation: Isolation) -> int:
        """Return how many wait for a place of that kind."""
        return len(self._lines[isolation])

    def queue_fronts(self) -> list[tuple[AgentRef, Isolation]]:
        """Return who is next of each kind, first the one whose tenant has less of its share; of equals a shared agent, whose host serves
        all others of its kind, too, unless the other one has waited for some heartbeats and came first.

        There is none of a kind of which all that wait have to leave the free places to other tenants.
        """
        fronts = []
        for isolation, order in self._orders.items():
            first = order.first()
            if first is not None:
                _, agent = first
                share = self._orders[Isolation.SHARED].share(agent.tenant)
                entry = self._lines[isolation][agent]
                yields = isolation is Isolation.DEDICATED and self._beats - entry.beat < TURN
                fronts.append((share, yields, entry.number, agent, isolation))
        fronts.sort(key=lambda front: front[:3])
        return [(agent, isolation) for *_, agent, isolation in fronts]

    def has_front(self, isolation: Isolation) -> bool:
        """Return whether somebody of that kind may have a place that becomes free."""
        return self._orders[isolation].first() is not None

    def front_lacks_share(self, isolation: Isolation) -> bool:
        """Return whether the tenant of who is next holds less than its share of the places."""
        order = self._orders[isolation]
        first = order.first()
        return first is not None and order.share(first[1].tenant) < _SHARE

    def yielding(self, isolation: Isolation) -> Callable[[AgentRef], bool]:
        """Return which agents make place for those who wait for one of that kind: those of tenants with their share or more.

        If all that wait have to leave the free places to other tenants, those of tenants that wait.
        """
        order = self._orders[isolation]
        if order.first() is None:
            return lambda agent: order.waits((agent.tenant,))
        return lambda agent: order.share(agent.tenant) >= _SHARE
