import asyncio
from datetime import timedelta

from owlclaw_ray.engine.artifact_expiry import HOUR, ArtifactExpiry
from owlclaw_ray.testing.clock import ManualClock


class Artifacts:
    """Notes from when on what is stored is kept; fails once, if it is told to."""

    def __init__(self, fails=0):
        self.asked, self._fails, self.was_asked = [], fails, asyncio.Event()

    def expire(self, before):
        self.asked.append(before)
        if len(self.asked) <= self._fails:
            raise RuntimeError("the disk is away")
        return 1


async def times(artifacts, clock, number):
    """Let hours pass until it was asked so often."""
    while len(artifacts.asked) < number:
        await clock.advance(HOUR)
        await asyncio.sleep(0.001)


async def test_what_is_older_is_removed_now_and_every_hour():
    clock, artifacts = ManualClock(), Artifacts()
    began = clock.now()
    expiry = ArtifactExpiry(artifacts, timedelta(days=7), clock)

    assert await expiry.tick() == 1
    assert artifacts.asked == [began - timedelta(days=7)]

    expiry.start()
    await times(artifacts, clock, 4)
    await expiry.stop()

    assert artifacts.asked[1] == began - timedelta(days=7)
    assert all(
        late - early >= timedelta(hours=1)
        for early, late in zip(artifacts.asked[1:], artifacts.asked[2:], strict=False)
    )


async def test_a_failure_is_tried_again_an_hour_later():
    clock, artifacts = ManualClock(), Artifacts(fails=1)
    expiry = ArtifactExpiry(artifacts, timedelta(days=1), clock)
    expiry.start()
    await times(artifacts, clock, 2)
    await expiry.stop()

    assert len(artifacts.asked) >= 2
