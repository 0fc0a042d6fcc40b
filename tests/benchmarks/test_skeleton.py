import pytest

from benchmarks import load
from benchmarks.child import running
from benchmarks.measuring import agent_paths, measure_runs
from benchmarks.skeleton import Unfinished
from serve.processes import lives

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(240)]


def test_the_skeleton_brings_every_trigger_to_an_outcome_and_leaves_nothing_behind():
    with running("benchmarks.skeleton") as skeleton:
        skeleton.tree.settle()  # Serve loads its proxy anew when the replica is there, and drops connections
        unfinished = Unfinished(skeleton.folder)
        measured = measure_runs(skeleton.url, skeleton.tree, unfinished, agent_paths(3), 0.5)
        members = skeleton.tree.processes()
        bad = load.run(load.post_for(skeleton.url, iter(["/elsewhere"]), body=b"{}", connections=1))

    assert measured.runs > 0
    assert (measured.refused, measured.broken, bad.refused) == (0, 0, 1)
    assert {"Host", "Journal", "Model"} <= set(measured.cpu_seconds)
    assert not [each for each in members if lives(each)]
    assert not skeleton.folder.exists()
