"""Writes that are on the disk when they return."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Create the folder and those above it that are missing, each entered durably in its parent."""
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


def append(path: Path, data: bytes) -> None:
    """Add the data at the end of an existing file. If it fails with OSError, the file is as long as before."""
    with path.open("r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            _write_all(file.fileno(), data)
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                file.truncate(size)
            raise


def replace(path: Path, data: bytes) -> None:
    """Give the file this content, or leave it as it is: a crash leaves one or the other."""
    draft = path.with_name(path.name + ".new")
    with draft.open("wb", buffering=0) as file:
        _write_all(file.fileno(), data)
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def truncate(path: Path, size: int) -> None:
    """Cut the file to `size` bytes."""
    with path.open("r+b", buffering=0) as file:
        file.truncate(size)
        os.fsync(file.fileno())


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
