"""Who holds the lease of a store, on clocks that have nothing to do with one another."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.placement.lease import GIVE_UP_SECONDS, LeaseHolder, LeaseRole
from owlclaw_ray.store.commands import ClusterLease, HoldLease, LeaseHeld
from owlclaw_ray.store.commands.lease import EXPIRE_SECONDS
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock
from tests.store.sql.test_older_clusters import hold_as_older_version


class Line:
    """The way of a cluster to the store, until it is cut."""

    def __init__(self, store):
        self._store, self.cut, self.deaf = store, False, False

    async def apply(self, commands):
        if self.cut:
            raise StoreUnavailableError("the line is cut")
        outcomes = await self._store.apply(commands)
        if self.deaf:
            raise StoreUnavailableError("the answer is lost")
        return outcomes


class Cluster:
    """The Directory of a cluster that wants the lease; `told` is what it was told to do."""

    def __init__(self, name, store, start, directory=""):
        self.clock, self.line, self.told, self._start = ManualClock(), Line(store), [], start
        began, ended, superseded = map(self._note, ("begin", "end", "superseded"))
        self.directory = directory or f"dir-{name}"
        self.lease = LeaseHolder(
            self.line, name, self.directory, self.clock, began=began, ended=ended, superseded=superseded
        )

    def _note(self, what):
        async def note():
            self.told.append(what)

        return note

    async def tick(self, seconds=0.0):
        """Have that many seconds pass on its clock, and ask for the lease."""
        await self.clock.advance(self._start + seconds)
        self._start = 0.0
        await self.lease.tick()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@pytest.fixture
async def store(tmp_path):
    store = await open_store(f"sqlite:///{tmp_path / 'owlclaw.db'}", writer="keeper")
    yield store
    await store.close()


@pytest.fixture
def east(store):
    return Cluster("east", store, 1_000.0)


@pytest.fixture
def west(store):
    return Cluster("west", store, 5.0)


async def test_the_first_runs_the_agents_and_the_other_stands_by_as_long_as_the_lease_is_renewed(east, west):
    for _ in range(20):
        await east.tick(1.0)
        await west.tick(1.0)

    assert (east.told, west.told) == (["begin"], [])
    assert (east.lease.held, west.lease.held) == (True, False)
    assert west.lease.holder == "east"


async def test_a_lease_that_stands_still_is_taken_after_its_time_and_not_sooner(east, west):
    await east.tick()
    await west.tick()

    await west.tick(EXPIRE_SECONDS - 0.1)
    assert not west.lease.held
    await west.tick(0.2)

    assert (west.lease.held, west.told) == (True, ["begin"])
    await east.tick(1.0)
    assert (east.lease.held, east.told) == (False, ["begin", "end"])


async def test_who_cannot_renew_it_gives_up_before_another_may_take_it(east, west):
    await east.tick()
    await west.tick()
    east.line.cut = True

    await east.tick(GIVE_UP_SECONDS - 0.1)
    assert east.lease.held
    await east.tick(0.1)

    assert GIVE_UP_SECONDS < EXPIRE_SECONDS
    assert (east.lease.held, east.told) == (False, ["begin", "end"])
    await west.tick(GIVE_UP_SECONDS)
    assert not west.lease.held


async def test_one_that_is_given_back_is_taken_at_once(east, west):
    await east.tick()
    await west.tick()

    await east.lease.release()
    await west.tick()

    assert west.told == ["begin"]


async def test_who_gets_no_answer_gives_up_as_soon_as_who_is_refused_one(store):
    clock, told, asked = ManualClock(), [], []

    class Silent(Line):
        async def apply(self, commands):
            if not self.cut:
                return await super().apply(commands)
            asked.append(commands)
            return await asyncio.Event().wait()

    async def note():
        told.append(clock.monotonic())

    line = Silent(store)
    lease = LeaseHolder(line, "east", "dir-east", clock, began=note, ended=note, superseded=note)
    await lease.tick()
    line.cut = True
    while lease.held:
        waiting = asyncio.create_task(lease.tick())
        await asyncio.sleep(0)
        while not waiting.done():
            await clock.advance(0.5)
        if lease.held:
            await clock.advance(1.0)
    await clock.advance(0)

    assert len(asked) == 1
    assert told == [0.0, GIVE_UP_SECONDS]


@pytest.fixture
def slow():
    """A cluster whose store answers every other question late, and what it was told to do."""
    clock, told = ManualClock(), []

    class Slow:
        late, asked = 0.0, 0

        async def apply(self, commands):
            self.asked += 1
            await clock.sleep(self.late * (self.asked % 2))
            return [LeaseHeld(ClusterLease("east", 1, self.asked)) for _ in commands]

    async def note():
        told.append(clock.monotonic())

    line = Slow()
    return clock, line, LeaseHolder(line, "east", "dir-east", clock, began=note, ended=note, superseded=note), told


async def ticks(clock, lease, seconds):
    async def tick():
        while True:
            await lease.tick()
            await clock.sleep(1.0)

    ticking = asyncio.create_task(tick())
    for _ in range(int(seconds * 4)):
        await clock.advance(0.25)
    ticking.cancel()
    await asyncio.wait({ticking})


async def test_an_answer_that_is_late_renews_the_lease_as_of_when_it_was_asked_for(slow):
    clock, line, lease, told = slow
    await ticks(clock, lease, 1.0)
    line.late = 2.5
    await ticks(clock, lease, 60.0)

    assert lease.held
    assert len(told) == 1


async def test_an_answer_that_comes_after_the_lease_would_have_been_given_up_grants_nothing(slow):
    clock, line, lease, told = slow
    line.late = GIVE_UP_SECONDS
    await ticks(clock, lease, GIVE_UP_SECONDS)

    assert (lease.held, told) == (False, [])


async def test_what_fails_at_a_change_is_tried_again(store):
    clock, tries = ManualClock(), []

    async def begin():
        tries.append("begin")
        if len(tries) == 1:
            raise StoreUnavailableError("not now")

    lease = LeaseHolder(store, "east", "dir-east", clock, began=begin, ended=begin, superseded=begin)
    for _ in range(3):
        await lease.tick()
        for _ in range(3):
            await asyncio.sleep(0)

    assert tries == ["begin", "begin"]


async def test_who_is_cut_off_for_a_moment_keeps_it(east, west):
    await east.tick()
    east.line.cut = True
    await east.tick(GIVE_UP_SECONDS / 2)
    east.line.cut = False

    await east.tick(GIVE_UP_SECONDS / 4)

    assert (east.lease.held, east.told) == (True, ["begin"])


async def test_a_change_that_comes_while_one_is_carried_out_waits_for_it(store):
    gate, clock, told = asyncio.Event(), ManualClock(), []

    async def begin():
        told.append("begin")
        await gate.wait()
        told.append("begun")

    async def end():
        told.append("end")

    lease = LeaseHolder(store, "east", "dir-east", clock, began=begin, ended=end, superseded=end)
    await lease.tick()
    await asyncio.sleep(0)
    assert isinstance(
        (await store.apply([HoldLease("west", "dir-west", 2, ClusterLease("east", 1, 0, "dir-east", 1))]))[0], LeaseHeld
    )
    await lease.tick()
    assert told == ["begin"]
    gate.set()
    for _ in range(5):
        await asyncio.sleep(0)

    assert told == ["begin", "begun", "end"]


async def test_a_cluster_that_stands_back_gives_its_agents_up_and_the_other_takes_the_lease_at_once(east, west):
    await east.tick()
    await west.tick()
    await east.lease.stand_back()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await west.tick(1.0)

    assert east.told == ["begin", "end"]
    assert west.told == ["begin"]


async def test_a_cluster_that_stands_back_gives_its_agents_up_also_if_the_answer_is_lost(east, monkeypatch):
    await east.tick()

    async def apply(commands):
        raise StoreUnavailableError("the answer was lost")

    monkeypatch.setattr(east.lease, "_store", SimpleNamespace(apply=apply))
    with pytest.raises(StoreUnavailableError):
        await east.lease.stand_back()
    await settle(east)

    assert (east.lease.role, east.told) == (LeaseRole.STANDBY, ["begin", "end"])


async def test_a_cluster_that_stood_back_asks_for_the_lease_again(east):
    await east.tick()
    await east.lease.stand_back()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await east.tick(1.0)

    assert east.lease.held
    assert east.told == ["begin", "end", "begin"]


async def settle(cluster):
    """Let what follows from an answer be carried out."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_cluster_that_hands_over_keeps_its_agents_until_it_says_that_they_are_gone(east, west):
    await east.tick()
    await west.tick()
    await east.lease.hand_over()
    await settle(east)
    await west.tick(1.0)

    assert (east.lease.role, east.told) == (LeaseRole.LEAVING, ["begin"])
    assert (west.told, west.lease.leaver) == (["begin"], "east")

    await east.lease.stand_back()
    await settle(east)
    await west.tick(1.0)
    assert (east.lease.role, east.told) == (LeaseRole.STANDBY, ["begin", "end"])
    assert (west.lease.role, west.lease.leaver) == (LeaseRole.HOLDER, "")


async def test_a_cluster_that_is_leaving_does_not_ask_for_the_lease(east):
    await east.tick()
    await east.lease.hand_over()

    await east.tick(1.0)

    assert (east.lease.role, east.lease.held, east.told) == (LeaseRole.LEAVING, False, ["begin"])


async def test_a_cluster_whose_handover_was_carried_out_but_not_answered_is_leaving_when_it_tries_again(east, west):
    await east.tick()
    await west.tick()
    east.line.deaf = True
    await east.lease.hand_over()
    assert east.lease.role is LeaseRole.HOLDER
    await west.tick(1.0)
    east.line.deaf = False

    await east.lease.hand_over()

    assert (east.lease.role, west.lease.role) == (LeaseRole.LEAVING, LeaseRole.HOLDER)


async def test_a_cluster_that_cannot_hand_over_gives_its_agents_up_before_another_may_run_them(east):
    await east.tick()
    east.line.cut = True
    for _ in range(int(GIVE_UP_SECONDS)):
        assert east.told == ["begin"]
        await east.clock.advance(1.0)
        await east.lease.hand_over()
        await settle(east)

    assert (east.lease.role, east.told) == (LeaseRole.STANDBY, ["begin", "end"])


async def test_a_cluster_is_to_hand_over_while_another_is_leaving_and_goes_on_holding_the_lease_until_that_has_left(
    store, east, west
):
    await east.tick()
    await west.tick()
    await east.lease.hand_over()
    await west.tick(1.0)
    for _ in range(int(2 * GIVE_UP_SECONDS)):
        await west.clock.advance(1.0)
        await west.lease.hand_over()
        assert west.lease.role is LeaseRole.HOLDER

    await east.lease.stand_back()
    await west.lease.hand_over()

    assert (west.lease.role, west.told) == (LeaseRole.LEAVING, ["begin"])


async def test_a_cluster_that_lost_the_lease_before_it_could_hand_it_over_gives_its_agents_up(east, west, store):
    await east.tick()
    (outcome,) = await store.apply([HoldLease("nobody", "dir", 0)])
    await store.apply([HoldLease("west", "dir-west", outcome.lease.term + 1, outcome.lease)])

    await east.lease.hand_over()
    await settle(east)

    assert (east.lease.role, east.told) == (LeaseRole.STANDBY, ["begin", "end"])


async def test_a_directory_that_ray_made_anew_is_leaving_too_where_the_one_before_had_handed_over(
    east, west, successor
):
    await east.tick()
    await west.tick()
    await east.lease.hand_over()
    await west.tick(1.0)

    await successor.tick()

    assert (successor.lease.role, successor.told) == (LeaseRole.LEAVING, [])
    await successor.lease.stand_back()
    await west.tick(1.0)
    assert west.lease.leaver == ""


@pytest.fixture
def successor(store):
    """Another Directory of the cluster `east`, which Ray makes because it does not reach the one before."""
    return Cluster("east", store, 70.0, directory="dir-successor")


async def test_a_new_directory_of_the_cluster_supersedes_the_one_before_at_once_and_for_good(east, successor):
    await east.tick()
    await successor.tick()
    assert (successor.lease.held, successor.told) == (True, ["begin"])

    for _ in range(20):
        await east.tick(1.0)
        await successor.tick(1.0)

    assert (east.lease.role, east.told) == (LeaseRole.SUPERSEDED, ["begin", "superseded"])
    assert (successor.lease.held, successor.told) == (True, ["begin"])
    assert (await lease_of(east)).term == successor.lease.term == 2


async def test_who_was_superseded_does_not_take_the_lease_when_the_other_has_given_it_back_or_is_gone(east, successor):
    await east.tick()
    await successor.tick()
    await east.tick(1.0)
    await successor.lease.release()

    await east.tick(10 * EXPIRE_SECONDS)
    await east.tick(1.0)

    assert not east.lease.held
    assert (await lease_of(east)).cluster == ""


async def test_who_had_the_lease_and_finds_it_given_back_by_another_one_is_superseded_too(east, successor):
    await east.tick()
    await successor.tick()
    await successor.lease.release()

    await east.tick(1.0)

    assert (east.lease.role, east.told) == (LeaseRole.SUPERSEDED, ["begin", "superseded"])


async def test_one_that_was_superseded_before_it_could_begin_never_begins(store):
    line, told = Held(store), []
    lease = holder(line, "dir-first", told)
    await asked(lease)
    await line.pass_on()  # it is told that nobody has the lease
    claim = line.waiting
    await asked(other := holder(store, "dir-other", told))
    assert other.held

    await claim.pass_on()
    await asked(lease)

    assert lease.role is LeaseRole.SUPERSEDED
    assert told == ["dir-other: begin", "dir-first: superseded"]


async def test_a_renewal_that_was_under_way_when_another_took_over_does_not_take_it_back(store):
    line, told = Held(store), []
    line.open = True
    first, second = holder(line, "dir-first", told), holder(store, "dir-second", told)
    await asked(first)
    line.open = False
    await asked(first)
    renewal = line.waiting
    await asked(second)

    await renewal.pass_on()
    await asked(first)
    await asked(second)

    assert (first.role, second.role) == (LeaseRole.SUPERSEDED, LeaseRole.HOLDER)
    assert told == ["dir-first: begin", "dir-second: begin", "dir-first: superseded"]


async def test_the_first_claim_of_a_directory_that_comes_late_does_not_take_the_lease_from_its_successor(store):
    """It is still on its way, by another Keeper, when the process is gone and Ray has made the next one."""
    line, told = Held(store), []
    line.open = True
    await asked(holder(line, "dir-old", told))
    line.open = False
    gone = holder(line, "dir-gone", told)
    await asked(gone)
    await line.pass_on()  # it is told of the term of the old one
    late = line.waiting
    successor = holder(store, "dir-successor", told)
    await asked(successor)

    await late.pass_on()
    await asked(successor)

    assert successor.held
    assert (await store.apply([HoldLease("east", "dir-x", 0)]))[0].lease.directory == "dir-successor"


@pytest.mark.parametrize("lost", ["the first claim", "a renewal"])
async def test_an_answer_that_is_lost_changes_nothing(east, successor, lost):
    await east.tick()
    if lost == "a renewal":
        await successor.tick()
    successor.line.deaf = True
    await successor.tick(1.0)
    successor.line.deaf = False

    await successor.tick(1.0)
    await east.tick(2.0)
    await successor.tick(1.0)

    assert (successor.lease.held, successor.told) == (True, ["begin"])
    assert (east.lease.role, east.told) == (LeaseRole.SUPERSEDED, ["begin", "superseded"])
    assert (await lease_of(east)).term == 2


async def test_of_two_new_directories_that_take_over_together_one_stays(store):
    told = []
    line = Held(store)
    first, second = holder(line, "dir-first", told), holder(store, "dir-second", told)
    await asked(holder(store, "dir-old", told))
    await asked(first)
    await line.pass_on()  # both have seen the same term
    claim = line.waiting
    await asked(second)
    await claim.pass_on()
    for _ in range(3):
        await asked(first)
        await asked(second)

    assert (first.role, second.role) == (LeaseRole.SUPERSEDED, LeaseRole.HOLDER)


async def test_a_standby_takes_the_lease_under_the_term_that_is_next_then(east, west, store):
    await east.tick()
    await west.tick()
    for number in range(3):
        await Cluster("east", store, 1.0, directory=f"dir-{number}").tick()
    await west.tick(1.0)

    await west.tick(EXPIRE_SECONDS)

    assert (west.lease.held, west.lease.term) == (True, 5)
    await east.tick(1.0)
    assert east.lease.role is LeaseRole.STANDBY  # it may not have been superseded, but slow
    await west.lease.release()
    await east.tick(1.0)
    assert east.lease.held


async def test_a_directory_that_could_not_reach_the_store_for_long_goes_on_if_nobody_superseded_it(east):
    await east.tick()
    east.line.cut = True
    await east.tick(GIVE_UP_SECONDS)
    east.line.cut = False

    await east.tick(60.0)

    assert (east.lease.term, east.told) == (1, ["begin", "end", "begin"])


async def test_a_lease_of_a_version_that_knows_no_directories_is_taken_by_the_first_of_the_cluster(store, east, west):
    await hold_as_older_version(store, "east")
    await west.tick()
    assert not west.lease.held

    await east.tick()

    assert (east.lease.held, east.lease.term) == (True, 1)


async def test_a_cluster_of_a_version_that_knows_no_directories_keeps_the_lease_that_it_took_from_a_newer_one(
    store, east
):
    await east.tick()
    await hold_as_older_version(store, "west")

    await east.tick(1.0)
    assert (east.lease.role, east.lease.holder) == (LeaseRole.STANDBY, "west")

    await east.tick(EXPIRE_SECONDS)
    assert (east.lease.held, east.lease.term) == (True, 2)


class Held:
    """A way to the store on which commands wait until they are passed on, unless it is open."""

    def __init__(self, store):
        self._store, self.open = store, False
        self.waiting = None

    async def apply(self, commands):
        if self.open:
            return await self._store.apply(commands)
        self.waiting = Waiting(self._store, commands)
        return await self.waiting.answer

    async def pass_on(self):
        await self.waiting.pass_on()


class Waiting:
    """Commands that are on their way."""

    def __init__(self, store, commands):
        self._store, self._commands = store, commands
        self.answer = asyncio.get_running_loop().create_future()

    async def pass_on(self):
        self.answer.set_result(await self._store.apply(self._commands))
        await turns()


def holder(line, directory, told):
    """Return what asks for the lease for that Directory of the cluster `east`."""

    def note(what):
        async def note():
            told.append(f"{directory}: {what}")

        return note

    began, ended, superseded = map(note, ("begin", "end", "superseded"))
    return LeaseHolder(line, "east", directory, ManualClock(), began=began, ended=ended, superseded=superseded)


async def asked(lease):
    """Have it ask once; if there is no answer yet, it waits on."""
    asking = asyncio.create_task(lease.tick())
    while not asking.done():
        waiting = getattr(lease._store, "waiting", None)
        if waiting is not None and not waiting.answer.done():
            await lease._clock.advance(2.0)
        await asyncio.sleep(0)
    await turns()


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


async def lease_of(cluster):
    """Return the lease as it is."""
    return (await cluster.line._store.apply([HoldLease("nobody", "dir-nobody", 0)]))[0].lease
