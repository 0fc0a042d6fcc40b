import pytest

from benchmarks import wave
from benchmarks.load import LoadResult
from benchmarks.past import finish_runs, queue_runs
from benchmarks.wave import RunTimes, StoreReader, WaveError, check_completed, trigger_each, wait_until_done
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT, ActivationId, RunId
from owlclaw_ray.store.commands import ActivateAgent, CancelRun, SubmitRun
from owlclaw_ray.store.queries import JournalOfRun, LedgerBreaks, RunById
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock

AGENTS = [AgentRef.parse(f"bench:{number}") for number in range(4)]


@pytest.fixture
def store(tmp_path):
    return tmp_path / "data" / "owlclaw.db"


@pytest.fixture
def now(monkeypatch):
    """A time that passes only in sleep."""
    at = [100.0]
    monkeypatch.setattr(wave.time, "monotonic", lambda: at[0])
    monkeypatch.setattr(wave.time, "sleep", lambda seconds: at.__setitem__(0, at[0] + seconds))
    return at


class Left:
    """A store in which a run ends with each look."""

    def __init__(self, unfinished, resident):
        self.runs, self.agents = iter(unfinished), iter(resident)

    def unfinished(self):
        return next(self.runs)

    def resident(self):
        return next(self.agents)


def test_the_times_of_a_wave_are_those_of_its_first_and_last_run():
    times = RunTimes(created=(10.0, 11.0, 12.5), started=(10.5, 11.0, 14.0), finished=(13.0, 12.0, 16.0))

    assert (times.wall, times.accepting) == (6.0, 2.5)
    assert times.starting == (0.5, 0.0, 1.5)
    assert times.most_at_once == 2


def test_a_run_that_ends_when_another_starts_is_not_beside_it():
    assert RunTimes(created=(0, 0), started=(1, 2), finished=(2, 3)).most_at_once == 1


def test_no_runs_take_no_time():
    assert (RunTimes().wall, RunTimes().accepting, RunTimes().most_at_once) == (0.0, 0.0, 0)


async def test_past_runs_are_real_ones_to_the_store(store):
    await finish_runs(store, AGENTS[:3], 7, ManualClock().now())
    opened = await open_store(f"sqlite+aiosqlite:///{store}", writer="check")
    run = await opened.read(RunById(DEFAULT_TENANT, RunId("run_past_4")))
    journal = await opened.read(JournalOfRun(DEFAULT_TENANT, RunId("run_past_4")))
    breaks = await opened.read(LedgerBreaks(DEFAULT_TENANT))
    await opened.close()

    assert run is not None
    assert (run.agent, run.result.tool_calls, run.status.value) == (AGENTS[1], 1, "completed")
    assert [entry.seq for entry in journal] == list(range(1, 8))
    assert journal[-1].kind is EntryKind.RUN_FINISHED
    assert not breaks
    reader = StoreReader(store)
    assert reader.by_status() == {"completed": 7}
    assert (reader.agents_done(), reader.registered(), reader.unfinished(), reader.last_seq()) == (3, 3, 0, 7)
    assert len(reader.times(after=5).created) == 2
    assert reader.start_of("run_past_4") == 0.0


async def test_a_past_longer_than_a_batch_is_written_whole(store, monkeypatch):
    monkeypatch.setattr("benchmarks.past._BATCH", 5)

    await finish_runs(store, AGENTS, 9, ManualClock().now())

    assert StoreReader(store).by_status() == {"completed": 9}


async def test_queued_runs_wait_for_agents_that_nobody_holds(store):
    await queue_runs(store, AGENTS, ManualClock().now())

    reader = StoreReader(store)
    assert (reader.unfinished(), reader.registered(), reader.agents_done()) == (4, 4, 0)
    assert reader.resident() == 0
    assert reader.resident(["bench:0"]) == 0


async def test_an_agent_is_resident_as_long_as_an_activation_owns_it(store):
    now = ManualClock().now()
    await finish_runs(store, AGENTS, 4, now)
    reader = StoreReader(store)
    assert reader.resident() == 0

    opened = await open_store(f"sqlite+aiosqlite:///{store}", writer="check")
    await opened.apply([ActivateAgent(agent, ActivationId(agent.agent_id), now) for agent in AGENTS[:2]])
    await opened.close()

    assert (reader.resident(), reader.resident(["bench:0", "bench:3"])) == (2, 1)


def test_waiting_ends_with_the_last_run_and_tells_the_most_residents(now):
    said = []

    most = wait_until_done(Left([2] * 43 + [0], [3, 9, 5, 4]), said.append, seconds=60)

    assert most == 9
    assert said == [f"2 runs are not finished yet, {count} agents are resident" for count in (9, 5)]


async def test_a_wave_of_which_a_run_was_cancelled_is_no_wave(store):
    now = ManualClock().now()
    await finish_runs(store, AGENTS, 4, now)
    check_completed(StoreReader(store))

    opened = await open_store(f"sqlite+aiosqlite:///{store}", writer="check")
    await opened.apply([SubmitRun(RunId("run_5"), AGENTS[0], Trigger(TriggerKind.API), now)])
    await opened.apply([CancelRun(DEFAULT_TENANT, RunId("run_5"), now)])
    await opened.close()

    with pytest.raises(WaveError, match="runs that should complete are cancelled: 1"):
        check_completed(StoreReader(store))


def test_waiting_for_ever_is_an_error_that_says_how_many_are_left(now):
    with pytest.raises(WaveError, match="3 runs are still not finished after 1 s"):
        wait_until_done(Left([3] * 99, [0] * 99), print, seconds=1)


def test_a_wave_of_which_a_trigger_was_refused_is_no_wave(monkeypatch):
    async def post_for(_url, paths, **_options):
        assert list(paths) == ["/v1/agents/a:1/triggers", "/v1/agents/a:2/triggers"]
        return LoadResult(accepted=1, refused=1)

    monkeypatch.setattr(wave, "post_for", post_for)

    with pytest.raises(WaveError, match="of 2 triggers 1 were accepted, 1 refused, 0 broken"):
        trigger_each("http://nowhere", ["a:1", "a:2"])
