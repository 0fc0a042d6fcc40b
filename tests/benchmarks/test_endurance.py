from benchmarks.endurance import AMOUNTS, Reading, figures, growth, plot_of
from benchmarks.question import Size

READINGS = [
    Reading(1_000, {"gcs_server 1": 40.0, "AgentActor 2": 100.0, "IDLE 3": 70.0}),
    Reading(2_000, {"gcs_server 1": 50.0, "AgentActor 2": 110.0, "AgentActor 4": 90.0}),
    Reading(3_000, {"gcs_server 1": 61.0, "AgentActor 2": 105.0, "AgentActor 4": 99.0}),
]


def test_a_process_grows_from_the_first_reading_that_it_lived_in():
    assert growth(READINGS) == [("gcs_server 1", 21.0), ("AgentActor 4", 9.0), ("AgentActor 2", 5.0)]


def test_head_and_the_process_that_grew_most_are_judged_whichever_that_is():
    leaking = [READINGS[0], Reading(2_000, {"gcs_server 1": 45.0, "AgentActor 2": 180.0})]

    head, most, everything = figures(leaking)

    assert (head.value, head.met) == (5.0, True)
    assert (most.value, most.met) == (80.0, False)
    assert "AgentActor 2" in most.note
    assert (everything.value, everything.baseline) == (225.0, 210.0)


def test_the_full_size_does_ten_times_the_runs_of_its_first_reading():
    full = AMOUNTS[Size.FULL]

    assert full.each * full.readings >= 10 * full.first


def test_the_plot_shows_a_process_from_its_beginning():
    lines = {each.name: each.y for each in plot_of(READINGS).series}

    assert lines["AgentActor 4"] == (0.0, 90.0, 99.0)
