"""Artifacts: what an agent's tools gave and was too large for a model."""

from __future__ import annotations

from dataclasses import dataclass

from owlclaw_ray.ids import ArtifactId

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One stored output. It never changes: the same call gives the same id."""

    artifact_id: ArtifactId
    media_type: str
    """TEXT or JSON."""
    content: bytes
