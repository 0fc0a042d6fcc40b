import fcntl
import gc
from contextlib import contextmanager

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.errors import ToolTimeoutError
from owlclaw_ray.memory.folders import MemoryFolders
from owlclaw_ray.memory.lock import FileLock
from owlclaw_ray.testing.clock import ManualClock
from tests.memory.test_folders import memory, store

TRADER = AgentRef.parse("trader")


@contextmanager
def locked_by_another_process(path):
    """Hold the lock as any other process would: locks of one path exclude one another whoever opened it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_a_lock_that_somebody_keeps_is_given_up_after_its_patience_and_can_be_had_later(tmp_path):
    path = tmp_path / ".lock"
    lock = FileLock(path, patience=0.05)

    with locked_by_another_process(path), pytest.raises(OSError, match=r"has locked it for 0\.05 s"):
        lock.__enter__()
    with lock, lock, pytest.raises(OSError, match="another process has locked it"):
        lock.beside().__enter__()
    with lock.beside():
        pass


def test_a_lock_whose_taking_was_interrupted_lets_go_when_nobody_has_it_any_more(tmp_path, monkeypatch):
    path = tmp_path / ".lock"
    real = fcntl.flock

    def flock(descriptor, operation):
        real(descriptor, operation)
        raise ToolTimeoutError("late")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", flock)
        with pytest.raises(ToolTimeoutError):
            FileLock(path, patience=0.0).__enter__()
    gc.collect()

    with FileLock(path, patience=0.0):
        pass


def test_changes_give_up_while_reading_goes_on_when_the_files_stay_locked(tmp_path):
    folders = MemoryFolders(tmp_path, ManualClock(), patience=0.05)
    store(folders, TRADER, memory(1))

    with locked_by_another_process(folders.folder(TRADER) / ".lock"):
        with pytest.raises(OSError, match="locked it"):
            folders.delete(TRADER, "mem_1")
        assert [each.memory_id for each in folders.memories(TRADER)] == ["mem_1"]

    with folders.file(TRADER), pytest.raises(OSError, match="another call has it"):
        folders.memories(TRADER)
    assert folders.delete(TRADER, "mem_1").memory_id == "mem_1"
