"""Who sits where: the Directory's picture of hosts and agents, and the choices it makes from it. Nothing here waits."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from msgspec import Struct, field

from owlclaw_ray.domain.agent import AgentRef, Isolation
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.least_loaded import LeastLoaded
from owlclaw_ray.placement.host import HostStatus
from owlclaw_ray.placement.host_pool import Host

IDLE_LOAD = 0.25
"""How much an idle agent counts beside one with work: it takes memory, and is where it will be woken."""
_RELIEVED = 0.05
"""By how much the used share of a node's memory must fall below the limit before the node gets agents again."""
_READING_BEATS = 60
"""How long a node without hosts is believed to be as full as its last host said."""


class NodeEntry(Struct, eq=False):
    """A machine with its hosts, and the sums over them."""

    node_id: str
    number: int
    cpus: float = 0.0
    """0 for a machine where no host can be made any more."""
    hosts: dict[str, HostEntry] = field(default_factory=dict)
    spare: dict[str, HostEntry] = field(default_factory=dict)
    begun: LeastLoaded[HostEntry] = field(default_factory=LeastLoaded)
    """Shared hosts with places."""
    agents: int = 0
    idle: int = 0
    pressed: bool = False
    """Its memory is used beyond the limit."""
    pressed_beats: int = 0
    """Heartbeats since a host said so."""

    @property
    def avoided(self) -> bool:
        """Whether it gets nothing new while another machine can take it."""
        return self.pressed or not self.cpus

    @property
    def load(self) -> float:
        """How many agents with work it has for each CPU; idle ones count less."""
        return (self.agents - (1 - IDLE_LOAD) * self.idle) / (self.cpus or 1.0)


class HostEntry(Struct, eq=False):
    """A host and what the Directory believes of it."""

    host: Host
    node: NodeEntry
    number: int
    """Which one it was to be added."""
    isolation: Isolation | None = None
    """None for a spare one."""
    size: int = 1
    """How many places one of its agents takes: those of the whole host, or one."""
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

    ending: bool = False
    """Its node is drained: nobody is seated here any more, and it ends when its agents have left."""
    counted: tuple[int, int] = (0, 0)
    """Its agents, and the idle ones of them, as they are in the sums of its node."""

    def arrived(self, agents: Iterable[AgentRef]) -> None:
        """Note that one message has brought these agents; others may still be under way with them."""
        for agent in agents:
            if self.coming[agent] <= 1:
                del self.coming[agent]
            else:
                self.coming[agent] -= 1


class PlacementTable:
    """The seats of all hosts, and the seat of each agent."""

    def __init__(
        self,
        agents_per_actor: int,
        memory_limit: float = 1.0,
        seated: Callable[[TenantId, int], None] = lambda *_: None,
    ) -> None:
        """`seated` is told of all places that a tenant gets, or, as a negative number, gives back: of a host as many as it has."""
        self._capacity, self._memory_limit, self._seated = agents_per_actor, memory_limit, seated
        self._seats: dict[str, HostEntry] = {}
        self._where: dict[AgentRef, HostEntry] = {}
        self._nodes: dict[str, NodeEntry] = {}
        self._with_spare: LeastLoaded[NodeEntry] = LeastLoaded()
        self._with_shared: LeastLoaded[NodeEntry] = LeastLoaded()
        """Those with a place for a shared agent, on a host that is begun or a spare one."""
        self._added = 0

    def __iter__(self) -> Iterator[HostEntry]:
        return iter(tuple(self._seats.values()))

    def __len__(self) -> int:
        return len(self._seats)

    def __contains__(self, host_id: str) -> bool:
        return host_id in self._seats

    def get(self, host_id: str) -> HostEntry | None:
        """Return a host's seat; None if it is not known."""
        return self._seats.get(host_id)

    def set_nodes(self, cpus: Mapping[str, float]) -> bool:
        """Note on which machines hosts can be made, and how large they are; return whether a machine has come to others."""
        before = {node.node_id for node in self._nodes.values() if node.cpus}
        for node_id in dict.fromkeys((*cpus, *self._nodes)):
            node = self._node(node_id)
            node.cpus = cpus.get(node_id, 0.0)
            if not node.cpus and not node.hosts:
                del self._nodes[node_id]
            self._index_node(node)
        return bool(before) and not before.issuperset(cpus)

    def nodes(self) -> Sequence[NodeEntry]:
        """Return the machines, in the order of their coming."""
        return tuple(self._nodes.values())

    def beat(self) -> None:
        """Note that a heartbeat has passed: what a machine without hosts last said of its memory grows old."""
        for node in self._nodes.values():
            node.pressed_beats += 1
            if node.pressed and not node.hosts and node.pressed_beats > _READING_BEATS:
                node.pressed = False
                self._index_node(node)

    def add(self, host: Host) -> HostEntry:
        """Return the new host's seat, which is spare."""
        self._added += 1
        node = self._node(host.node_id)
        seat = self._seats[host.host_id] = node.hosts[host.host_id] = HostEntry(host, node, self._added)
        self._index(seat)
        return seat

    def remove(self, seat: HostEntry) -> bool:
        """Forget a host and where its agents were; False if it is forgotten already."""
        if self._seats.pop(seat.host.host_id, None) is None:
            return False
        for agent in seat.agents:
            self._unseat(agent, seat)
        node = seat.node
        node.agents, node.idle = node.agents - seat.counted[0], node.idle - seat.counted[1]
        del node.hosts[seat.host.host_id]
        node.spare.pop(seat.host.host_id, None)
        node.begun.drop(seat.number)
        if not node.cpus and not node.hosts:
            self._nodes.pop(node.node_id, None)
        self._index_node(node)
        return True

    def host_entry_of(self, agent: AgentRef) -> HostEntry | None:
        """Return where the agent sits, also while it is leaving."""
        return self._where.get(agent)

    def place(self, agent: AgentRef, isolation: Isolation) -> HostEntry | None:
        """Seat an agent that has none, on the machine with the least load for its size; None if no host has a place for it.

        A machine whose memory is full gets it only if that of all machines is. Of a machine's shared hosts the emptiest one
        that is begun gets it, and a spare one if all are full.
        """
        seat = self._free(isolation)
        if seat is None:
            return None
        if seat.isolation is None:
            self._begin(seat, isolation)
            seat.checks, seat.closing = 0, False
        seat.agents[agent] = seat.checks
        seat.coming[agent] = 0
        self._where[agent] = seat
        self._seated(agent.tenant, seat.size)
        self._index(seat)
        return seat

    def close(self, seat: HostEntry, *, closing: bool = True) -> None:
        """Seat nobody on the host until it is spare; or do so again."""
        seat.closing = closing
        self._index(seat)

    def end(self, seat: HostEntry) -> None:
        """Seat nobody on the host any more."""
        seat.ending = seat.closing = True
        self._index(seat)

    def learn(
        self, seat: HostEntry, staying: frozenset[AgentRef], hosted: Sequence[AgentRef], isolation: Isolation | None
    ) -> None:
        """Believe a host's own list, but of those that have begun to come or leave since.

        `staying`: the agents that should have been on it when the host was asked.
        """
        if seat.isolation is None and not seat.agents:
            self._begin(seat, isolation)
        for agent in hosted:
            if agent not in self._where:
                self._where[agent] = seat
                self._seated(agent.tenant, seat.size)
            if self._where[agent] is seat:
                seat.agents.setdefault(agent, seat.checks)
        self.left(seat, staying.difference(hosted, seat.leaving, seat.coming))
        if seat.agents and seat.isolation is None:
            seat.isolation = isolation
        self._index(seat)

    def note(self, seat: HostEntry, status: HostStatus) -> bool:
        """Take over what a heartbeat says; return whether the host holds other agents than believed, so that it must be asked."""
        seat.idle = {agent: seconds for agent, seconds in status.idle if self._where.get(agent) is seat}
        seat.memory = status.memory
        seat.checks += 1
        node = seat.node
        limit = self._memory_limit - (_RELIEVED if node.pressed else 0.0)
        node.pressed, node.pressed_beats = status.memory > limit, 0
        self._index(seat)
        return status.agents != len(seat.agents)

    def left(self, seat: HostEntry, agents: Iterable[AgentRef]) -> None:
        """Note that these agents are no longer on their host."""
        for agent in agents:
            self._unseat(agent, seat)
            seat.agents.pop(agent, None)
            seat.coming.pop(agent, None)
            seat.idle.pop(agent, None)
        if not seat.agents:
            seat.isolation = None
        self._index(seat)

    def spare(self) -> int:
        """Return how many hosts have no agents."""
        return sum(len(node.spare) for node in self._nodes.values())

    def superfluous(self, most_spare: int) -> HostEntry | None:
        """Return a spare host to end: one on a machine whose memory is full, or one of those beyond so many, where the load is highest."""
        nodes = [node for node in self._nodes.values() if node.spare]
        nodes = [node for node in nodes if node.pressed] or (nodes if self.spare() > most_spare else [])
        return next(reversed(max(nodes, key=lambda node: node.load).spare.values())) if nodes else None

    def is_pressed(self) -> bool:
        """Return whether the memory of a machine with hosts is full."""
        return any(node.pressed and node.hosts for node in self._nodes.values())

    def room(self, most: int, coming: Mapping[str, int]) -> int:
        """Return how many hosts can be made, at most so many a machine, those on their way to each included."""
        return sum(max(0, most - len(node.hosts) - coming.get(node.node_id, 0)) for node in self._growing())

    def node_for_host(self, most: int, coming: Mapping[str, int]) -> str | None:
        """Return the machine that has fewest hosts for its CPUs, those on their way included; None if each has `most`."""
        hosts = {node: len(node.hosts) + coming.get(node.node_id, 0) for node in self._growing()}
        nodes = [node for node, number in hosts.items() if number < most]
        if not nodes:
            return None
        return min(nodes, key=lambda node: ((hosts[node] + 1) / node.cpus, node.load, node.number)).node_id

    def counts(self) -> dict[str, int]:
        """Return the number of agents on each host."""
        return {host_id: len(seat.agents) for host_id, seat in self._seats.items()}

    def preemptible_idle(
        self, isolation: Isolation, number: int, yields: Callable[[AgentRef], bool] = lambda _: True
    ) -> list[tuple[HostEntry, list[AgentRef]]]:
        """Return idle agents whose release makes place for so many others, each with its seat; fewer, if there are fewer.

        Only those that yield. For shared hosts those that are idle longest; for a host of one's own, a host of which all agents are
        idle, and of these the ones with fewest agents.
        """
        if isolation is Isolation.SHARED:
            return self._longest_idle(number, yields)
        resting = [
            seat
            for seat in self._seats.values()
            if seat.agents and not seat.leaving and len(seat.idle) == len(seat.agents) and all(map(yields, seat.agents))
        ]
        resting.sort(key=lambda seat: (len(seat.agents), -min(seat.idle.values())))
        return [(seat, list(seat.idle)) for seat in resting[:number]]

    def hosts_to_preempt(
        self, waiting: Isolation, *, least_checks: int, yields: Callable[[AgentRef], bool] = lambda _: True
    ) -> list[HostEntry]:
        """Return hosts to empty for agents of that kind that wait, the first ones first: their own agents had so many checks.

        For a host of one's own: shared hosts whose agents find places on others, the smallest first; then, as for a place on
        a shared host, hosts of single agents, the longest served first: of those that yield, if there are any.
        """
        single = [seat for seat in self._served(least_checks) if seat.isolation is Isolation.DEDICATED]
        if any(
            seat.isolation is Isolation.DEDICATED and all(map(yields, seat.agents)) for seat in self._seats.values()
        ):
            single = [seat for seat in single if all(map(yields, seat.agents))]
        single.sort(key=lambda seat: -seat.checks)
        if waiting is Isolation.SHARED:
            return single
        return self._shared_by_load(least_checks)[: self._replaceable()] + single

    def last_resort(self, *, least_checks: int) -> list[HostEntry]:
        """Return the shared host to empty for an agent that wants one of its own, where no such agent has a turn that ends."""
        if any(seat.isolation is Isolation.DEDICATED for seat in self._open()):
            return []
        return self._shared_by_load(least_checks)[:1]

    def longest_placed(
        self, number: int, *, least_checks: int, yields: Callable[[AgentRef], bool] = lambda _: True
    ) -> list[tuple[HostEntry, AgentRef]]:
        """Return agents of shared hosts to hand over for others of their kind: those that had at least so many checks, the most first.

        Only those that yield.
        Fewer by those that are leaving already.
        """
        shared = [seat for seat in self._open() if seat.isolation is Isolation.SHARED]
        served = [
            (seat.checks - since, seat, agent)
            for seat in shared
            for agent, since in islice(
                filter(lambda each: yields(each[0]), seat.agents.items()), number + len(seat.leaving)
            )
            if agent not in seat.leaving and seat.checks - since >= least_checks
        ]
        served.sort(key=lambda each: -each[0])
        number -= sum(len(seat.leaving) for seat in shared)
        return [(seat, agent) for _, seat, agent in served[: max(0, number)]]

    def closing(self, *, most_checks: int) -> int:
        """Return how many hosts are being emptied, not counting those that take longer than so many checks."""
        seats = self._seats.values()
        return sum(seat.closing and not seat.ending and seat.checks <= most_checks for seat in seats)

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

    def _longest_idle(self, number: int, yields: Callable[[AgentRef], bool]) -> list[tuple[HostEntry, list[AgentRef]]]:
        seats = [seat for seat in self._seats.values() if seat.idle and not seat.closing]
        idle = heapq.merge(*map(_staying_idle, seats), key=lambda entry: entry[:2])
        idle = (entry for entry in idle if yields(entry[2]))
        chosen: dict[str, tuple[HostEntry, list[AgentRef]]] = {}
        for _, _, agent, seat in islice(idle, number):
            chosen.setdefault(seat.host.host_id, (seat, []))[1].append(agent)
        return list(chosen.values())

    def _free(self, isolation: Isolation) -> HostEntry | None:
        shared = isolation is Isolation.SHARED
        node = (self._with_shared if shared else self._with_spare).least()
        if node is None or (node.avoided and any(not each.avoided for each in self._nodes.values())):
            return None
        return (node.begun.least() if shared else None) or next(iter(node.spare.values()))

    def _growing(self) -> list[NodeEntry]:
        """Return the machines where hosts are made: those whose memory is full only if that of all is."""
        nodes = [node for node in self._nodes.values() if node.cpus]
        return [node for node in nodes if not node.pressed] or nodes

    def _node(self, node_id: str) -> NodeEntry:
        if node_id not in self._nodes:
            self._added += 1
            self._nodes[node_id] = NodeEntry(node_id, self._added)
        return self._nodes[node_id]

    def _begin(self, seat: HostEntry, isolation: Isolation | None) -> None:
        seat.isolation, seat.size = isolation, 1 if isolation is Isolation.SHARED else self._capacity

    def _unseat(self, agent: AgentRef, seat: HostEntry) -> None:
        if self._where.get(agent) is seat:
            del self._where[agent]
            self._seated(agent.tenant, -seat.size)

    def _index(self, seat: HostEntry) -> None:
        """Note in the sums and orders what has changed on a host."""
        if self._seats.get(seat.host.host_id) is not seat:
            return
        node, now = seat.node, (len(seat.agents), len(seat.idle))
        node.agents, node.idle = node.agents + now[0] - seat.counted[0], node.idle + now[1] - seat.counted[1]
        seat.counted = now
        if seat.isolation is None and not seat.ending:
            node.spare.setdefault(seat.host.host_id, seat)
        else:
            node.spare.pop(seat.host.host_id, None)
        if seat.isolation is Isolation.SHARED and not seat.closing and len(seat.agents) < self._capacity:
            node.begun.put(seat.number, seat, (len(seat.agents),))
        else:
            node.begun.drop(seat.number)
        self._index_node(node)

    def _index_node(self, node: NodeEntry) -> None:
        is_known, order = node.node_id in self._nodes, (node.avoided, node.load)
        for nodes, has_place in (
            (self._with_spare, bool(node.spare)),
            (self._with_shared, bool(node.spare or node.begun)),
        ):
            if is_known and has_place:
                nodes.put(node.number, node, order)
            else:
                nodes.drop(node.number)


def _staying_idle(seat: HostEntry) -> Iterator[tuple[float, int, AgentRef, HostEntry]]:
    """Yield the host's idle agents that are not leaving, the one idle longest first, each with what orders it among all."""
    for agent, seconds in seat.idle.items():
        if agent not in seat.leaving:
            yield -seconds, seat.number, agent, seat
