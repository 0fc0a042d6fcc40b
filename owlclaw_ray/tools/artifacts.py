"""Where large outputs are kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import Artifact, StoredArtifact
from owlclaw_ray.ids import ArtifactId


class ArtifactStore(Protocol):
    """Keeps artifacts, each agent's apart from all others'."""

    def put(self, agent: AgentRef, artifact: Artifact) -> None:
        """Store it durably; one of the same id is replaced. Raises OSError."""
        ...

    def get(self, agent: AgentRef, artifact_id: ArtifactId) -> Artifact:
        """Return it; raises NotFoundError, for ids that are none too."""
        ...

    def listing(self, agent: AgentRef, limit: int) -> Sequence[StoredArtifact]:
        """Return the agent's artifacts, the newest first; none for an agent that has none."""
        ...

    def expire(self, before: datetime) -> int:
        """Remove the artifacts of all agents that were stored before that moment; return how many. Raises nothing for those that
        cannot be removed now: they are met again.
        """
        ...
