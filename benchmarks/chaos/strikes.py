"""Who is killed, and when: a seed gives the same schedule every time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

_OVERLAPPING = 0.15
_LONGEST_WAIT = 2.0
_HOLD = (15.0, 30.0)


class Role(Enum):
    """What a strike hits."""

    AGENT = "agent"
    """An agent actor."""
    TOOL_WORKER = "tool_worker"
    """A process that runs tools, a busy one if there is one."""
    KEEPER = "keeper"
    DIRECTORY = "directory"
    GATEWAY = "gateway"
    SCHEDULER = "scheduler"
    ROOT = "root"
    """The owner of all the above: they die with it."""
    REPLICA = "replica"
    """The ingress's Serve replica."""
    CONTROLLER = "controller"
    """Serve's controller."""
    PROXY = "proxy"
    """HAProxy, which has the port."""
    RAYLET = "raylet"
    """Ray's scheduler of the node. `owlclaw up` ends then, and is started again as a supervisor would."""
    GCS = "gcs"
    """Ray's control store; as RAYLET."""
    DASHBOARD_AGENT = "dashboard_agent"
    """Ray's agent for metrics and logs; as RAYLET, whose fate it shares."""
    HUNG_AGENT = "hung_agent"
    """An agent actor is stopped (SIGSTOP), and goes on (SIGCONT) when somebody else has its agents."""
    HUNG_PART = "hung_part"
    """The Keeper, the Directory, the ModelGateway or the Scheduler is stopped, and goes on unless it was killed for it."""
    HUNG_ROOT = "hung_root"
    """A root is stopped, and goes on unless it was killed for it."""
    HUNG_REPLICA = "hung_replica"
    """The replica is stopped, and goes on unless it was killed for it."""
    HUNG_PROXY = "hung_proxy"
    """HAProxy is stopped, and goes on unless it was killed for it."""
    STREAMS = "streams"
    """Nobody is killed: 2,000 clients follow the events of a few runs at once."""
    RESTART = "restart"
    """Nobody is killed: the runtime is stopped as `owlclaw down` stops it, amid its work, and started again."""
    TREE = "tree"
    """Every process of the runtime, `owlclaw up` included, which is then started again."""
    HANDOVER = "handover"
    """Nobody is killed: of several clusters the one that holds the lease is stopped as RESTART does, and stands by afterwards."""
    CLUSTER = "cluster"
    """Every process of the cluster that holds the lease, which is then started again and stands by."""
    MACHINE = "machine"
    """A machine that is not the head loses its power: its processes stop and its cables are dead, and some time later it starts anew."""
    FROM_DATABASE = "from_database"
    """Such a machine does not reach the database for a while, and it does the others."""
    FROM_CLUSTER = "from_cluster"
    """Such a machine does not reach the others for a while, and it does the database."""
    FROM_HEAD = "from_head"
    """Such a machine does not reach the head for a while, and it does the others and the database."""
    CUT_OFF = "cut_off"
    """Such a machine reaches nobody for a while, and its processes go on."""
    DIRECTORY_FROM_DATABASE = "directory_from_database"
    """As FROM_DATABASE, the machine of the Directory, which may be the head."""
    DIRECTORY_FROM_CLUSTER = "directory_from_cluster"
    """As FROM_CLUSTER, the machine of the Directory: another one is made elsewhere, and the old one lives on. Missed on the head, without
    which none is made."""
    HEAD = "head"
    """As MACHINE, the head, with `owlclaw up`."""


HUNG = frozenset({Role.HUNG_AGENT, Role.HUNG_PART, Role.HUNG_ROOT, Role.HUNG_REPLICA, Role.HUNG_PROXY})
NODE = frozenset({Role.RAYLET, Role.GCS, Role.DASHBOARD_AGENT})
"""What Ray's node cannot go on without."""
LEASE = frozenset({Role.HANDOVER, Role.CLUSTER})
"""After these another cluster holds the lease."""
MACHINES = frozenset(
    {
        Role.MACHINE,
        Role.FROM_DATABASE,
        Role.FROM_CLUSTER,
        Role.FROM_HEAD,
        Role.CUT_OFF,
        Role.DIRECTORY_FROM_DATABASE,
        Role.DIRECTORY_FROM_CLUSTER,
        Role.HEAD,
    }
)
HARMLESS = HUNG | MACHINES | {Role.RESTART, Role.STREAMS, Role.HANDOVER}
"""Strikes that kill nobody."""
SHARES: Mapping[Role, float] = {
    Role.AGENT: 27,
    Role.TOOL_WORKER: 14,
    Role.KEEPER: 8,
    Role.DIRECTORY: 8,
    Role.GATEWAY: 6,
    Role.SCHEDULER: 3,
    Role.ROOT: 4,
    Role.REPLICA: 4,
    Role.CONTROLLER: 2,
    Role.PROXY: 3,
    Role.HUNG_AGENT: 4,
    Role.HUNG_PART: 2,
    Role.HUNG_ROOT: 1,
    Role.HUNG_REPLICA: 2,
    Role.HUNG_PROXY: 2,
    Role.RAYLET: 2,
    Role.GCS: 2,
    Role.DASHBOARD_AGENT: 1,
    Role.STREAMS: 2,
    Role.RESTART: 1,
    Role.TREE: 2,
}
"""How often each role is hit, in comparison to the others, where there is one cluster."""
LEASE_SHARES: Mapping[Role, float] = {Role.HANDOVER: 1, Role.CLUSTER: 1}
"""The same where there are several."""
MACHINE_SHARES: Mapping[Role, float] = {
    Role.MACHINE: 5,
    Role.FROM_DATABASE: 5,
    Role.FROM_CLUSTER: 5,
    Role.FROM_HEAD: 5,
    Role.CUT_OFF: 3,
    Role.DIRECTORY_FROM_DATABASE: 3,
    Role.AGENT: 6,
    Role.TOOL_WORKER: 3,
    Role.KEEPER: 4,
    Role.DIRECTORY: 3,
    Role.GATEWAY: 2,
    Role.SCHEDULER: 1,
    Role.ROOT: 4,
    Role.HUNG_AGENT: 2,
    Role.HUNG_PART: 3,
    Role.HUNG_ROOT: 1,
}
"""The same for one cluster of several machines."""
NAMED_SHARES: Mapping[Role, float] = {Role.HEAD: 1, Role.DIRECTORY_FROM_CLUSTER: 3}
"""The same for what is hit on several machines only if it is named."""
_WEIGHTS = {**MACHINE_SHARES, **NAMED_SHARES, **SHARES, **LEASE_SHARES}


@dataclass(frozen=True, slots=True)
class Strike:
    """One blow."""

    number: int
    role: Role
    after_runs: int
    """It waits until so many triggers were accepted."""
    delay: float
    """Seconds that it then waits, so that it falls anywhere."""
    choice: float
    """Which of several processes, from 0 to 1 in the order of their process numbers."""
    hold: float
    """Seconds until a stopped process goes on."""
    overlaps: bool
    """Whether the next strike comes at once, and not when the system answers again."""


def schedule(
    seed: int, runs: int, kills: int, roles: Sequence[Role] = tuple(SHARES), ahead: int = 0
) -> tuple[Strike, ...]:
    """Return the strikes of a session, spread over its runs behind those ahead. Every role is hit as often as its share says."""
    random = Random(f"{seed} strikes")  # noqa: S311 - it must come out the same again
    victims = [role for role, count in _counts(kills, roles).items() for _ in range(count)]
    random.shuffle(victims)
    return tuple(
        Strike(
            number=number,
            role=role,
            after_runs=ahead + round((runs - ahead) * (number + random.random()) / (kills + 1)),
            delay=random.uniform(0, _LONGEST_WAIT),
            choice=random.random(),
            hold=random.uniform(*_HOLD),
            overlaps=random.random() < _OVERLAPPING,
        )
        for number, role in enumerate(victims)
    )


def _counts(kills: int, roles: Sequence[Role]) -> dict[Role, int]:
    """Share the kills out: the whole part of each share first, the rest to the largest remainders."""
    total = sum(_WEIGHTS[role] for role in roles)
    shares = {role: kills * _WEIGHTS[role] / total for role in roles}
    counts = {role: int(share) for role, share in shares.items()}
    by_remainder = sorted(roles, key=lambda role: counts[role] - shares[role])
    for role in by_remainder[: kills - sum(counts.values())]:
        counts[role] += 1
    return counts
