"""Commands about artifacts, whose contents are kept in parts: no message and no transaction has more than one part of each."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.ids import ArtifactId


class PutArtifactPart(Struct, frozen=True):
    """Store a part of an artifact's content, numbered from 0. Nobody sees it before the artifact.

    Outcome: ArtifactStored, or QuotaReached if there is no room for the whole, which counts when it is stored.
    """

    agent: AgentRef
    artifact_id: ArtifactId
    part: int
    content: bytes
    at: datetime
    total_bytes: int = 0
    """Of all parts."""


class PutArtifact(Struct, frozen=True):
    """Store an artifact whose parts are stored; one of the same id is replaced. Outcome: ArtifactStored, or QuotaReached."""

    agent: AgentRef
    artifact_id: ArtifactId
    media_type: str
    size_bytes: int
    parts: int
    digest: str
    """SHA-256 of the whole content, in hexadecimal."""
    at: datetime


class ArtifactStored(Struct, frozen=True):
    """The artifact, or the part, is in the store."""


class OldArtifact(Struct, frozen=True):
    """An artifact, or parts of one that was never finished."""

    agent: AgentRef
    artifact_id: ArtifactId


class ForgetArtifacts(Struct, frozen=True):
    """Remove what of these was stored before that moment. Outcome: ArtifactsForgotten."""

    artifacts: tuple[OldArtifact, ...]
    before: datetime


class ArtifactsForgotten(Struct, frozen=True):
    """They are gone, but for those that were stored again meanwhile."""
