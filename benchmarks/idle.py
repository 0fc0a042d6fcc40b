"""What a system costs that nobody asks anything: CPU, memory and processes of a default `owlclaw up`, as `owlclaw init` writes it.

Beside it in the same run stands bare Ray with Serve and HAProxy, under the same flags, which serves an application with one route. They
run one after the other, since libraries that both had loaded would count half in the memory of each. Each is left alone
until it has settled, then measured over some time; what its processes share counts once.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from actors.environment import IDLE_WORKER_SECONDS
from benchmarks.child import running
from benchmarks.meter import Meter, disturbance
from benchmarks.processes import ProcessTree
from benchmarks.question import Answer, Figure, Say, Size
from benchmarks.system import serving
from serve.loopback import free_ports

TITLE = "CPU, memory and processes of a system that is left alone."
SECONDS = {Size.SMOKE: 20.0, Size.FULL: 60.0}
SETTLING = {Size.SMOKE: 15.0, Size.FULL: 45.0}
SPARE_GONE = {Size.SMOKE: 15.0, Size.FULL: IDLE_WORKER_SECONDS + 30.0}
"""Seconds after which our system has settled: until then there is a tool worker more than is kept, since Ray starts two for the first."""
MOST_TIMES = 1.5
"""The goal: so many times the CPU of bare Ray."""
MOST_MEGABYTES = 1_500.0
_BARE = "ray.init and ray_serve.run of an application with one route, behind HAProxy, same flags"


@dataclass(frozen=True, slots=True)
class Role:
    """What the processes of one name cost together."""

    processes: int
    cpu_percent: float
    """Of a core."""
    megabytes: float
    """Proportional set size."""


@dataclass(frozen=True, slots=True)
class Idle:
    """What a system costs while it is left alone."""

    roles: Mapping[str, Role]
    """By the processes' name."""
    others_cores: float
    """See Spent.others_cores."""

    @property
    def processes(self) -> int:
        """All of them."""
        return sum(role.processes for role in self.roles.values())

    @property
    def cpu_percent(self) -> float:
        """Of a core, all processes together."""
        return sum(role.cpu_percent for role in self.roles.values())

    @property
    def megabytes(self) -> float:
        """Of all processes."""
        return sum(role.megabytes for role in self.roles.values())


def answer(size: Size, say: Say) -> Answer:
    """Measure bare Ray, then OwlClaw."""
    with running("benchmarks.echo") as echo:
        say("bare Ray and Serve, left alone")
        bare = left_alone(echo.tree, SETTLING[size], SECONDS[size])
    with default_system() as tree:
        say("owlclaw up, left alone")
        ours = left_alone(tree, SPARE_GONE[size], SECONDS[size])
    table = as_table(ours, bare)
    say(f"by process\n{table}")
    return Answer(
        "idle",
        figures(ours, bare),
        details={"owlclaw": asdict(ours), "bare": asdict(bare), "seconds": SECONDS[size]},
        files={"roles.md": table.encode()},
    )


@contextmanager
def default_system() -> Iterator[ProcessTree]:
    """Run `owlclaw up` for what `owlclaw init` writes, on a free port, until the block ends."""
    with TemporaryDirectory(prefix="owl-bench-") as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "serve.cli", "init", name], check=True, capture_output=True)
        [port] = free_ports(1)
        with serving(folder, {"OWLCLAW_HTTP__PORT": str(port)}) as system:
            yield system.tree


def left_alone(tree: ProcessTree, settling: float, seconds: float) -> Idle:
    """Return what the processes cost during so many seconds, after they had `settling` seconds, and have become quiet, to begin."""
    time.sleep(settling)
    tree.settle()
    meter = Meter(tree)
    time.sleep(seconds)
    spent, numbers, memory = meter.read(), tree.number_by_name(), tree.pss_by_name()
    roles = {
        name: Role(
            numbers.get(name, 0),
            round(100 * spent.cpu_seconds.get(name, 0.0) / spent.wall_seconds, 2),
            round(memory.get(name, 0) / 1e6, 1),
        )
        for name in numbers.keys() | spent.cpu_seconds.keys()
    }
    costs = sorted(roles.items(), key=lambda role: -role[1].cpu_percent)
    return Idle(dict(costs), spent.others_cores)


def figures(ours: Idle, bare: Idle) -> tuple[Figure, ...]:
    """Return what a default system costs beside bare Ray."""
    note = disturbance(max(ours.others_cores, bare.others_cores))
    return (
        Figure(
            "idle_cpu",
            ours.cpu_percent,
            "% of a core",
            baseline=bare.cpu_percent,
            baseline_is=_BARE,
            goal=f"at most {MOST_TIMES:g} times the baseline",
            met=ours.cpu_percent <= MOST_TIMES * bare.cpu_percent,
            note=note,
        ),
        Figure(
            "idle_memory",
            ours.megabytes,
            "MB",
            baseline=bare.megabytes,
            baseline_is=_BARE,
            goal=f"at most {MOST_MEGABYTES:,.0f}",
            met=ours.megabytes <= MOST_MEGABYTES,
            note="proportional set size",
        ),
        Figure("processes", ours.processes, "", baseline=bare.processes, baseline_is=_BARE),
    )


def as_table(ours: Idle, bare: Idle) -> str:
    """Return the costs by process side by side, in Markdown."""
    nothing = Role(0, 0.0, 0.0)
    lines = [
        "| process | number | CPU, % of a core | PSS, MB | bare: number | CPU | PSS |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys([*ours.roles, *bare.roles]):
        mine, other = ours.roles.get(name, nothing), bare.roles.get(name, nothing)
        cells = [
            *(mine.processes, f"{mine.cpu_percent:.2f}", f"{mine.megabytes:.0f}"),
            *(other.processes, f"{other.cpu_percent:.2f}", f"{other.megabytes:.0f}"),
        ]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
