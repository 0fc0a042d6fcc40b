"""Artifacts as files: `<data_dir>/agents/<tenant>/<agent>/artifacts/<id>.txt`, `.json` and so on."""

from __future__ import annotations

import os
import re
from pathlib import Path

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import ENDINGS, Artifact
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import ArtifactId
from owlclaw_ray.memory.durable import make_folder, replace

_ID = re.compile(r"art_[0-9a-f]{26}")


class ArtifactFolder:
    """Implements ArtifactStore."""

    def __init__(self, data_dir: Path) -> None:
        self._agents = data_dir / "agents"

    def put(self, agent: AgentRef, artifact: Artifact) -> None:
        """See ArtifactStore.put."""
        folder = self._folder(agent)
        if not folder.exists():
            make_folder(folder)
        replace(folder / f"{artifact.artifact_id}{ENDINGS[artifact.media_type]}", artifact.content)

    def get(self, agent: AgentRef, artifact_id: ArtifactId) -> Artifact:
        """See ArtifactStore.get. Only names of the form that `put` is given reach the file system."""
        if _ID.fullmatch(artifact_id):
            for media_type, ending in ENDINGS.items():
                try:
                    content = _read(self._folder(agent) / f"{artifact_id}{ending}")
                except OSError:
                    continue
                return Artifact(artifact_id, media_type, content)
        raise NotFoundError("artifact", artifact_id)

    def _folder(self, agent: AgentRef) -> Path:
        return self._agents / agent.folder / "artifacts"


def _read(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return file.read()
