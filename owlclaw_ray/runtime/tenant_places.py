"""Files of tenants: in data folders, and where artifacts are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from typing_extensions import override

from owlclaw_ray.domain.agent import tenant_folder
from owlclaw_ray.ids import TenantId
from owlclaw_ray.runtime.tenant_removal import TenantFiles, TenantPlace
from owlclaw_ray.tools.artifact_home import ArtifactHome


def count_files(data_dir: Path, tenant: TenantId) -> int:
    """Return how many files of the tenant are in a data folder: memories, their indexes, artifacts; folders without files count for one."""
    folder = data_dir / "agents" / tenant_folder(tenant)
    files = sum(len(names) for _, _, names in os.walk(folder))
    return files or int(os.path.lexists(folder))


def remove_files(data_dir: Path, tenant: TenantId) -> int:
    """Remove them; return how many there were. What another process removes meanwhile is no error."""
    number = count_files(data_dir, tenant)
    if number:
        shutil.rmtree(data_dir / "agents" / tenant_folder(tenant), onerror=_unless_gone)
    return number


def _unless_gone(_function: object, _path: str, error: Any) -> None:
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


class DataFolder(TenantPlace):
    """The data folder of one machine."""

    name = "files of data_dir"

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    @override
    def remove(self, tenant: TenantId) -> TenantFiles:
        return TenantFiles(remove_files(self._data_dir, tenant))

    @override
    def left(self, tenant: TenantId) -> TenantFiles:
        return TenantFiles(count_files(self._data_dir, tenant))


class ArtifactPlace(TenantPlace):
    """Where artifacts are, as far as that is not the store."""

    name = "files of artifacts"

    def __init__(self, home: ArtifactHome) -> None:
        self._home = home

    @override
    def remove(self, tenant: TenantId) -> TenantFiles:
        return TenantFiles(self._home.remove_tenant(tenant))

    @override
    def left(self, tenant: TenantId) -> TenantFiles:
        return TenantFiles(self._home.files_of(tenant))
