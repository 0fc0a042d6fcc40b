"""Where this runtime keeps artifacts, for whatever process asks."""

from __future__ import annotations

from pathlib import Path

from actors.keeper_client import KeeperNow
from actors.plan import WorkerPlan
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.tools.artifact_home import STORING_SECONDS, ArtifactHome, StoredArtifacts
from owlclaw_ray.tools.artifacts import ArtifactFolder


def artifact_home(plan: WorkerPlan, clock: Clock) -> ArtifactHome:
    """Return the home of artifacts; one in the store is reached through this node's Keeper."""
    if plan.stored_artifact_bytes is None:
        return ArtifactFolder(Path(plan.data_dir))
    keeper = KeeperNow(plan.namespace, STORING_SECONDS)
    return StoredArtifacts(keeper.commit, keeper.read, clock, limit=plan.stored_artifact_bytes)
