"""Artifacts as files: `<data_dir>/agents/<tenant>/<agent>/artifacts/<id>.txt`, `.json` and so on."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from typing_extensions import override

from owlclaw_ray.domain.agent import AgentRef, tenant_folder
from owlclaw_ray.domain.artifact import ENDINGS, Artifact, StoredArtifact
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import ArtifactId, TenantId
from owlclaw_ray.kernel.durable_files import make_folder, replace
from owlclaw_ray.tools.artifact_home import ARTIFACT_BYTES, ARTIFACT_ID, ArtifactHome, ArtifactReader, newest_first

logger = logging.getLogger(__name__)


class ArtifactFolder(ArtifactHome):
    """Keeps artifacts in files below a data folder."""

    def __init__(self, data_dir: Path, most_bytes: int = ARTIFACT_BYTES) -> None:
        self._agents, self.most_bytes = data_dir / "agents", most_bytes

    def put(self, agent: AgentRef, artifact: Artifact) -> None:
        """Store it durably; one of the same id is replaced. Raises OSError."""
        folder = self._folder(agent)
        if not folder.exists():
            make_folder(folder)
        replace(folder / f"{artifact.artifact_id}{ENDINGS[artifact.media_type]}", artifact.content)

    def open(self, agent: AgentRef, artifact_id: ArtifactId) -> ArtifactReader:
        """Return what reads it; raises NotFoundError. Only ids of the form that `put` is given reach the file system."""
        for path, media_type in self._places(agent, artifact_id):
            with suppress(OSError), _opened(path) as file:
                return _ArtifactFile(artifact_id, media_type, path, os.fstat(file.fileno()).st_size)
        raise NotFoundError("artifact", artifact_id)

    def remove(self, agent: AgentRef, artifact_id: ArtifactId) -> None:
        """Remove it, if it is there; raises OSError."""
        for path, _ in self._places(agent, artifact_id):
            path.unlink(missing_ok=True)

    def _places(self, agent: AgentRef, artifact_id: ArtifactId) -> Sequence[tuple[Path, str]]:
        """Return where it may be, with the media type that it has there."""
        folder = self._folder(agent)
        known = ENDINGS.items() if ARTIFACT_ID.fullmatch(artifact_id) else ()
        return [(folder / f"{artifact_id}{ending}", media_type) for media_type, ending in known]

    def listing(self, agent: AgentRef, limit: int) -> Sequence[StoredArtifact]:
        """Return the agent's artifacts, the newest first."""
        media_types = {ending: media_type for media_type, ending in ENDINGS.items()}
        found = []
        for entry, size, stored_at in _files(self._folder(agent)):
            stem, dot, ending = entry.name.partition(".")
            found.append(StoredArtifact(ArtifactId(stem), media_types[f"{dot}{ending}"], size, stored_at))
        return newest_first(found, limit)

    def expire(self, tenant: TenantId, before: datetime) -> int:
        """See ArtifactHome.expire. One that cannot be removed stays for the next time."""
        removed = 0
        for folder in self._folders_of(tenant):
            for entry, _, stored_at in _files(folder):
                if stored_at < before:
                    try:
                        Path(entry.path).unlink(missing_ok=True)
                    except OSError:
                        logger.exception("%s is over its time and cannot be removed", entry.path)
                    else:
                        removed += 1
        return removed

    def remove_tenant(self, tenant: TenantId) -> int:
        """See ArtifactHome.remove_tenant. Folders of agents that have nothing else in them go, too."""
        removed = 0
        for folder in self._folders_of(tenant):
            for path in folder.iterdir():
                path.unlink(missing_ok=True)
                removed += 1
            for empty in (folder, folder.parent, folder.parent.parent):
                with suppress(OSError):
                    empty.rmdir()
        return removed

    def files_of(self, tenant: TenantId) -> int:
        """See ArtifactHome.files_of."""
        return sum(1 for folder in self._folders_of(tenant) for _ in folder.iterdir())

    def _folders_of(self, tenant: TenantId) -> Sequence[Path]:
        return [each for each in (self._agents / tenant_folder(tenant)).glob("*/artifacts") if each.is_dir()]

    def _folder(self, agent: AgentRef) -> Path:
        return self._agents / agent.folder / "artifacts"


class _ArtifactFile(ArtifactReader):
    """Reads a file, which is opened for each part: nobody has to close it."""

    def __init__(self, artifact_id: ArtifactId, media_type: str, path: Path, size_bytes: int) -> None:
        self.artifact_id, self.media_type, self.size_bytes = artifact_id, media_type, size_bytes
        self._path = path

    @override
    def read(self, start: int, end: int) -> bytes:
        try:
            with _opened(self._path) as file:
                file.seek(start)
                return file.read(max(end - start, 0))
        except OSError as error:
            raise NotFoundError("artifact", self.artifact_id) from error


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


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
