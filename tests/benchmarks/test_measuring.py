import itertools
import sqlite3
from dataclasses import replace

import pytest

from benchmarks import measuring, skeleton
from benchmarks.load import LoadResult
from benchmarks.measuring import (
    Backlog,
    Measured,
    NothingAcceptedError,
    agent_paths,
    drain,
    failed_runs,
    measure_runs,
    remarks,
    said,
    unfinished_runs,
)
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT, RunId
from owlclaw_ray.store.commands import CancelRun, SubmitRun
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock


@pytest.fixture
def now(monkeypatch):
    """A time that a test sets."""
    at = [100.0]
    monkeypatch.setattr(measuring.time, "monotonic", lambda: at[0])
    monkeypatch.setattr(measuring.time, "sleep", lambda seconds: at.__setitem__(0, at[0] + seconds))
    return at


def test_there_is_room_until_so_many_are_unfinished(now):
    room = Backlog(lambda: 2, most=5)

    assert [room(LoadResult(accepted=count)) for count in (0, 1, 2, 3)] == [True, True, True, False]


def test_the_true_number_is_looked_at_now_and_then(now):
    unfinished = iter([0, 4])
    room = Backlog(lambda: next(unfinished), most=5)
    assert room(LoadResult(accepted=0))
    assert not room(LoadResult(accepted=5))

    now[0] += 1.0
    assert room(LoadResult(accepted=5))
    assert not room(LoadResult(accepted=6))


def test_draining_ends_with_the_last_run_or_says_how_many_are_left(now):
    left = iter([3, 1, 0])
    drain(lambda: next(left))
    assert next(left, None) is None

    with pytest.raises(TimeoutError, match="7 runs had no outcome"):
        drain(lambda: 7)


def test_paths_go_round_the_agents():
    assert list(itertools.islice(agent_paths(2, "own"), 3)) == [
        "/v1/agents/own:0/triggers",
        "/v1/agents/own:1/triggers",
        "/v1/agents/own:0/triggers",
    ]


def test_rates_are_over_the_whole_time_and_cpu_over_all_processes():
    measured = Measured(100, 0, 0, 4.0, {"Keeper": 0.3, "raylet": 0.1}, 12.0)

    assert measured.runs_per_second == 25
    assert measured.cpu_ms_per_run == pytest.approx(4.0)


class Machine:
    """Processes that use nothing."""

    def cpu_of_each(self):
        return {}


@pytest.fixture
def load_of(monkeypatch):
    """Has the load end with a result, whatever it is told to do."""

    def end_with(result):
        async def post_for(*_, **__):
            return result

        monkeypatch.setattr(measuring, "post_for", post_for)

    return end_with


def test_a_run_that_did_not_complete_counts_for_nothing_and_is_told(load_of):
    load_of(LoadResult(accepted=10, latencies=[0.01] * 10))
    failed = iter([5, 8])

    measured = measure_runs("", Machine(), lambda: 0, iter(()), 1.0, failed=lambda: next(failed))

    assert (measured.runs, measured.failed) == (7, 3)
    assert remarks([replace(measured, others_cores=0.0)]) == "3 runs did not complete, which count for nothing"
    assert "3 runs did not complete" in said(measured)


def test_a_load_of_which_nothing_is_accepted_is_no_measurement(load_of):
    load_of(LoadResult(refused=4, broken=2))

    with pytest.raises(NothingAcceptedError, match="no trigger was accepted, 4 refused, 2 broken"):
        measure_runs("", Machine(), lambda: 0, iter(()), 1.0)


async def test_runs_that_end_badly_are_counted_in_the_store(tmp_path):
    store = await open_store(f"sqlite:///{tmp_path}/owlclaw.db", writer="test")
    failed, now = failed_runs(tmp_path / "owlclaw.db"), ManualClock().now()
    submitted = [
        SubmitRun(RunId(name), AgentRef.parse("bench:1"), Trigger(TriggerKind.API), now) for name in ("a", "b")
    ]
    await store.apply(submitted)
    assert failed() == 0

    await store.apply([CancelRun(DEFAULT_TENANT, RunId("b"), now)])

    assert failed() == 1
    await store.close()


async def test_unfinished_runs_are_counted_in_the_store(tmp_path):
    store = await open_store(f"sqlite:///{tmp_path}/owlclaw.db", writer="test")
    unfinished = unfinished_runs(tmp_path / "owlclaw.db")
    assert unfinished() == 0

    trigger = Trigger(TriggerKind.API)
    submit = SubmitRun(RunId("run_1"), AgentRef.parse("bench:1"), trigger, ManualClock().now())
    await store.apply([submit])

    assert unfinished() == 1
    await store.close()


def test_what_the_skeleton_has_not_finished_is_counted_in_its_journal(tmp_path):
    database = sqlite3.connect(tmp_path / skeleton.JOURNAL, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE journal (run TEXT, kind TEXT, entry TEXT)")
    unfinished = skeleton.Unfinished(tmp_path)

    def append(*kinds):
        database.executemany("INSERT INTO journal VALUES ('run', ?, '')", [(kind,) for kind in kinds])
        return unfinished()

    assert append("trigger", "trigger", "reply") == 2
    assert append("outcome", "trigger") == 2
    assert append("outcome", "outcome") == 0
