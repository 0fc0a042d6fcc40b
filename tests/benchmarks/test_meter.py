import psutil
import pytest

from benchmarks import meter
from benchmarks.meter import Meter, disturbance
from benchmarks.processes import CpuReading, ProcessTree

KEEPER, RAYLET = psutil.Process(), psutil.Process(1)


def reading(name, seconds):
    return CpuReading(name, 0, seconds, 0.0)


@pytest.fixture
def counters(monkeypatch):
    """CPU seconds of the system, this process and the whole machine, and the time, which a test sets."""
    now = {"system": {KEEPER: reading("Keeper", 1.0)}, "own": 5.0, "machine": 100.0, "time": 50.0}
    monkeypatch.setattr(ProcessTree, "cpu_of_each", lambda _: now["system"])
    monkeypatch.setattr(meter.time, "process_time", lambda: now["own"])
    monkeypatch.setattr(meter.time, "monotonic", lambda: now["time"])
    monkeypatch.setattr(meter, "_machine_seconds", lambda: now["machine"])
    return now


def test_what_neither_the_system_nor_the_load_generator_used_is_others(counters):
    watch = Meter(ProcessTree(psutil.Process()))
    counters["system"] = {KEEPER: reading("Keeper", 3.0), RAYLET: reading("raylet", 1.0)}
    counters |= {"own": 6.0, "machine": 110.0, "time": 54.0}

    spent = watch.read()
    assert (spent.wall_seconds, spent.cpu_seconds) == (4.0, {"Keeper": 2.0, "raylet": 1.0})
    assert (spent.generator_cpu_seconds, spent.others_cores) == (1.0, 1.5)


def test_rounding_makes_nobody_use_less_than_nothing(counters):
    watch = Meter(ProcessTree(psutil.Process()))
    counters |= {"own": 6.0, "machine": 100.5, "time": 51.0}

    assert watch.read().others_cores == 0


def test_a_disturbance_is_worth_a_remark_when_it_is_one():
    assert disturbance(0.1) == ""
    assert disturbance(0.8) == "others used 0.8 cores meanwhile"
