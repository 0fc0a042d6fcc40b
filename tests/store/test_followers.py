"""Followers over a store in memory whose every answer takes a while, and a link that breaks: nothing is missed, nothing read in vain."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.errors import NotFoundError, RuntimeUnavailableError, StoreUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, RandomIds
from owlclaw_ray.store.followers import FollowerRegistry, RunFollower
from owlclaw_ray.store.queries import ChangedRuns, JournalPosition, ProgressOfRuns, RunProgress
from owlclaw_ray.store.run_updates import RunUpdates
from owlclaw_ray.testing.clock import ManualClock
from tests.contracts.store_commands import NOW

RUNS = ("run_0", "run_1", "run_2")
NEVER = 1e9


class Place:
    """Where commits are made: journals, the news of them, and a way to both that takes turns of the event loop and may break."""

    def __init__(self, clock, runs=RUNS):
        self.clock = clock
        self.news_of = RunUpdates(clock)
        self.journals = {run_id: [JournalEntry(1, EntryKind.RUN_QUEUED, NOW)] for run_id in runs}
        self.reads, self.polls = [], 0
        self.broken = 0
        self.down = False
        self.delay = 1
        self.poll_takes = 0.0

    def commit(self, run_id, kind=EntryKind.MODEL_REPLIED):
        journal = self.journals[run_id]
        if journal[-1].kind is not EntryKind.RUN_FINISHED:
            journal.append(JournalEntry(len(journal) + 1, kind, NOW))
            self.news_of.changed([run_id], ())

    def replace(self):
        """A new process takes over: nobody is known to it."""
        self.news_of = RunUpdates(self.clock)

    async def _way(self):
        await asyncio.sleep(0)
        if self.down or self.broken > 0:
            self.broken -= 1
            raise RuntimeUnavailableError("the way is broken")

    async def begin(self, box_id):
        await self._way()
        await self.news_of.begin(box_id)
        await self._way()

    async def follow(self, box_id, added, dropped):
        await self._way()
        known = await self.news_of.follow(box_id, added, dropped)
        await self._way()
        return known

    async def news(self, box_id, seconds):
        news_of = self.news_of
        asked = asyncio.ensure_future(news_of.news(box_id, seconds))
        while not asked.done():
            if news_of is not self.news_of or self.down:
                asked.cancel()
                raise RuntimeUnavailableError("its process died")
            await asyncio.sleep(0)
        await self._way()
        return asked.result()

    async def read(self, query):
        positions = query.positions
        if isinstance(query, ChangedRuns):
            self.polls += 1
            if self.poll_takes:
                await self.clock.sleep(self.poll_takes)
            return [each.run_id for each in positions if len(self.journals[each.run_id]) > each.after]
        assert isinstance(query, ProgressOfRuns)
        self.reads.append(list(positions))
        for _ in range(self.delay):
            await asyncio.sleep(0)
        if self.down:
            raise StoreUnavailableError("no way to the store")
        found = [self._watched(each) for each in positions]
        for _ in range(self.delay):
            await asyncio.sleep(0)
        return found

    def _watched(self, position):
        journal = self.journals.get(position.run_id)
        if journal is None:
            return None
        final = journal[-1].kind is EntryKind.RUN_FINISHED
        return RunProgress(tuple(journal[position.after :]), RunStatus.COMPLETED if final else RunStatus.RUNNING)


def following(place, clock, **options):
    async def places():
        return {"here": place}

    return FollowerRegistry(place, places, ids=RandomIds(), clock=clock, **{"poll_seconds": NEVER, **options})


class Reader:
    """Follows a run and keeps what it read."""

    def __init__(self, follows, run_id, after=0):
        self.run_id, self.after, self.seen, self.over = run_id, after, [], False
        self.task = asyncio.ensure_future(self._read(follows))

    async def _read(self, follows):
        async with follows.follow(DEFAULT_TENANT, self.run_id, self.after) as follower:
            while not self.over:
                try:
                    watched = await follower.next()
                except StoreUnavailableError:
                    await asyncio.sleep(0)
                    continue
                self.seen += [entry.seq for entry in watched.entries]
                self.over = watched.over


async def turns(number=30):
    for _ in range(number):
        await asyncio.sleep(0)


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


STEPS = st.one_of(
    st.tuples(st.just("commit"), st.integers(0, 2)),
    st.tuples(st.just("join"), st.integers(0, 2)),
    st.tuples(st.just("leave"), st.integers(0, 9)),
    st.tuples(st.just("break"), st.integers(1, 3)),
    st.tuples(st.just("replace"), st.just(0)),
    st.tuples(st.just("turns"), st.integers(0, 12)),
    st.tuples(st.just("delay"), st.integers(0, 20)),
)


@given(st.lists(STEPS, max_size=40))
async def test_no_follower_misses_an_entry_or_sees_one_twice_however_commits_readers_and_faults_interleave(steps):
    clock = ManualClock()
    place = Place(clock)
    follows, readers = following(place, clock), []
    for step, number in steps:
        match step:
            case "commit":
                place.commit(RUNS[number])
            case "join":
                readers.append(Reader(follows, RUNS[number], len(readers) % 2))
            case "leave" if readers:
                gone = readers.pop(number % len(readers))
                gone.task.cancel()
            case "break":
                place.broken = number
            case "replace":
                place.replace()
            case "turns":
                await turns(number)
            case "delay":
                place.delay = number
    place.broken = 0
    await all_read(readers, place, clock)
    for kind in (EntryKind.MODEL_REPLIED, EntryKind.RUN_FINISHED):
        for run_id in RUNS:
            place.commit(run_id, kind)
        await all_read(readers, place, clock)
    follows.close()

    assert all(reader.over for reader in readers)


async def all_read(readers, place, clock):
    """Without another commit, everybody reads everything that was committed so far."""
    for _ in range(20):
        await turns()
        if all(len(reader.seen) + reader.after >= len(place.journals[reader.run_id]) for reader in readers):
            break
        await clock.advance(0.5)
    await turns()
    for reader in readers:
        assert reader.seen == list(range(reader.after + 1, len(place.journals[reader.run_id]) + 1))


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def place(clock):
    return Place(clock)


async def test_what_is_committed_after_a_read_saw_the_store_and_before_it_returns_is_read_next():
    journal = [JournalEntry(1, EntryKind.RUN_QUEUED, NOW)]
    seen, returns = asyncio.Event(), asyncio.Event()

    async def read(position):
        found = tuple(journal[position.after :])
        seen.set()
        await returns.wait()
        return RunProgress(found, RunStatus.RUNNING)

    follower = RunFollower(JournalPosition(DEFAULT_TENANT, "run_0", 0), read)
    first = asyncio.create_task(follower.next())
    await seen.wait()
    journal.append(JournalEntry(2, EntryKind.RUN_STARTED, NOW))
    follower.news()
    returns.set()

    assert [entry.seq for entry in (await first).entries] == [1]
    assert [entry.seq for entry in (await follower.next(0)).entries] == [2]


async def test_followers_that_wait_read_nothing(place, clock):
    follows = following(place, clock)
    readers = [Reader(follows, RUNS[at % 3]) for at in range(30)]
    await until(lambda: all(reader.seen for reader in readers))
    await turns()
    reads = len(place.reads)

    await clock.advance(3_600)

    assert (len(place.reads), place.polls) == (reads, 0)
    follows.close()


async def test_an_event_is_read_once_for_all_followers_of_its_run_and_for_no_others(place, clock):
    follows = following(place, clock)
    readers = [Reader(follows, "run_0" if at else "run_1") for at in range(30)]
    await until(lambda: all(reader.seen for reader in readers))
    await turns()
    place.reads.clear()

    place.commit("run_0")
    await until(lambda: all(len(reader.seen) == 2 for reader in readers[1:]))

    assert [[position.run_id for position in read] for read in place.reads] == [["run_0"]]
    assert readers[0].seen == [1]
    follows.close()


async def test_many_followers_that_come_at_once_are_read_for_in_few_queries(clock):
    place = Place(clock, [f"run_{at}" for at in range(1_000)])
    follows = following(place, clock)
    readers = [Reader(follows, run_id) for run_id in place.journals]
    await until(lambda: all(reader.seen for reader in readers))

    assert len(place.reads) <= 8
    follows.close()


async def test_what_nobody_told_of_is_found_by_the_slow_poll_in_one_query(clock):
    place = Place(clock, [f"run_{at}" for at in range(100)])
    follows = following(place, clock, poll_seconds=30)
    readers = [Reader(follows, run_id) for run_id in place.journals]
    await until(lambda: all(reader.seen for reader in readers))
    await turns()
    reads = len(place.reads)

    place.journals["run_7"].append(JournalEntry(2, EntryKind.MODEL_REPLIED, NOW))
    await clock.advance(29)
    assert (place.polls, readers[7].seen) == (0, [1])
    await clock.advance(6)
    await until(lambda: readers[7].seen == [1, 2])

    assert (place.polls, len(place.reads)) == (1, reads + 1)
    follows.close()


async def test_while_another_cluster_runs_the_agents_its_commits_are_found_within_a_second_and_then_slowly_again(clock):
    place, standby = Place(clock, [f"run_{at}" for at in range(100)]), True

    async def stands_by():
        return standby

    follows = following(place, clock, poll_seconds=30, stands_by=stands_by)
    readers = [Reader(follows, run_id) for run_id in place.journals]
    await until(lambda: all(reader.seen for reader in readers))
    await turns()

    place.journals["run_7"].append(JournalEntry(2, EntryKind.MODEL_REPLIED, NOW))
    await clock.advance(1)
    await until(lambda: readers[7].seen == [1, 2])
    assert place.polls == 1

    standby = False
    await clock.advance(5)
    polls = place.polls
    await clock.advance(20)
    assert place.polls == polls
    follows.close()


async def test_polls_take_a_tenth_of_the_time_at_most_however_long_one_takes(clock):
    place = Place(clock)
    place.poll_takes = 3.0

    async def stands_by():
        return True

    follows = following(place, clock, stands_by=stands_by)
    reader = Reader(follows, "run_0")
    await until(lambda: reader.seen)
    await turns()

    await clock.advance(100)

    assert 3 <= place.polls <= 4
    follows.close()


async def test_the_place_of_a_new_node_is_heard_of_too(place, clock):
    other = Place(clock)
    other.journals = place.journals
    places = {"here": place}

    async def all_places():
        return dict(places)

    follows = FollowerRegistry(place, all_places, ids=RandomIds(), clock=clock, poll_seconds=NEVER)
    reader = Reader(follows, "run_0")
    await until(lambda: reader.seen)

    places["there"] = other
    await clock.advance(5)
    await turns()
    other.commit("run_0")
    await until(lambda: reader.seen == [1, 2])

    del places["there"]
    await clock.advance(5)
    await turns()
    place.commit("run_0")
    await until(lambda: reader.seen == [1, 2, 3])
    follows.close()


async def test_a_place_that_does_not_answer_keeps_nobody_from_following(place, clock):
    class Stuck(Place):
        async def begin(self, box_id):
            await asyncio.Event().wait()

    async def places():
        return {"here": place, "there": Stuck(clock)}

    follows = FollowerRegistry(place, places, ids=RandomIds(), clock=clock, poll_seconds=NEVER)
    reader = Reader(follows, "run_0")
    await until(lambda: reader.seen)
    place.commit("run_0")
    await until(lambda: reader.seen == [1, 2])
    follows.close()


async def test_following_a_run_that_there_is_not_says_so_and_leaves_nothing_behind(place, clock):
    follows = following(place, clock)
    with pytest.raises(NotFoundError):
        async with follows.follow(DEFAULT_TENANT, "run_none") as follower:
            await follower.next()

    assert not follows._followers
    follows.close()


async def test_a_follower_reports_the_store_that_does_not_answer_and_reads_on_later(place, clock):
    follows = following(place, clock)
    place.down = True
    async with follows.follow(DEFAULT_TENANT, "run_0") as follower:
        with pytest.raises(StoreUnavailableError):
            await follower.next()
        place.down = False
        assert [entry.seq for entry in (await follower.next()).entries] == [1]
    follows.close()


async def test_next_returns_without_news_after_its_time_and_when_nudged(place, clock):
    follows = following(place, clock)
    async with follows.follow(DEFAULT_TENANT, "run_0", 1) as follower:
        assert await follower.next(0) == RunProgress((), RunStatus.RUNNING)
        assert await follower.next(0.001) == RunProgress((), RunStatus.RUNNING)
        waiting = asyncio.ensure_future(follower.next())
        await turns()
        assert not waiting.done()
        follower.nudge()
        assert await waiting == RunProgress((), RunStatus.RUNNING)
    follows.close()


async def test_what_is_no_longer_followed_is_not_told_of(place, clock):
    follows = following(place, clock)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(follows.follow(DEFAULT_TENANT, "run_0"))
    async with follows.follow(DEFAULT_TENANT, "run_1"):
        assert set(place.news_of._followers) == {"run_1"}
    follows.close()


async def test_whoever_does_not_ask_for_its_news_any_more_is_forgotten_and_told_so(clock):
    news = RunUpdates(clock)
    await news.begin("gone")
    await news.follow("gone", ["run_0"], ())
    await clock.advance(31)
    await news.begin("new")

    assert not await news.follow("gone", ["run_1"], ())
    assert await news.news("gone", 5) is None
    assert await news.follow("new", ["run_0"], ())
    news.changed(["run_0", "run_1", "run_0"], ())
    assert await news.news("new", 5) == ("run_0",)
