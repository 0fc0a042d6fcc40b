from datetime import timedelta

from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.artifact_home import ArtifactExpiry


class Artifacts:
    """Notes from when on what is stored is kept."""

    def __init__(self):
        self.asked = []

    def expire(self, before):
        self.asked.append(before)
        return 3


async def test_what_is_older_is_removed():
    clock, artifacts = ManualClock(), Artifacts()

    assert await ArtifactExpiry(artifacts, timedelta(days=7), clock).tick() == 3
    assert artifacts.asked == [clock.now() - timedelta(days=7)]
