import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.kernel.fair_queue import FairQueue


class Office:
    """Callers that take places and hold them until they are told to leave."""

    def __init__(self, places, each):
        self.queue = FairQueue(places, each)
        self.served = []
        self.inside = {}

    def enter(self, name):
        return asyncio.create_task(self._visit(name))

    async def _visit(self, name):
        async with self.queue.place(("default", name[0])):
            self.served.append(name)
            self.inside[name] = asyncio.Event()
            try:
                await self.inside[name].wait()
            finally:
                del self.inside[name]

    async def leave(self, name):
        self.inside[name].set()
        await settle()


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def office():
    return Office(places=4, each=2)


async def crowd(office, *names):
    tasks = {name: office.enter(name) for name in names}
    await settle()
    return tasks


async def test_one_owner_never_has_more_than_its_share_even_if_places_are_free(office):
    await crowd(office, "a1", "a2", "a3", "a4", "a5")

    assert office.served == ["a1", "a2"]


async def test_another_owner_gets_a_place_at_once_beside_a_greedy_one(office):
    await crowd(office, *(f"a{number}" for number in range(50)), "b0")

    assert office.served == ["a0", "a1", "b0"]


async def test_places_that_become_free_go_to_owners_that_hold_none_and_then_round_all(office):
    await crowd(office, "a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "d1")

    for name in ("a1", "b1", "a2", "b2", "c1"):
        await office.leave(name)

    assert office.served == ["a1", "a2", "b1", "b2", "c1", "d1", "a3", "b3", "c2"]


async def test_each_owner_is_served_in_its_own_order(office):
    await crowd(office, "a1", "a2", "a3", "a4")
    for name in ("a2", "a1"):
        await office.leave(name)

    assert office.served == ["a1", "a2", "a3", "a4"]


async def test_who_gives_up_waiting_leaves_the_turn_to_the_next(office):
    tasks = await crowd(office, "a1", "a2", "a3", "a4")

    tasks["a3"].cancel()
    await settle()
    waiting = office.queue.waiting
    await office.leave("a1")

    assert waiting == 1
    assert office.served == ["a1", "a2", "a4"]


async def test_who_gives_up_just_when_its_turn_comes_leaves_the_place_free(office):
    tasks = await crowd(office, "a1", "a2", "a3", "a4")

    office.inside["a1"].set()
    while "a1" in office.inside:
        await asyncio.sleep(0)
    tasks["a3"].cancel()
    await settle()

    assert office.served == ["a1", "a2", "a4"]


async def test_a_place_is_free_again_when_its_holder_is_cancelled_or_fails(office):
    tasks = await crowd(office, "a1", "a2", "a3")

    tasks["a1"].cancel()
    await settle()

    assert office.served == ["a1", "a2", "a3"]


async def test_who_has_a_place_keeps_it_when_there_are_to_be_fewer(office):
    await crowd(office, "a1", "a2", "b1", "b2", "c1")

    office.queue.resize(2, 1)
    for name in ("a1", "a2", "b1"):
        await office.leave(name)
    fewer = list(office.served)
    office.queue.resize(3, 1)
    await crowd(office, "d1")

    assert fewer == ["a1", "a2", "b1", "b2", "c1"]
    assert office.served[5:] == ["d1"]
    assert office.queue.held == 3


async def test_places_that_are_added_are_taken_at_once(office):
    await crowd(office, "a1", "a2", "a3", "a4", "a5")

    office.queue.resize(6, 4)
    await settle()

    assert office.served == ["a1", "a2", "a3", "a4"]
    assert not office.queue.has_place(("default", "a"))
    assert office.queue.has_place(("default", "b"))


STEP = st.one_of(
    st.tuples(st.just("enter"), st.sampled_from("abc")),
    st.tuples(st.just("resize"), st.integers(1, 5)),
    st.tuples(st.sampled_from(["leave", "give up"]), st.integers(0, 30)),
)


@given(places=st.integers(1, 5), each=st.integers(1, 4), steps=st.lists(STEP, max_size=40))
def test_places_are_never_exceeded_and_never_left_empty_while_somebody_may_have_one(places, each, steps):
    async def scenario():
        office, tasks, most = Office(places, each), {}, places
        for number, (step, choice) in enumerate(steps):
            before = len(office.inside)
            if step == "enter":
                tasks[f"{choice}{number}"] = office.enter(f"{choice}{number}")
            elif step == "leave" and office.inside:
                office.inside[sorted(office.inside)[choice % len(office.inside)]].set()
            elif step == "resize":
                most = choice
                office.queue.resize(most, each)
            elif step == "give up" and tasks:
                tasks[sorted(tasks)[choice % len(tasks)]].cancel()
            await settle()
            waiting = {name for name, task in tasks.items() if not task.done()} - office.inside.keys()
            held = {owner: sum(name[0] == owner for name in office.inside) for owner in "abc"}
            assert len(office.inside) <= max(most, before)
            assert max(held.values()) <= each
            assert len(office.inside) >= most or not any(held[name[0]] < each for name in waiting)
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert (office.queue.held, office.queue.waiting) == (0, 0)

    asyncio.run(scenario())
