from dataclasses import replace

from benchmarks import fleet
from benchmarks.fleet import FLEETS, Backlog, Fleet, Wave, backlog_figures, plots, wave_figures
from benchmarks.question import Size
from benchmarks.wave import RunTimes

SMALL = Fleet(agents=100, actors=2, agents_per_actor=50)
WAVE = Wave(
    RunTimes(created=(0.0, 1.0), started=(0.5, 1.5), finished=(3.0, 4.0)),
    cpu={"AgentActor": 0.3, "KeeperActor": 0.2},
    others_cores=0.0,
    peak=2_000_000_000,
    growth={"AgentActor": 3_000_000.0, "KeeperActor": 1_000_000.0},
)
BACKLOG = Backlog(
    agents=1_000,
    done=1_000,
    by_status={"completed": 1_000},
    most_resident=100,
    seconds=10.0,
    others_cores=0.0,
    peak=1_000_000,
)


def figure(figures, start):
    (found,) = [each for each in figures if each.name.startswith(start)]
    return found


def test_the_full_fleet_is_ten_thousand_agents_and_a_hundred_thousand_registered():
    full = FLEETS[Size.FULL]

    assert (full.agents, full.registered, len(full.names())) == (10_000, 100_000, 10_000)
    assert full.actors * full.agents_per_actor >= full.agents


def test_a_wave_is_judged_by_its_time_and_by_the_memory_of_an_agent():
    figures = wave_figures(SMALL, WAVE, WAVE)

    wall, memory = figure(figures, "wall_seconds, 100 agents, first"), figure(figures, "memory_per_idle")
    assert (wall.value, wall.ratio, wall.met) == (4.0, 2.0, True)
    assert (memory.value, memory.met) == (30.0, True)
    assert "of all processes together: 40.0 KB" in memory.note
    assert figure(figures, "cpu_ms_per_run").value == 5.0


def test_a_slow_wave_of_heavy_agents_misses_its_goals():
    slow = replace(
        WAVE,
        times=RunTimes(created=(0.0,), started=(1.0,), finished=(60.5,)),
        growth={"AgentActor": 100 * fleet.GOAL_BYTES + 1.0},
    )

    assert [each.met for each in wave_figures(SMALL, slow, WAVE) if each.goal] == [False, False]


def test_a_wave_after_which_no_host_has_grown_tells_nothing_of_an_agents_memory():
    shrunk = replace(WAVE, growth={"KeeperActor": 1_000_000.0})

    assert figure(wave_figures(SMALL, shrunk, WAVE), "memory_per_idle").met is False


def test_a_wave_that_others_disturbed_says_so():
    disturbed = replace(WAVE, others_cores=1.2)

    assert "others used 1.2 cores meanwhile" in wave_figures(SMALL, disturbed, WAVE)[0].note


def test_a_backlog_is_done_when_every_registered_agent_has_completed_its_run():
    assert figure(backlog_figures(SMALL, BACKLOG), "agents_done").met
    assert figure(backlog_figures(SMALL, BACKLOG), "runs_per_second").value == 100.0

    for lost in (
        replace(BACKLOG, done=999),
        replace(BACKLOG, agents=999, done=999),
        replace(BACKLOG, by_status={"completed": 999, "failed": 1}),
    ):
        assert not figure(backlog_figures(SMALL, lost), "agents_done").met


def test_the_plots_show_what_grew_over_what_was_there():
    memory, cpu = plots({"AgentActor": 70_000_000}, WAVE)

    assert [(each.name, each.x, each.y) for each in memory.series] == [
        ("before", ("AgentActor", "KeeperActor"), (70.0, 0.0)),
        ("added by the wave", ("AgentActor", "KeeperActor"), (3.0, 1.0)),
    ]
    assert cpu.series[0].y == (0.3, 0.2)
