"""Artifacts in the store: what commands do to the working set, and the answers to queries."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from owlclaw_ray.domain.artifact import StoredArtifact
from owlclaw_ray.domain.quota import ARTIFACT_BYTES
from owlclaw_ray.ids import ArtifactId
from owlclaw_ray.store.artifacts import ArtifactById, ArtifactHead, ArtifactPart, ArtifactsOfAgent, OldArtifacts
from owlclaw_ray.store.commands import (
    ArtifactsForgotten,
    ArtifactStored,
    ForgetArtifacts,
    OldArtifact,
    PutArtifact,
    PutArtifactPart,
    QuotaReached,
)
from owlclaw_ray.store.sql.codec import agent_key, agent_of, from_micros, tenant_range, to_micros
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.queries import reads
from owlclaw_ray.store.sql.quotas import count, reached
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.schema import artifact_parts, artifacts
from owlclaw_ray.store.sql.working_set import RowChange, WorkingSet


def _need_size(needs: RowNeeds, command: PutArtifactPart | PutArtifact) -> None:
    needs.counts.add(agent_key(command.agent))
    needs.artifacts.add((agent_key(command.agent), command.artifact_id))


def _more(store: WorkingSet, command: PutArtifactPart | PutArtifact, size: int) -> int:
    """Return how much more there is with an artifact of that size."""
    before, _ = store.artifacts.get((agent_key(command.agent), command.artifact_id), (0, 0))
    return size - before


@applies(PutArtifactPart, needs=_need_size)
def put_part(store: WorkingSet, command: PutArtifactPart) -> ArtifactStored | QuotaReached:
    """Write a part, if there is room for all of them."""
    more = _more(store, command, command.total_bytes)
    refused = reached(store, command.agent.tenant, ARTIFACT_BYTES, more) if more > 0 else None
    if refused is not None:
        return refused
    key = agent_key(command.agent), command.artifact_id, command.part
    store.changes[RowChange.ARTIFACT_PART][key] = (*key, to_micros(command.at), command.content)
    return ArtifactStored()


@applies(PutArtifact, needs=_need_size)
def put(store: WorkingSet, command: PutArtifact) -> ArtifactStored | QuotaReached:
    """Write the row by which the parts are found, and count it."""
    more, tenant = _more(store, command, command.size_bytes), command.agent.tenant
    refused = reached(store, tenant, ARTIFACT_BYTES, more) if more > 0 else None
    if refused is not None:
        return refused
    count(store, tenant, ARTIFACT_BYTES, more)
    key = agent_key(command.agent), command.artifact_id
    store.artifacts[key] = (command.size_bytes, to_micros(command.at))
    about = (command.media_type, command.size_bytes, command.parts, command.digest, to_micros(command.at))
    store.changes[RowChange.ARTIFACT][key] = (*key, *about)
    return ArtifactStored()


def _need_sizes(needs: RowNeeds, command: ForgetArtifacts) -> None:
    for each in command.artifacts:
        needs.counts.add(agent_key(each.agent))
        needs.artifacts.add((agent_key(each.agent), each.artifact_id))


@applies(ForgetArtifacts, needs=_need_sizes)
def forget(store: WorkingSet, command: ForgetArtifacts) -> ArtifactsForgotten:
    """Remove rows and parts."""
    for each in command.artifacts:
        key = agent_key(each.agent), each.artifact_id
        size, stored_at = store.artifacts.get(key, (0, 0))
        if stored_at < to_micros(command.before):
            count(store, each.agent.tenant, ARTIFACT_BYTES, -size)
            store.artifacts.pop(key, None)
        store.changes[RowChange.REMOVED_ARTIFACT][key] = (*key, to_micros(command.before))
    return ArtifactsForgotten()


@reads(ArtifactById)
def _read_artifact(connection: Connection, query: ArtifactById) -> ArtifactHead | None:
    found = select(artifacts.c.media_type, artifacts.c.parts, artifacts.c.digest).where(
        artifacts.c.agent == agent_key(query.agent), artifacts.c.artifact_id == query.artifact_id
    )
    row = connection.execute(found).one_or_none()
    return None if row is None else ArtifactHead(*row)


@reads(ArtifactPart)
def _read_part(connection: Connection, query: ArtifactPart) -> bytes | None:
    found = select(artifact_parts.c.content).where(
        artifact_parts.c.agent == agent_key(query.agent),
        artifact_parts.c.artifact_id == query.artifact_id,
        artifact_parts.c.part == query.part,
    )
    content = connection.execute(found).scalar_one_or_none()
    return None if content is None else bytes(content)


@reads(ArtifactsOfAgent)
def _read_artifacts_of_agent(connection: Connection, query: ArtifactsOfAgent) -> Sequence[StoredArtifact]:
    c = artifacts.c
    found = (
        select(c.artifact_id, c.media_type, c.size_bytes, c.stored_at)
        .where(c.agent == agent_key(query.agent))
        .order_by(c.stored_at.desc(), c.artifact_id.desc())
        .limit(query.limit)
    )
    return [
        StoredArtifact(ArtifactId(row.artifact_id), row.media_type, row.size_bytes, from_micros(row.stored_at))
        for row in connection.execute(found)
    ]


@reads(OldArtifacts)
def _read_old_artifacts(connection: Connection, query: OldArtifacts) -> Sequence[OldArtifact]:
    c, (first, last) = artifact_parts.c, tenant_range(query.tenant)
    found = (
        select(c.agent, c.artifact_id)
        .where(c.agent >= first, c.agent < last, c.stored_at < to_micros(query.before))
        .group_by(c.agent, c.artifact_id)
        .order_by(func.min(c.stored_at))
        .limit(query.limit)
    )
    return [OldArtifact(agent_of(row.agent), ArtifactId(row.artifact_id)) for row in connection.execute(found)]
