import subprocess
import sys

import psutil
import pytest

from benchmarks import idle
from benchmarks.idle import Idle, Role, as_table, figures, left_alone
from benchmarks.processes import ProcessTree

OURS = Idle({"KeeperActor": Role(1, 1.0, 110.0), "AgentActor": Role(2, 0.75, 140.0)}, 0.0)
BARE = Idle({"ServeController": Role(1, 1.25, 100.0)}, 0.5)


def test_a_system_within_both_goals_meets_them_beside_what_bare_ray_costs():
    cpu, memory, processes = figures(OURS, BARE)

    assert (cpu.value, cpu.baseline, cpu.ratio, cpu.met) == (1.75, 1.25, 1.4, True)
    assert (memory.value, memory.baseline, memory.met) == (250.0, 100.0, True)
    assert (processes.value, processes.baseline) == (3, 1)
    assert cpu.note == "others used 0.5 cores meanwhile"


@pytest.mark.parametrize(("role", "met"), [(Role(1, 1.9, 10.0), [False, True]), (Role(1, 1.0, 1_501.0), [True, False])])
def test_more_than_a_goal_misses_it(role, met):
    cpu, memory, _ = figures(Idle({"all": role}, 0.0), BARE)

    assert [cpu.met, memory.met] == met


def test_processes_of_either_side_are_in_the_table():
    assert as_table(OURS, BARE).splitlines()[2:] == [
        "| KeeperActor | 1 | 1.00 | 110 | 0 | 0.00 | 0 |",
        "| AgentActor | 2 | 0.75 | 140 | 0 | 0.00 | 0 |",
        "| ServeController | 0 | 0.00 | 0 | 1 | 1.25 | 100 |",
    ]


@pytest.fixture
def busy():
    """A process that computes for ever."""
    program = "print('ready', flush=True)\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_what_processes_use_while_they_are_left_alone_is_told_by_name(busy, monkeypatch):
    monkeypatch.setattr(ProcessTree, "settle", lambda _: None)
    moments = iter((0.0, 50.0))
    monkeypatch.setattr("benchmarks.meter.time.monotonic", lambda: next(moments))
    monkeypatch.setattr(idle.time, "sleep", lambda _: wait_for_cpu(busy, 0.2))

    [(name, role)] = left_alone(ProcessTree(psutil.Process(busy.pid)), 0.0, 50.0).roles.items()

    assert name.startswith("python")
    assert role.processes == 1
    assert 0.4 <= role.cpu_percent < 100
    assert role.megabytes > 1


def wait_for_cpu(process, seconds):
    """Return when the process has used so much more."""
    times = psutil.Process(process.pid).cpu_times
    before = sum(times()[:2])
    while sum(times()[:2]) - before < seconds:
        pass
