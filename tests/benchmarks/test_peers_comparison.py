from dataclasses import replace
from unittest.mock import patch

import pytest

from benchmarks.asking import Unavailable, ask
from benchmarks.peers.__main__ import main
from benchmarks.peers.comparison import OURS, Findings, best, find_all, to_answer
from benchmarks.peers.contestants import AUTOGEN, DBOS, WAYS
from benchmarks.peers.sample import Sample
from benchmarks.question import Size
from benchmarks.suites import EXTRAS, Asking

WAY = {way.name: way for way in WAYS}


def sample(rate, *, cpu_ms=2.0, in_flight=64, others=0.0):
    return Sample(int(rate * 10), 10.0, {"python": rate * 10 * cpu_ms / 1_000}, others, in_flight)


def test_rounds_count_by_their_median_and_the_best_number_in_flight_by_its_rate():
    found = best(
        [sample(100, in_flight=64), sample(300), sample(200, in_flight=64), sample(250, cpu_ms=3.0, in_flight=256)]
    )

    assert (found.rate, found.in_flight) == (250, 256)
    assert found.cpu_ms == pytest.approx(3.0)


def test_rounds_that_others_disturbed_do_not_count_beside_quieter_ones():
    found = best([sample(100, others=0.9), sample(300, others=0.3), sample(200, others=0.35)])

    assert (found.rate, found.others_cores) == (250, 0.35)


def test_a_figure_says_how_much_others_disturbed_either_side():
    answer = to_answer([WAY["Restate"]], Findings({OURS: [sample(1, others=0.5)], "Restate": [sample(1)]}))

    assert [each.note for each in answer.figures[1:]] == [
        "others used 0.5 cores beside OwlClaw and 0 beside the peer"
    ] * 2


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "met"),
    [
        ("Restate", 301, 300, True),
        ("Restate", 300, 300, False),
        ("DBOS, SQLite", 200, 20, True),
        ("DBOS, SQLite", 199, 20, False),
        ("autogen-core", 100, 1_000, None),
    ],
)
def test_goals_are_met_or_missed_by_the_rates(name, ours, theirs, met):
    answer = to_answer([WAY[name]], Findings({OURS: [sample(ours)], name: [sample(theirs)]}))

    [figure] = [each for each in answer.figures if each.name == f"runs_per_second against {name}"]
    assert figure.met is met
    assert figure.value == ours
    assert figure.ratio == pytest.approx(ours / theirs)
    assert bool(figure.goal) is (met is not None)


def test_costs_are_compared_too_without_a_goal():
    answer = to_answer([WAY["Restate"]], Findings({OURS: [sample(1, cpu_ms=5)], "Restate": [sample(1, cpu_ms=4)]}))

    [figure] = [each for each in answer.figures if each.name == "cpu_ms_per_run against Restate"]
    assert figure.ratio == pytest.approx(1.25)
    assert figure.met is None


def test_peers_that_were_not_measured_are_named_with_what_installs_them():
    findings = Findings({OURS: [sample(1)], "Restate": [sample(1)]}, missing={"dbos": "pip install it"})

    answer = to_answer([WAY["Restate"]], findings)

    assert "dbos was not measured: pip install it" in answer.figures[0].note
    assert answer.details["missing"] == {"dbos": "pip install it"}


def test_all_samples_are_in_the_details():
    answer = to_answer([WAY["Restate"]], Findings({OURS: [sample(3)], "Restate": [sample(1), sample(2)]}))

    assert [each["runs_per_second"] for each in answer.details["samples"]["Restate"]] == [1, 2]


HERE = replace(AUTOGEN, distributions=("pytest>=8",))
NOWHERE = replace(DBOS, distributions=("no-such-distribution>=1",))


def test_a_peer_that_is_missing_does_not_keep_the_others_from_being_measured(tmp_path):
    findings, said = Findings(), []

    installed = find_all({HERE, NOWHERE}, tmp_path, findings, said.append)

    assert list(installed) == [HERE]
    assert findings.versions == {"pytest": pytest.__version__}
    assert findings.missing == {"dbos": "pip install -e '.[peers]'"}
    assert said == ["dbos is not measured; install it with: pip install -e '.[peers]'"]


def test_without_any_peer_the_question_says_which_extra_it_needs(tmp_path):
    asking = Asking("peers", Size.SMOKE)

    def nobody(_size, _say):
        find_all({NOWHERE}, tmp_path, Findings(), print)

    with patch("benchmarks.peers.answer", nobody):
        outcome = ask(asking, EXTRAS, print)

    assert isinstance(outcome, Unavailable)
    assert "pip install -e '.[peers]'" in outcome.reason


def test_only_peers_that_there_are_can_be_asked_for(capsys):
    with pytest.raises(SystemExit) as end:
        main(["restate", "nobody"])

    assert end.value.code == 2
    assert "no such peer: nobody" in capsys.readouterr().err
