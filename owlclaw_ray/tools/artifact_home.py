"""Where artifacts are: in files (see owlclaw_ray.tools.artifacts), or in the store."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Protocol

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import Artifact, StoredArtifact
from owlclaw_ray.errors import ArtifactTooLargeError, NotFoundError, StoreUnavailableError
from owlclaw_ray.ids import ArtifactId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import QueryFunction
from owlclaw_ray.store.artifacts import ArtifactById, ArtifactHead, ArtifactPart, ArtifactsOfAgent, OldArtifacts
from owlclaw_ray.store.commands import Command, CommandFailed, ForgetArtifacts, Outcome, PutArtifact, PutArtifactPart

ARTIFACT_ID = re.compile(r"art_[0-9a-f]{26}")
PART_BYTES = 512 * 1024
"""How much of a content travels in one message and is committed in one transaction: others' commits wait for no more than that."""
STORING_SECONDS = 5.0
"""For how long one artifact is being stored before it is given up, and how long each of its messages may take."""
_EXPIRED_AT_ONCE = 20
_READS = 3

logger = logging.getLogger(__name__)


class ArtifactHome(Protocol):
    """Keeps artifacts, each agent's apart from all others'. Used from threads, not from event loops."""

    def put(self, agent: AgentRef, artifact: Artifact) -> None:
        """Store it durably; one of the same id is replaced.

        Raises OSError or RetryableError where that cannot be done, and ArtifactTooLargeError.
        """
        ...

    def get(self, agent: AgentRef, artifact_id: ArtifactId) -> Artifact:
        """Return it; raises NotFoundError, RetryableError. Only ids of the form that `put` is given are looked for."""
        ...

    def listing(self, agent: AgentRef, limit: int) -> Sequence[StoredArtifact]:
        """Return the agent's artifacts, the newest first; raises RetryableError."""
        ...

    def expire(self, before: datetime) -> int:
        """Remove the artifacts of all agents that were stored before that moment; return how many; raises RetryableError."""
        ...


class StoredArtifacts(ArtifactHome):
    """Keeps artifacts in the store, for machines that share no folder."""

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
                f"it has {len(content):,} bytes, and artifacts in the store may have {self._limit:,} (artifacts.limit_bytes)"
            )
        at, starts = self._clock.now(), range(0, max(len(content), 1), self._part_bytes)
        for part, start in enumerate(starts):
            if self._clock.monotonic() - began > STORING_SECONDS:
                raise StoreUnavailableError(f"{id_} was not stored within {STORING_SECONDS:g} s")
            commands: list[Command] = [PutArtifactPart(agent, id_, part, content[start : start + self._part_bytes], at)]
            if part == len(starts) - 1:
                digest = sha256(content).hexdigest()
                commands.append(PutArtifact(agent, id_, artifact.media_type, len(content), len(starts), digest, at))
            self._apply(commands)

    def get(self, agent: AgentRef, artifact_id: ArtifactId) -> Artifact:
        """See ArtifactHome.get. What is replaced meanwhile is read again."""
        for _ in range(_READS):
            head = self._read(ArtifactById(agent, artifact_id)) if ARTIFACT_ID.fullmatch(artifact_id) else None
            if head is None:
                raise NotFoundError("artifact", artifact_id)
            content = self._content(agent, artifact_id, head)
            if sha256(content).hexdigest() == head.digest:
                return Artifact(artifact_id, head.media_type, content)
        raise StoreUnavailableError(f"the parts of {artifact_id} do not make up what was stored")

    def _content(self, agent: AgentRef, artifact_id: ArtifactId, head: ArtifactHead) -> bytes:
        return b"".join(self._read(ArtifactPart(agent, artifact_id, part)) or b"" for part in range(head.parts))

    def listing(self, agent: AgentRef, limit: int) -> Sequence[StoredArtifact]:
        """See ArtifactHome.listing."""
        return self._read(ArtifactsOfAgent(agent, limit))

    def expire(self, before: datetime) -> int:
        """See ArtifactHome.expire. What was begun and never finished goes too."""
        removed = 0
        while old := self._read(OldArtifacts(before, _EXPIRED_AT_ONCE)):
            self._apply([ForgetArtifacts(tuple(old), before)])
            removed += len(old)
        return removed

    def _apply(self, commands: Sequence[Command]) -> None:
        for outcome in self._commit(commands):
            if isinstance(outcome, CommandFailed):
                raise StoreUnavailableError(outcome.message)


class ArtifactExpiry:
    """Removes the artifacts of all agents that are older than `keep`."""

    def __init__(self, artifacts: ArtifactHome, keep: timedelta, clock: Clock) -> None:
        self._artifacts, self._keep, self._clock = artifacts, keep, clock

    async def tick(self) -> int:
        """Remove what is too old; return how many artifacts that were. Raises RetryableError."""
        removed = await asyncio.to_thread(self._artifacts.expire, self._clock.now() - self._keep)
        if removed:
            logger.info("%d artifacts older than %s were removed", removed, self._keep)
        return removed
