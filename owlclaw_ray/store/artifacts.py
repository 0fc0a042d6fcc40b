"""Queries of artifacts in the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import StoredArtifact
from owlclaw_ray.ids import ArtifactId, TenantId
from owlclaw_ray.store.commands import OldArtifact
from owlclaw_ray.store.queries import Query


class ArtifactHead(Struct, frozen=True):
    """What is known of an artifact beside its content."""

    media_type: str
    parts: int
    digest: str


class ArtifactById(Query["ArtifactHead | None"], frozen=True):
    """What is known of the agent's artifact of that id, or None."""

    agent: AgentRef
    artifact_id: ArtifactId


class ArtifactPart(Query["bytes | None"], frozen=True):
    """A part of an artifact's content, numbered from 0, or None."""

    agent: AgentRef
    artifact_id: ArtifactId
    part: int


class ArtifactsOfAgent(Query[Sequence[StoredArtifact]], frozen=True):
    """The agent's artifacts, the newest first."""

    agent: AgentRef
    limit: int


class OldArtifacts(Query[Sequence[OldArtifact]], frozen=True):
    """Artifacts of the tenant's agents of which some part was stored before that moment, the oldest first."""

    tenant: TenantId
    before: datetime
    limit: int
