"""Where the parts are of which the cluster has one, without Ray: actors are names, and a test says on which node each is."""

from __future__ import annotations

import asyncio

import pytest

from actors.remote import DIRECTORY, SCHEDULER, ProcessLocation
from actors.shared_parts import LOOK_SECONDS, MOVE_SECONDS, SharedParts
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.placement.lease import EXPIRE_SECONDS, GIVE_UP_SECONDS, RENEW_SECONDS
from owlclaw_ray.placement.node_fence import RowAge
from owlclaw_ray.testing.clock import ManualClock

HERE, THERE = "here", "there"


class Ray:
    """The actors of two nodes, and their Keepers."""

    def __init__(self):
        self.clock, self.made = ManualClock(), 0
        self.nodes, self.names = {}, {}
        """Where each living actor is, and which one has a name."""
        self.renewed = {HERE: 0.0, THERE: 0.0}
        self.cut, self.away = set(), set()
        self.questions = 0

    def make(self, name, node=HERE):
        if self.names.get(name) not in self.nodes:
            self.made += 1
            actor = f"{name}-{self.made}"
            self.nodes[actor], self.names[name] = node, actor
        return self.names[name]

    def kill(self, actor):
        self.nodes.pop(actor, None)

    async def registered(self, actor):
        return ProcessLocation(self.nodes[actor], 1) if actor in self.nodes else None

    def find(self, name, _namespace):
        return self.names[name] if self.names.get(name) in self.nodes else None

    def keeper(self, _part, _namespace, node):
        async def unrenewed():
            self.questions += 1
            if node in self.away:
                raise RuntimeUnavailableError("the keeper is being restarted")
            if node not in self.cut:
                self.renewed[node] = self.clock.monotonic()
            return self.clock.monotonic() - self.renewed[node]

        class Named:
            class call:  # noqa: N801 - as NamedActor has it
                pass

        Named.call.unrenewed = staticmethod(unrenewed)
        return Named

    def parts(self):
        own = RowAge(self.keeper(None, "", HERE).call.unrenewed, self.clock)
        make = {name: lambda name=name: self.make(name) for name in (DIRECTORY, SCHEDULER)}
        return SharedParts(make, "owlclaw", own, self.clock)

    def home(self, name):
        return self.nodes.get(self.names[name])

    async def pass_time(self, parts, seconds):
        async def look():
            while True:
                await parts.tick()
                await self.clock.sleep(0.5)

        looking = asyncio.create_task(look())
        await self.clock.advance(seconds)
        looking.cancel()
        await asyncio.wait({looking})


async def at_once(function, *arguments):
    return function(*arguments)


@pytest.fixture
def ray(monkeypatch):
    ray = Ray()
    for name in ("kill", "registered", "find"):
        monkeypatch.setattr(f"actors.shared_parts.{name}", getattr(ray, name))
    monkeypatch.setattr("actors.shared_parts.NamedActor", ray.keeper)
    monkeypatch.setattr("asyncio.to_thread", at_once)  # a thread takes its time whatever the clock says
    monkeypatch.setattr("actors.shared_parts.here", lambda: HERE)
    return ray


@pytest.fixture
def elsewhere(ray):
    """The parts as a root sees them that came later than those."""
    for name in (DIRECTORY, SCHEDULER):
        ray.make(name, THERE)
    return ray.parts()


def homes(ray):
    return {ray.home(DIRECTORY), ray.home(SCHEDULER)}


async def test_parts_stay_on_a_node_whose_row_is_renewed(ray, elsewhere):
    await ray.pass_time(elsewhere, 60)

    assert homes(ray) == {THERE}
    assert ray.made == 2


async def test_parts_leave_a_node_that_does_not_reach_the_store_before_its_directory_gives_all_agents_up(
    ray, elsewhere
):
    await ray.pass_time(elsewhere, 10)
    ray.cut = {THERE}

    await ray.pass_time(elsewhere, MOVE_SECONDS - 1)
    assert homes(ray) == {THERE}
    await ray.pass_time(elsewhere, 2.0)

    assert homes(ray) == {HERE}
    assert {*elsewhere.actors.values()} == {*ray.nodes}
    assert MOVE_SECONDS + 2 * LOOK_SECONDS + RENEW_SECONDS <= GIVE_UP_SECONDS


async def test_parts_stay_on_a_node_whose_keeper_was_held_up_for_a_moment(ray, elsewhere):
    await ray.pass_time(elsewhere, 10)

    for _ in range(5):
        ray.cut = {THERE}
        await ray.pass_time(elsewhere, MOVE_SECONDS)  # up to the first look that finds it cut
        ray.cut = set()
        await ray.pass_time(elsewhere, 1.0)

    assert (homes(ray), ray.made) == ({THERE}, 2)


async def test_two_looks_count_only_in_a_row(ray, elsewhere):
    await ray.pass_time(elsewhere, 10)
    ray.cut = {THERE}
    await ray.pass_time(elsewhere, MOVE_SECONDS)  # the last look of it finds the node cut
    ray.away = {HERE}
    await ray.pass_time(elsewhere, 0.4)  # at the next look nobody says how this node is
    ray.away = set()
    await ray.pass_time(elsewhere, 0.4)

    assert (homes(ray), ray.made) == ({THERE}, 2)
    await ray.pass_time(elsewhere, 0.4)
    assert homes(ray) == {HERE}


async def test_parts_stay_where_they_are_while_nobody_reaches_the_store(ray, elsewhere):
    await ray.pass_time(elsewhere, 10)
    ray.cut = {HERE, THERE}

    await ray.pass_time(elsewhere, 60)

    assert homes(ray) == {THERE}


async def test_a_keeper_that_is_being_restarted_has_time_for_it(ray, elsewhere):
    await ray.pass_time(elsewhere, 10)
    ray.away = {THERE}
    await ray.pass_time(elsewhere, EXPIRE_SECONDS - 1)
    assert homes(ray) == {THERE}

    await ray.pass_time(elsewhere, 2)

    assert homes(ray) == {HERE}


async def test_parts_that_another_root_has_fetched_are_left_to_it(ray, elsewhere):
    await ray.pass_time(elsewhere, 10)
    for name, actor in tuple(ray.names.items()):
        ray.kill(actor)
        ray.make(name, "third")
    ray.renewed["third"], ray.cut = 0.0, {THERE}

    await ray.pass_time(elsewhere, 20)

    assert homes(ray) == {"third"}
    assert {*elsewhere.actors.values()} == {*ray.nodes}


async def test_nobody_is_asked_anything_while_all_parts_are_here(ray):
    parts = ray.parts()

    await ray.pass_time(parts, 60)

    assert homes(ray) == {HERE}
    assert not ray.questions


async def test_a_part_that_is_missing_is_made(ray, elsewhere):
    ray.kill(ray.names[SCHEDULER])

    elsewhere.complete({"directory"})

    assert (ray.home(DIRECTORY), ray.home(SCHEDULER)) == (THERE, HERE)


async def test_a_node_that_does_not_reach_the_store_makes_no_part(ray, elsewhere):
    await ray.pass_time(elsewhere, 10)
    ray.cut = {HERE, THERE}
    await ray.pass_time(elsewhere, MOVE_SECONDS + 1)
    ray.kill(ray.names[SCHEDULER])

    elsewhere.complete({"directory"})

    assert ray.home(SCHEDULER) is None
