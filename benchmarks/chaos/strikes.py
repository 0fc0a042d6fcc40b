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
    """HAProxy, which holds the port."""
    RAYLET = "raylet"
    """Ray's raylet: `owlclaw up` ends, as it should, and is started again."""
    GCS = "gcs"
    """Ray's control store; the same."""
    HUNG_AGENT = "hung_agent"
    """An agent actor is stopped (SIGSTOP), and goes on (SIGCONT) when somebody else has its agents."""
    HUNG_PART = "hung_part"
    """The Keeper, the Directory, the ModelGateway or the Scheduler is stopped, and goes on unless it was killed for it."""
    HUNG_SERVER = "hung_server"
    """The replica or HAProxy is stopped, and goes on unless it was killed for it."""
    RESTART = "restart"
    """Nobody is killed: the runtime is stopped as `owlclaw down` stops it, amid its work, and started again."""
    TREE = "tree"
    """Every process of the runtime, `owlclaw up` included, which is then started again."""


HUNG = frozenset({Role.HUNG_AGENT, Role.HUNG_PART, Role.HUNG_SERVER})
SHARES: Mapping[Role, float] = {
    Role.AGENT: 31,
    Role.TOOL_WORKER: 17,
    Role.KEEPER: 9,
    Role.DIRECTORY: 9,
    Role.GATEWAY: 8,
    Role.SCHEDULER: 4,
    Role.ROOT: 4,
    Role.REPLICA: 4,
    Role.HUNG_AGENT: 4,
    Role.HUNG_PART: 2,
    Role.CONTROLLER: 1,
    Role.PROXY: 1,
    Role.RAYLET: 1,
    Role.GCS: 1,
    Role.HUNG_SERVER: 1,
    Role.RESTART: 1,
    Role.TREE: 2,
}
"""How often each role is hit, in comparison to the others."""


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


def schedule(seed: int, runs: int, kills: int, roles: Sequence[Role] = tuple(SHARES)) -> tuple[Strike, ...]:
    """Return the strikes of a session, spread over its runs. Every role is hit as often as its share says."""
    random = Random(f"{seed} strikes")  # noqa: S311 - it must come out the same again
    victims = [role for role, count in _counts(kills, roles).items() for _ in range(count)]
    random.shuffle(victims)
    return tuple(
        Strike(
            number=number,
            role=role,
            after_runs=round(runs * (number + random.random()) / (kills + 1)),
            delay=random.uniform(0, _LONGEST_WAIT),
            choice=random.random(),
            hold=random.uniform(*_HOLD),
            overlaps=random.random() < _OVERLAPPING,
        )
        for number, role in enumerate(victims)
    )


def _counts(kills: int, roles: Sequence[Role]) -> dict[Role, int]:
    """Share the kills out: the whole part of each share first, the rest to the largest remainders."""
    total = sum(SHARES[role] for role in roles)
    shares = {role: kills * SHARES[role] / total for role in roles}
    counts = {role: int(share) for role, share in shares.items()}
    by_remainder = sorted(roles, key=lambda role: counts[role] - shares[role])
    for role in by_remainder[: kills - sum(counts.values())]:
        counts[role] += 1
    return counts
