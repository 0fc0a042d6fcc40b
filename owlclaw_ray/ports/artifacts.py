"""Where large outputs are kept."""

from __future__ import annotations

from typing import Protocol

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import Artifact
from owlclaw_ray.ids import ArtifactId


class ArtifactStore(Protocol):
    """Keeps artifacts, each agent's apart from all others'."""

    def put(self, agent: AgentRef, artifact: Artifact) -> None:
        """Store it durably; one of the same id is replaced. Raises OSError."""
        ...

    def get(self, agent: AgentRef, artifact_id: ArtifactId) -> Artifact:
        """Return it; raises NotFoundError, for ids that are none too."""
        ...
