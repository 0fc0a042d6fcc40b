"""Where artifacts are: in files (see owlclaw_ray.tools.artifacts) or in the store, and large ones at a URL (see fsspec_artifacts there)."""

from __future__ import annotations

import asyncio
import logging
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Protocol

from typing_extensions import override

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import Artifact, StoredArtifact
from owlclaw_ray.domain.retention import Kept
from owlclaw_ray.errors import ArtifactTooLargeError, NotFoundError, QuotaReachedError, StoreUnavailableError
from owlclaw_ray.ids import ArtifactId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import QueryFunction, Store
from owlclaw_ray.store.artifacts import ArtifactById, ArtifactHead, ArtifactPart, ArtifactsOfAgent, OldArtifacts
from owlclaw_ray.store.commands import (
    Command,
    CommandFailed,
    ForgetArtifacts,
    OldArtifact,
    Outcome,
    PutArtifact,
    PutArtifactPart,
    QuotaReached,
)
from owlclaw_ray.store.retention import limits_of_age, moment_of_sweep, note_sweep

ARTIFACT_ID = re.compile(r"art_[0-9a-f]{26}")
PART_BYTES = 512 * 1024
"""How much of a content travels in one message and is committed in one transaction: others' commits wait for no more than that."""
ARTIFACT_BYTES = 10 * 1024 * 1024
"""How much of one result is kept in files, and in the store."""
STORING_SECONDS = 5.0
"""For how long one artifact is being stored before it is given up, and how long each of its messages may take."""
_EXPIRED_AT_ONCE = 20
_READS = 3
_CLOCKS_DIFFER = timedelta(days=1)
"""At most, between nodes that store artifacts."""

logger = logging.getLogger(__name__)


class ArtifactReader(Protocol):
    """An artifact that is read part by part. Used from threads, not from event loops."""

    artifact_id: ArtifactId
    media_type: str
    size_bytes: int

    @abstractmethod
    def read(self, start: int, end: int) -> bytes:
        """Return its bytes from `start` to before `end`, fewer at its end. Raises NotFoundError if it is gone, RetryableError."""


class HeldArtifact(ArtifactReader):
    """An artifact whose content is there already."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact_id, self.media_type = artifact.artifact_id, artifact.media_type
        self.size_bytes, self._content = len(artifact.content), artifact.content

    @override
    def read(self, start: int, end: int) -> bytes:
        return self._content[start:end]


class ArtifactHome(Protocol):
    """Keeps artifacts, each agent's apart from all others'. Used from threads, not from event loops."""

    most_bytes: int
    """What one artifact may have; who stores one cuts it to that."""

    def put(self, agent: AgentRef, artifact: Artifact) -> None:
        """Store it durably; one of the same id is replaced.

        Raises OSError or RetryableError where that cannot be done, as QuotaReachedError, and ArtifactTooLargeError.
        """
        ...

    def open(self, agent: AgentRef, artifact_id: ArtifactId) -> ArtifactReader:
        """Return what reads it; raises NotFoundError, RetryableError. Only ids of the form that `put` is given are looked for."""
        ...

    def get(self, agent: AgentRef, artifact_id: ArtifactId) -> Artifact:
        """Return the whole of it; raises NotFoundError, RetryableError."""
        found = self.open(agent, artifact_id)
        return Artifact(artifact_id, found.media_type, found.read(0, found.size_bytes))

    def remove(self, agent: AgentRef, artifact_id: ArtifactId) -> None:
        """Remove it, if it is there; raises OSError, RetryableError."""
        ...

    def listing(self, agent: AgentRef, limit: int) -> Sequence[StoredArtifact]:
        """Return the agent's artifacts, the newest first; raises RetryableError."""
        ...

    def expire(self, tenant: TenantId, before: datetime) -> int:
        """Remove the artifacts of the tenant's agents that were stored before that moment; return how many; raises RetryableError."""
        ...

    def remove_tenant(self, tenant: TenantId) -> int:
        """Remove all files of a tenant's artifacts, unfinished ones too; return how many; raises OSError, RetryableError."""
        ...

    def files_of(self, tenant: TenantId) -> int:
        """Return how many there are; raises as `remove_tenant`."""
        ...


class StoredArtifacts(ArtifactHome):
    """Keeps artifacts in the store, for machines that share no folder."""

    most_bytes = ARTIFACT_BYTES

    def __init__(
        self,
        commit: Callable[[Sequence[Command]], Sequence[Outcome]],
        read: QueryFunction,
        clock: Clock,
        *,
        limit: int,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """`limit`: the bytes of an artifact, at most."""
        self._commit, self._read, self._clock = commit, read, clock
        self._limit, self._part_bytes = limit, part_bytes

    def put(self, agent: AgentRef, artifact: Artifact) -> None:
        """See ArtifactHome.put. The last part is committed together with that by which the artifact is found."""
        content, id_, began = artifact.content, artifact.artifact_id, self._clock.monotonic()
        if len(content) > self._limit:
            raise ArtifactTooLargeError(
                f"it has {len(content):,} bytes, and artifacts in the store may have {self._limit:,} (artifacts.limit_bytes); "
                "larger ones go to artifacts.url, which is not set"
            )
        at, starts = self._clock.now(), range(0, max(len(content), 1), self._part_bytes)
        for part, start in enumerate(starts):
            if self._clock.monotonic() - began > STORING_SECONDS:
                raise StoreUnavailableError(f"{id_} was not stored within {STORING_SECONDS:g} s")
            piece = content[start : start + self._part_bytes]
            commands: list[Command] = [PutArtifactPart(agent, id_, part, piece, at, total_bytes=len(content))]
            if part == len(starts) - 1:
                digest = sha256(content).hexdigest()
                commands.append(PutArtifact(agent, id_, artifact.media_type, len(content), len(starts), digest, at))
            try:
                self._apply(commands)
            except QuotaReachedError:
                if part:
                    self.remove(agent, id_)
                raise

    def open(self, agent: AgentRef, artifact_id: ArtifactId) -> ArtifactReader:
        """See ArtifactHome.open. It is read as a whole, for only then it is sure to be what was stored; what is replaced meanwhile is
        read again.
        """
        for _ in range(_READS):
            head = self._read(ArtifactById(agent, artifact_id)) if ARTIFACT_ID.fullmatch(artifact_id) else None
            if head is None:
                raise NotFoundError("artifact", artifact_id)
            content = self._content(agent, artifact_id, head)
            if sha256(content).hexdigest() == head.digest:
                return HeldArtifact(Artifact(artifact_id, head.media_type, content))
        raise StoreUnavailableError(f"the parts of {artifact_id} do not make up what was stored")

    def _content(self, agent: AgentRef, artifact_id: ArtifactId, head: ArtifactHead) -> bytes:
        return b"".join(self._read(ArtifactPart(agent, artifact_id, part)) or b"" for part in range(head.parts))

    def remove(self, agent: AgentRef, artifact_id: ArtifactId) -> None:
        """See ArtifactHome.remove."""
        self._apply([ForgetArtifacts((OldArtifact(agent, artifact_id),), self._clock.now() + _CLOCKS_DIFFER)])

    def listing(self, agent: AgentRef, limit: int) -> Sequence[StoredArtifact]:
        """See ArtifactHome.listing."""
        return self._read(ArtifactsOfAgent(agent, limit))

    def expire(self, tenant: TenantId, before: datetime) -> int:
        """See ArtifactHome.expire. What was begun and never finished goes too."""
        removed = 0
        while old := self._read(OldArtifacts(tenant, before, _EXPIRED_AT_ONCE)):
            self._apply([ForgetArtifacts(tuple(old), before)])
            removed += len(old)
        return removed

    def remove_tenant(self, tenant: TenantId) -> int:  # noqa: ARG002 - it has no files of any
        """See ArtifactHome.remove_tenant. There are no files: rows go with all others of a tenant."""
        return 0

    def files_of(self, tenant: TenantId) -> int:  # noqa: ARG002 - as above
        """See ArtifactHome.files_of."""
        return 0

    def _apply(self, commands: Sequence[Command]) -> None:
        for outcome in self._commit(commands):
            if isinstance(outcome, QuotaReached):
                raise outcome.error(self._clock.now())
            if isinstance(outcome, CommandFailed):
                raise StoreUnavailableError(outcome.message)


class ArtifactsBySize(ArtifactHome):
    """Keeps artifacts of up to `limit` bytes in one home, and larger ones in another."""

    def __init__(self, small: ArtifactHome, large: ArtifactHome, limit: int) -> None:
        self._small, self._large, self._limit = small, large, limit
        self.most_bytes = large.most_bytes

    def put(self, agent: AgentRef, artifact: Artifact) -> None:
        """See ArtifactHome.put. One that was smaller is removed; one that was larger stays until it expires, and is not found any more."""
        if len(artifact.content) <= self._limit:
            self._small.put(agent, artifact)
        else:
            self._large.put(agent, artifact)
            self._small.remove(agent, artifact.artifact_id)

    def open(self, agent: AgentRef, artifact_id: ArtifactId) -> ArtifactReader:
        """See ArtifactHome.open."""
        try:
            return self._small.open(agent, artifact_id)
        except NotFoundError:
            return self._large.open(agent, artifact_id)

    def remove(self, agent: AgentRef, artifact_id: ArtifactId) -> None:
        """See ArtifactHome.remove."""
        self._small.remove(agent, artifact_id)
        self._large.remove(agent, artifact_id)

    def listing(self, agent: AgentRef, limit: int) -> Sequence[StoredArtifact]:
        """See ArtifactHome.listing."""
        found = [*self._large.listing(agent, limit), *self._small.listing(agent, limit)]
        return newest_first({each.artifact_id: each for each in found}.values(), limit)

    def expire(self, tenant: TenantId, before: datetime) -> int:
        """See ArtifactHome.expire."""
        return self._small.expire(tenant, before) + self._large.expire(tenant, before)

    def remove_tenant(self, tenant: TenantId) -> int:
        """See ArtifactHome.remove_tenant."""
        return self._small.remove_tenant(tenant) + self._large.remove_tenant(tenant)

    def files_of(self, tenant: TenantId) -> int:
        """See ArtifactHome.files_of."""
        return self._small.files_of(tenant) + self._large.files_of(tenant)


def newest_first(found: Iterable[StoredArtifact], limit: int) -> Sequence[StoredArtifact]:
    """Return the newest, as `ArtifactHome.listing` does."""
    return sorted(found, key=lambda each: (each.stored_at, each.artifact_id), reverse=True)[:limit]


class ArtifactExpiry:
    """Removes artifacts when they are older than their tenant keeps them; `keep` is for tenants that say nothing of their own, None: for
    ever.
    """

    def __init__(self, artifacts: ArtifactHome, store: Store, keep: timedelta | None, clock: Clock) -> None:
        self._artifacts, self._store, self._keep, self._clock = artifacts, store, keep, clock

    async def tick(self) -> int:
        """Remove what is too old; return how many artifacts that were. Raises RetryableError."""
        total, now = 0, await moment_of_sweep(self._store, Kept.ARTIFACTS, self._clock.now())
        async for tenant, before in limits_of_age(self._store, Kept.ARTIFACTS, self._keep, now):
            removed = await asyncio.to_thread(self._artifacts.expire, tenant, before)
            if removed:
                logger.info("%d artifacts of tenant %s from before %s were removed", removed, tenant, before)
            total += removed
        await note_sweep(self._store, Kept.ARTIFACTS, now)
        return total
