"""Artifacts as files: `<data_dir>/agents/<tenant>/<agent>/artifacts/<id>.txt`, `.json` and so on."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import ENDINGS, Artifact, StoredArtifact
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import ArtifactId
from owlclaw_ray.kernel.durable_files import make_folder, replace
from owlclaw_ray.tools.artifact_home import ARTIFACT_ID, ArtifactHome

logger = logging.getLogger(__name__)


class ArtifactFolder(ArtifactHome):
    """Keeps artifacts in files below a data folder."""

    def __init__(self, data_dir: Path) -> None:
        self._agents = data_dir / "agents"

    def put(self, agent: AgentRef, artifact: Artifact) -> None:
        """Store it durably; one of the same id is replaced. Raises OSError."""
        folder = self._folder(agent)
        if not folder.exists():
            make_folder(folder)
        replace(folder / f"{artifact.artifact_id}{ENDINGS[artifact.media_type]}", artifact.content)

    def get(self, agent: AgentRef, artifact_id: ArtifactId) -> Artifact:
        """Return it; raises NotFoundError. Only ids of the form that `put` is given reach the file system."""
        if ARTIFACT_ID.fullmatch(artifact_id):
            for media_type, ending in ENDINGS.items():
                path = self._folder(agent) / f"{artifact_id}{ending}"
                try:
                    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                        return Artifact(artifact_id, media_type, file.read())
                except OSError:
                    continue
        raise NotFoundError("artifact", artifact_id)

    def listing(self, agent: AgentRef, limit: int) -> Sequence[StoredArtifact]:
        """Return the agent's artifacts, the newest first."""
        media_types = {ending: media_type for media_type, ending in ENDINGS.items()}
        found = []
        for entry, size, stored_at in _files(self._folder(agent)):
            stem, dot, ending = entry.name.partition(".")
            found.append(StoredArtifact(ArtifactId(stem), media_types[f"{dot}{ending}"], size, stored_at))
        return sorted(found, key=lambda each: (each.stored_at, each.artifact_id), reverse=True)[:limit]

    def expire(self, before: datetime) -> int:
        """Remove the artifacts of all agents that were stored before that moment; return how many. One that cannot be removed stays for
        the next time.
        """
        removed = 0
        for folder in self._agents.glob("*/*/artifacts"):
            for entry, _, stored_at in _files(folder):
                if stored_at < before:
                    try:
                        Path(entry.path).unlink(missing_ok=True)
                    except OSError:
                        logger.exception("%s is over its time and cannot be removed", entry.path)
                    else:
                        removed += 1
        return removed

    def _folder(self, agent: AgentRef) -> Path:
        return self._agents / agent.folder / "artifacts"


def _files(folder: Path) -> Iterator[tuple[os.DirEntry[str], int, datetime]]:
    """Yield the artifacts in a folder, with their sizes and when they were stored."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        stem, dot, ending = entry.name.partition(".")
        if ARTIFACT_ID.fullmatch(stem) and f"{dot}{ending}" in ENDINGS.values():
            with suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if S_ISREG(found.st_mode):
                    yield entry, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC)
