"""Artifacts: what an agent's tools gave and was too large for a model."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from owlclaw_ray.ids import ArtifactId

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
BINARY = "application/octet-stream"
ENDINGS = {
    TEXT: ".txt",
    JSON: ".json",
    BINARY: ".bin",
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "audio/mpeg": ".mp3",
    "audio/wav": ".wav",
    "application/pdf": ".pdf",
}
"""The media types that artifacts have, and the endings of their files."""


class LargeArtifacts(Struct, frozen=True):
    """Where artifacts go that are too large for where the others are."""

    url: str
    """A folder of fsspec, without credentials."""
    above_bytes: int


class StoredArtifact(Struct, frozen=True):
    """An artifact without its content."""

    artifact_id: ArtifactId
    media_type: str
    size_bytes: int
    stored_at: datetime


class Artifact(Struct, frozen=True):
    """One stored output. It never changes: the same call gives the same id."""

    artifact_id: ArtifactId
    media_type: str
    """One of ENDINGS."""
    content: bytes
