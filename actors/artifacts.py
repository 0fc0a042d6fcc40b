"""Where this runtime keeps artifacts, for whatever process asks."""

from __future__ import annotations

from pathlib import Path

from actors.keeper_client import KeeperNow
from actors.plan import WorkerPlan
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.tools.artifact_home import STORING_SECONDS, ArtifactHome, ArtifactsBySize, StoredArtifacts
from owlclaw_ray.tools.artifacts import ArtifactFolder
from owlclaw_ray.tools.fsspec_artifacts import OBJECT_SECONDS, artifacts_at


def artifact_home(plan: WorkerPlan, clock: Clock) -> ArtifactHome:
    """Return the home of artifacts; one in the store is reached through this node's Keeper, one at a URL as the environment says."""
    home: ArtifactHome
    if plan.stored_artifact_bytes is None:
        home = ArtifactFolder(Path(plan.data_dir))
    else:
        keeper = KeeperNow(plan.namespace, STORING_SECONDS)
        home = StoredArtifacts(keeper.commit, keeper.read, clock, limit=plan.stored_artifact_bytes)
    large = plan.large_artifacts
    if large is None:
        return home
    return ArtifactsBySize(home, artifacts_at(large.url), large.above_bytes)


def storing_seconds(plan: WorkerPlan) -> float:
    """Return how long it may take at most to store one artifact."""
    seconds = 0.0 if plan.stored_artifact_bytes is None else STORING_SECONDS
    return seconds if plan.large_artifacts is None else seconds + OBJECT_SECONDS
