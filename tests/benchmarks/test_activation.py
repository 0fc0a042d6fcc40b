import itertools

import pytest

from benchmarks.activation import NUMBERS, latency_figures, other_figures, plot_of, wait_until_passivated
from benchmarks.first_entries import Started, started_at
from benchmarks.question import Size

RAW = [2.0, 3.0, 2.5]
EVENTS = b"id: 1\nevent: run_queued\ndata: {}\n\nid: 2\nevent: run_started\ndata: {}\n\nevent: end\ndata: {}\n\n"
FOUND = {"seconds": RAW, "cpu_seconds_each": 2.2, "empty_pss": [60_000_000], "agent_pss": [66_000_000, 70_000_000]}


def starts(*milliseconds):
    return [Started(each / 1_000, 2 * each / 1_000) for each in milliseconds]


def test_the_start_is_when_its_event_is_read_and_the_stream_is_read_to_its_end():
    lines = iter(EVENTS.splitlines(keepends=True))
    clock = itertools.count(1).__next__

    assert started_at(lines, clock) == 1
    assert next(lines, None) is None


def test_a_stream_without_a_start_has_none():
    assert started_at([b"event: run_queued\n", b"event: end\n"], lambda: 1.0) is None


def test_what_is_not_resident_yet_is_judged_against_a_raw_actor():
    found = {
        "cold, shared": starts(5, 6, 60),
        "passivated, dedicated": starts(5, 6, 61),
        "resident, shared": starts(2, 2, 2),
        "cold, shared, under load": starts(900),
    }

    figures = latency_figures(found, RAW)

    assert {each.name: each.met for each in figures if each.goal} == {
        "p95_ms, cold, shared": True,
        "p95_ms, passivated, dedicated": False,
    }
    first = figures[0]
    assert (first.name, first.value, first.baseline) == ("p50_ms, cold, shared", 6.0, 2_500.0)
    assert first.note == "by a client's clock 12.0 ms; 3 starts"


@pytest.mark.parametrize(("agent", "met"), [(69_000_000, True), (69_000_001, False)])
def test_an_agent_actor_is_judged_by_the_memory_of_an_empty_one(agent, met):
    rate, cpu, memory = other_figures(100.0, NUMBERS[Size.SMOKE], {**FOUND, "agent_pss": [agent]})

    assert (rate.baseline, cpu.value) == (0.4, 2.2)
    assert memory.met is met


def test_the_plot_has_a_bar_for_each_percentile_of_each_kind():
    plot = plot_of({"cold, shared": starts(1, 2, 3)}, RAW)

    assert "2,500 ms" in plot.title
    assert [each.y for each in plot.series] == [(2.0,), (3.0,), (3.0,)]


def test_dedicated_agents_fill_the_warm_actors_evenly():
    assert all(numbers.dedicated % 6 == 0 for numbers in NUMBERS.values())


def test_waiting_ends_when_nobody_is_resident(monkeypatch):
    slept = []
    monkeypatch.setattr("benchmarks.activation.time.sleep", slept.append)

    class Store:
        left = iter([2, 1, 0])

        def resident(self, agents):
            assert agents == ["shared:1"]
            return next(self.left)

    wait_until_passivated(Store(), ["shared:1"])

    assert len(slept) == 2
