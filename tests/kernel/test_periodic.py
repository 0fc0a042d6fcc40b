"""Work that is done again and again."""

import pytest

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.kernel.periodic import Periodic
from owlclaw_ray.testing.clock import ManualClock


class Work:
    """Notes when it is done; raises what it is told to, once."""

    def __init__(self, clock, error=None):
        self._clock, self._error = clock, error
        self._began = clock.now()
        self.times = []

    async def do(self):
        self.times.append((self._clock.now() - self._began).total_seconds())
        error, self._error = self._error, None
        if error is not None:
            raise error


async def test_work_is_done_at_once_and_then_whenever_its_time_has_passed_until_it_is_stopped():
    clock = ManualClock()
    work = Work(clock)
    periodic = Periodic("working", work.do, clock, 10.0)

    periodic.start()
    await clock.advance(25)
    await periodic.stop()
    await clock.advance(25)

    assert work.times == [0, 10, 20]


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), ValueError("what nobody foresaw")])
async def test_work_that_fails_is_tried_again_and_said(error, caplog):
    clock = ManualClock()
    work = Work(clock, error)
    periodic = Periodic("working", work.do, clock, 10.0)

    periodic.start()
    await clock.advance(15)
    await periodic.stop()

    assert work.times == [0, 10]
    [record] = caplog.records
    assert record.getMessage().startswith("working")


async def test_work_that_is_due_sooner_is_done_sooner_and_never_without_a_pause():
    clock = ManualClock()
    work, due = Work(clock), iter([2.0, 60.0, -5.0])

    async def due_in():
        return next(due)

    periodic = Periodic("working", work.do, clock, 10.0, due_in=due_in)
    periodic.start()
    await clock.advance(12.5)
    await periodic.stop()

    assert work.times[:3] == [0, 2, 12]
    assert work.times[3] == pytest.approx(12.05)


async def test_stopping_what_was_never_started_does_nothing():
    clock = ManualClock()

    await Periodic("working", Work(clock).do, clock, 1.0).stop()
