import pytest

from tests.hatchet_engine.engine import HatchetEngine
from tests.schedules.hatchet.world import SteppedClock, World, know_workflow


@pytest.fixture
def clock():
    return SteppedClock()


@pytest.fixture
def engine(clock):
    with HatchetEngine(clock.now) as engine:
        know_workflow(engine)
        yield engine


@pytest.fixture
def world(engine, clock):
    world = World(engine, clock)
    yield world
    world.alarms.close()
