"""Which agents leave machines that have far more than their share, after others have come, or whose memory is full."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef, Isolation
from owlclaw_ray.placement.table import IDLE_LOAD, HostEntry, NodeEntry

TOLERANCE = 0.2
"""By how much a machine's load may be above the even share."""
_HOSTS_AT_ONCE = 4
"""Machines that get a host for agents to come, at most, with each heartbeat."""


class Moves(Struct, frozen=True):
    """What to begin now."""

    idle: tuple[tuple[HostEntry, list[AgentRef]], ...] = ()
    """To be released: they come back elsewhere when they are woken."""
    busy: tuple[tuple[HostEntry, AgentRef], ...] = ()
    """To be handed over after their present runs: other machines have places for so many."""
    hosts: tuple[str, ...] = ()
    """The machines that need one host more each, so that others can be handed over."""
    more: bool = False
    """Whether a machine still has more than its share, or its memory is full."""


def plan_moves(
    nodes: Sequence[NodeEntry],
    number: int,
    *,
    capacity: int,
    most_hosts: int,
    spread: bool,
    settled: Collection[AgentRef] = (),
) -> Moves:
    """Return at most `number` moves, fewer by those under way.

    `capacity`: of a shared host. `most_hosts`: on a machine.
    `spread`: even the loads out, and do not only relieve machines whose memory is full.
    `settled`: agents that have been handed over already, and are not again.
    """
    takers = [node for node in nodes if not node.avoided]
    cpus = sum(node.cpus for node in takers)
    if not cpus:
        return Moves()
    share = sum(node.load * (node.cpus or 1.0) for node in nodes if node.cpus) / cpus
    above = share * (1 + TOLERANCE)
    givers = [node for node in nodes if node.cpus and node.agents and (node.pressed or (spread and node.load > above))]
    takers = [node for node in takers if node.load < share]
    places = _places(takers, capacity, share)
    idle: dict[str, tuple[HostEntry, list[AgentRef]]] = {}
    busy: list[tuple[HostEntry, AgentRef]] = []
    chosen = unplaced = 0
    for node in givers:
        leaving = sum(len(seat.leaving) for seat in node.hosts.values())
        surplus = (node.load - (0.0 if node.pressed else share)) * node.cpus - leaving
        for seat, agent in _idle(node):
            if surplus < IDLE_LOAD or chosen + leaving >= number:
                break
            idle.setdefault(seat.host.host_id, (seat, []))[1].append(agent)
            chosen += 1
            surplus -= IDLE_LOAD
        for seat, agent in _busy(node, settled):
            if surplus < 1 or chosen + len(busy) + leaving >= number:
                break
            assert seat.isolation is not None
            if places[seat.isolation] > 0:
                places[seat.isolation] -= 1
                busy.append((seat, agent))
                surplus -= 1
            else:
                unplaced += 1
                if unplaced >= _HOSTS_AT_ONCE:
                    break
    growing = [node.node_id for node in sorted(takers, key=lambda node: node.load) if len(node.hosts) < most_hosts]
    return Moves(tuple(idle.values()), tuple(busy), tuple(growing[:unplaced]), more=bool(givers))


def _places(takers: Sequence[NodeEntry], capacity: int, share: float) -> dict[Isolation, int]:
    """Return how many agents of each kind these machines can take before they have their share."""
    places = dict.fromkeys(Isolation, 0)
    for node in takers:
        lacking = math.ceil((share - node.load) * node.cpus)
        shared = [seat for seat in node.hosts.values() if seat.isolation is Isolation.SHARED and not seat.closing]
        free = sum(max(0, capacity - len(seat.agents)) for seat in shared) + capacity * len(node.spare)
        places[Isolation.SHARED] += min(lacking, free)
        places[Isolation.DEDICATED] += min(lacking, len(node.spare))
    return places


def _idle(node: NodeEntry) -> Iterator[tuple[HostEntry, AgentRef]]:
    for seat in node.hosts.values():
        yield from ((seat, agent) for agent in seat.idle if agent not in seat.leaving and agent not in seat.coming)


def _busy(node: NodeEntry, settled: Collection[AgentRef]) -> Iterator[tuple[HostEntry, AgentRef]]:
    """Yield agents with work that can be handed over, those of the fullest hosts first."""
    for seat in sorted(node.hosts.values(), key=lambda seat: -len(seat.agents)):
        if not seat.closing:
            for agent in seat.agents:
                if not any(agent in others for others in (seat.idle, seat.leaving, seat.coming, settled)):
                    yield seat, agent
