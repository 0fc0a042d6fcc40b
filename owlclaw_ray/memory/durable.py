"""Writes that are on the disk when they return."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Create the folder and those above it that are missing, each entered durably in its parent."""
    if folder.exists():
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the folder's list of files durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append(path: Path, data: bytes) -> os.stat_result:
    """Add the data at the end of an existing file and return what the file is then.

    If it fails with OSError, the file is as long as before.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, data: bytes) -> None:
    """Give the file this content, or leave it as it is: a crash or an OSError leaves one or the other."""
    draft = path.with_name(path.name + ".new")
    try:
        with draft.open("wb", buffering=0) as file:
            _write_all(file.fileno(), data)
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
