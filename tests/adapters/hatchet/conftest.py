import pytest

from tests.adapters.hatchet.world import SteppedClock, World, know_workflow
from tests.hatchet_engine.engine import HatchetEngine


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
