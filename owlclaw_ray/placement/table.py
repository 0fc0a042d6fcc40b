"""Who sits where: the Directory's picture of hosts and agents, and the choices it makes from it. Nothing here waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct, field

from owlclaw_ray.domain.agent import AgentRef, Isolation
from owlclaw_ray.placement.host import HostStatus
from owlclaw_ray.placement.host_pool import Host


class HostEntry(Struct, eq=False):
    """A host and what the Directory believes of it."""

    host: Host
    isolation: Isolation | None = None
    """None for a spare one."""
    agents: dict[AgentRef, int] = field(default_factory=dict)
    """In the order of their coming, each with the number of checks before it."""
    coming: Counter[AgentRef] = field(default_factory=Counter)
    """Agents on their way to the host, which may not know them yet, each with the messages under way that bring it."""
    idle: dict[AgentRef, float] = field(default_factory=dict)
    """Those of its agents that are idle longest, the longest first, with the seconds."""
    leaving: set[AgentRef] = field(default_factory=set)
    """Agents whose release is under way (it may wait long for the store): whoever wakes one waits for its end."""
    memory: float = 0.0
    """The used share of its node's memory."""
    checks: int = 0
    """Checks since its present agents began to come."""
    being_checked: bool = False
    closing: bool = False
    """Being emptied, because others wait for its place: nobody is seated here until it is spare."""

    def arrived(self, agents: Iterable[AgentRef]) -> None:
        """Note that one message has brought these agents; others may still be under way with them."""
        for agent in agents:
            if self.coming[agent] <= 1:
                del self.coming[agent]
            else:
                self.coming[agent] -= 1


class PlacementTable:
    """The seats of all hosts, and the seat of each agent."""

    def __init__(self, agents_per_actor: int) -> None:
        self._capacity = agents_per_actor
        self._seats: dict[str, HostEntry] = {}
        self._where: dict[AgentRef, HostEntry] = {}

    def __iter__(self) -> Iterator[HostEntry]:
        return iter(tuple(self._seats.values()))

    def __len__(self) -> int:
        return len(self._seats)

    def __contains__(self, host_id: str) -> bool:
        return host_id in self._seats

    def add(self, host: Host) -> HostEntry:
        """Return the new host's seat, which is spare."""
        seat = self._seats[host.host_id] = HostEntry(host)
        return seat

    def remove(self, seat: HostEntry) -> bool:
        """Forget a host and where its agents were; False if it is forgotten already."""
        if self._seats.pop(seat.host.host_id, None) is None:
            return False
        for agent in seat.agents:
            if self._where.get(agent) is seat:
                del self._where[agent]
        return True

    def host_entry_of(self, agent: AgentRef) -> HostEntry | None:
        """Return where the agent sits, also while it is leaving."""
        return self._where.get(agent)

    def place(self, agent: AgentRef, isolation: Isolation) -> HostEntry | None:
        """Seat an agent that has none; None if no host has a place for it.

        Shared hosts are begun on every node before a second one is begun on any, and filled evenly.
        """
        seat = self._free(isolation)
        if seat is None:
            return None
        if seat.isolation is None:
            seat.isolation, seat.checks, seat.closing = isolation, 0, False
        seat.agents[agent] = seat.checks
        seat.coming[agent] = 0
        self._where[agent] = seat
        return seat

    def learn(
        self, seat: HostEntry, staying: frozenset[AgentRef], hosted: Sequence[AgentRef], isolation: Isolation | None
    ) -> None:
        """Believe a host's own list, but of those that have begun to come or leave since.

        `staying`: the agents that should have been on it when the host was asked.
        """
        for agent in hosted:
            if self._where.setdefault(agent, seat) is seat:
                seat.agents.setdefault(agent, seat.checks)
        self.left(seat, staying.difference(hosted, seat.leaving, seat.coming))
        if seat.agents and seat.isolation is None:
            seat.isolation = isolation

    def note(self, seat: HostEntry, status: HostStatus) -> bool:
        """Take over what a heartbeat says; return whether the host holds other agents than believed, so that it must be asked."""
        seat.idle = {agent: seconds for agent, seconds in status.idle if self._where.get(agent) is seat}
        seat.memory = status.memory
        seat.checks += 1
        return status.agents != len(seat.agents)

    def left(self, seat: HostEntry, agents: Iterable[AgentRef]) -> None:
        """Note that these agents are no longer on their host."""
        for agent in agents:
            if self._where.get(agent) is seat:
                del self._where[agent]
            seat.agents.pop(agent, None)
            seat.coming.pop(agent, None)
            seat.idle.pop(agent, None)
        if not seat.agents:
            seat.isolation = None

    def spare(self) -> list[HostEntry]:
        """Return the hosts without agents."""
        return [seat for seat in self._seats.values() if seat.isolation is None]

    def counts(self) -> dict[str, int]:
        """Return the number of agents on each host."""
        return {host_id: len(seat.agents) for host_id, seat in self._seats.items()}

    def preemptible_idle(self, isolation: Isolation, number: int) -> list[tuple[HostEntry, list[AgentRef]]]:
        """Return idle agents whose release makes place for so many others, each with its seat; fewer, if there are fewer.

        For shared hosts those that are idle longest; for a host of one's own, a host of which all agents are idle, and of
        these the ones with fewest agents.
        """
        if isolation is Isolation.SHARED:
            return self._longest_idle(number)
        resting = [
            seat
            for seat in self._seats.values()
            if seat.agents and not seat.leaving and len(seat.idle) == len(seat.agents)
        ]
        resting.sort(key=lambda seat: (len(seat.agents), -min(seat.idle.values())))
        return [(seat, list(seat.idle)) for seat in resting[:number]]

    def hosts_to_preempt(self, waiting: Isolation, *, least_checks: int) -> list[HostEntry]:
        """Return hosts to empty for agents of that kind that wait, the first ones first: their own agents had so many checks.

        For a host of one's own: shared hosts whose agents find places on others, the smallest first; then, as for a place on
        a shared host, hosts of single agents, the longest served first.
        """
        single = [seat for seat in self._served(least_checks) if seat.isolation is Isolation.DEDICATED]
        single.sort(key=lambda seat: -seat.checks)
        if waiting is Isolation.SHARED:
            return single
        return self._shared_by_load(least_checks)[: self._replaceable()] + single

    def last_resort(self, *, least_checks: int) -> list[HostEntry]:
        """Return the shared host to empty for an agent that wants one of its own, where no such agent has a turn that ends."""
        if any(seat.isolation is Isolation.DEDICATED for seat in self._open()):
            return []
        return self._shared_by_load(least_checks)[:1]

    def longest_placed(self, number: int, *, least_checks: int) -> list[tuple[HostEntry, AgentRef]]:
        """Return agents of shared hosts to hand over for others of their kind: those that had at least so many checks, the most first.

        Fewer by those that are leaving already.
        """
        shared = [seat for seat in self._open() if seat.isolation is Isolation.SHARED]
        served = [
            (seat.checks - since, seat, agent)
            for seat in shared
            for agent, since in islice(seat.agents.items(), number + len(seat.leaving))
            if agent not in seat.leaving and seat.checks - since >= least_checks
        ]
        served.sort(key=lambda each: -each[0])
        number -= sum(len(seat.leaving) for seat in shared)
        return [(seat, agent) for _, seat, agent in served[: max(0, number)]]

    def closing(self, *, most_checks: int) -> int:
        """Return how many hosts are being emptied, not counting those that take longer than so many checks."""
        return sum(seat.closing and seat.checks <= most_checks for seat in self._seats.values())

    def _open(self) -> list[HostEntry]:
        """Return the hosts with agents that stay."""
        return [seat for seat in self._seats.values() if seat.agents and not seat.closing]

    def _served(self, least_checks: int) -> list[HostEntry]:
        return [seat for seat in self._open() if seat.checks >= least_checks and not seat.leaving]

    def _shared_by_load(self, least_checks: int) -> list[HostEntry]:
        shared = [seat for seat in self._served(least_checks) if seat.isolation is Isolation.SHARED]
        return sorted(shared, key=lambda seat: len(seat.agents))

    def _replaceable(self) -> int:
        """Return how many shared hosts the others could replace."""
        free = (self._capacity - len(seat.agents) for seat in self._open() if seat.isolation is Isolation.SHARED)
        return sum(max(0, places) for places in free) // self._capacity

    def _longest_idle(self, number: int) -> list[tuple[HostEntry, list[AgentRef]]]:
        idle = sorted(
            (
                (seconds, seat, agent)
                for seat in self._seats.values()
                if not seat.closing
                for agent, seconds in seat.idle.items()
                if agent not in seat.leaving
            ),
            key=lambda each: -each[0],
        )
        chosen: dict[str, tuple[HostEntry, list[AgentRef]]] = {}
        for _, seat, agent in idle[:number]:
            chosen.setdefault(seat.host.host_id, (seat, []))[1].append(agent)
        return list(chosen.values())

    def _free(self, isolation: Isolation) -> HostEntry | None:
        spare = self.spare()
        if isolation is Isolation.SHARED:
            shared = [seat for seat in self._open() if seat.isolation is isolation]
            begun = [seat for seat in shared if len(seat.agents) < self._capacity]
            if begun:
                served = {seat.host.node_id for seat in shared}
                unserved = (seat for seat in spare if seat.host.node_id not in served)
                return next(unserved, None) or min(begun, key=lambda seat: len(seat.agents))
        return next(iter(spare), None)
