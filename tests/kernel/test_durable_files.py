"""What is on the disk when a write returns, in which order, and with which rights."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime

import pytest

from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.kernel import durable_files
from tests.memory.opened import open_file

MEMORY = Memory(MemoryId("mem_1"), "The disk fills on Fridays.", (), datetime(2026, 11, 23, tzinfo=UTC))


@pytest.fixture
def synced(monkeypatch):
    """The kinds of what was fsynced, in order."""
    kinds, fsync = [], os.fsync

    def spy(descriptor):
        kinds.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    return kinds


def test_a_replaced_file_is_on_the_disk_before_its_folder(tmp_path, synced):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    durable_files.replace(path, b"new")

    assert synced == ["file", "folder"]
    assert path.read_bytes() == b"new"


def test_a_memory_that_is_remembered_again_is_on_the_disk_before_it_is_acknowledged_again(tmp_path, synced):
    open_file(tmp_path / "agent").append(MEMORY)
    synced.clear()

    assert open_file(tmp_path / "agent").append(MEMORY) == MEMORY

    assert "file" in synced


def test_rights_stay_what_people_made_them_and_the_record_is_its_owners_alone(tmp_path):
    file = open_file(tmp_path / "agent")
    file.append(MEMORY)
    file.path.chmod(0o600)

    file.edit(MEMORY.memory_id, "The disk fills on Mondays.", None)

    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE((file.path.parent / ".MEMORY.md.acknowledged").stat().st_mode) == 0o600
