"""Writes that are on the disk when they return, beside people whose editors hold no lock.

A file that is new is for this user only, whatever the umask; one that replaces another has its rights.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from msgspec import Struct

_HERE = -100
"""Linux's AT_FDCWD: paths are as they stand."""
_LINUX_EXCHANGE = 2
_DARWIN_SWAP = 2
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}


class FileChangedError(Exception):
    """The file was changed after it was read; what was to be written does not fit it."""


class FileVersion(Struct, frozen=True, array_like=True):
    """What differs between two saves of a file."""

    inode: int
    modified_ns: int
    size: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileVersion:
        """Return the version with this status."""
        return cls(status.st_ino, status.st_mtime_ns, status.st_size)

    @property
    def modified(self) -> datetime:
        """When the file was written last, in whole seconds."""
        return datetime.fromtimestamp(self.modified_ns // 1_000_000_000, UTC)


def version_of(path: Path) -> FileVersion | None:
    """Return what the file is now; None if there is none."""
    try:
        return FileVersion.of(path.stat())
    except FileNotFoundError:
        return None


def make_folder(folder: Path) -> None:
    """Create the folder and those above it that are missing, for this user only, each entered durably in its parent."""
    if folder.exists():
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the folder's list of files durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append(path: Path, data: bytes, expected: FileVersion | None = None, ending: bytes = b"") -> FileVersion:
    """Add the data at the end of an existing file and return what the file is then.

    When it returns the path names a file with the data in it, after what it ended with. Raises FileChangedError if the file is
    not the expected one, or was replaced or overwritten meanwhile: the data may be in it or not. If it fails with OSError, the
    file is as long as before.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    try:
        before = FileVersion.of(os.fstat(descriptor))
        if expected is not None and before != expected:
            raise FileChangedError
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        except OSError:
            with suppress(OSError):  # what was written after the size is cut, if no other process wrote there
                written = os.pread(descriptor, len(data) + 1, before.size)
                if written and data.startswith(written):
                    os.ftruncate(descriptor, before.size)
            raise
        after = FileVersion.of(os.fstat(descriptor))
        named = version_of(path)
        end = os.pread(descriptor, len(ending) + len(data), before.size - len(ending))
        if named is None or named.inode != after.inode or end != ending + data:
            raise FileChangedError
        return after
    finally:
        os.close(descriptor)


def create(path: Path, data: bytes) -> FileVersion:
    """Make the file, whole or not at all; raises FileChangedError if there is one already."""
    draft, version = _drafted(path, data)
    try:
        _enter(draft, path)
    finally:
        _remove(draft)
    sync_folder(path.parent)
    return version


def replace(path: Path, data: bytes) -> None:
    """Give the file this content whatever it has: a crash or an OSError leaves the one or the other."""
    draft, _ = _drafted(path, data)
    try:
        draft.rename(path)
    except OSError:
        _remove(draft)
        raise
    sync_folder(path.parent)


def exchange(path: Path, data: bytes, expected: FileVersion, kept: Path) -> FileVersion:
    """Give the file this content if it is the expected one still, and return what it is then; `kept` is what it was.

    A crash or an OSError leaves the one or the other. Raises FileChangedError if the file was saved by another, at whatever
    instant: then that save is what the path names. If it was saved once more while that was put back, `kept` is one of the two.
    What `kept` was before is gone. Without a call that swaps files the path names nothing for an instant, and `<path>.next` is
    there then: see `instead`.
    """
    draft, version = _drafted(path, data)
    try:
        _put_in_place(draft, version, path, expected, kept)
    except (OSError, FileChangedError):
        _remove(draft)
        raise
    sync_folder(path.parent)
    return version


def instead(path: Path, kept: Path) -> Path | None:
    """Return where to read a file that is not there because it is being replaced, or was when a crash came; else None."""
    return kept if path.with_name(path.name + ".next").exists() else None


def complete(path: Path, kept: Path) -> None:
    """Put back the file that a crash during its replacement left without its name, if one did."""
    if instead(path, kept) is not None:
        with suppress(FileChangedError):
            _enter(kept, path)
            sync_folder(path.parent)
        _remove(path.with_name(path.name + ".next"))


def _put_in_place(draft: Path, version: FileVersion, path: Path, expected: FileVersion, kept: Path) -> None:
    if version_of(path) != expected:
        raise FileChangedError
    draft.rename(kept)
    try:
        has_swapped = swap(kept, path)
    except FileNotFoundError:
        _remove(kept)
        raise FileChangedError from None
    if not has_swapped:
        _move(kept, path, expected, path.with_name(path.name + ".next"))
    elif version_of(kept) != expected:
        # give the path the other's save, which is `kept`, unless there is a newer one already
        with suppress(FileNotFoundError):
            swap(kept, path)
            if version_of(kept) == version:
                _remove(kept)
            else:
                swap(kept, path)
        raise FileChangedError


def swap(one: Path, other: Path) -> bool:
    """Swap the names of two files atomically; return False where the file system, such as NFS, or the system cannot.

    Raises FileNotFoundError if one of them is not there, OSError if it fails.
    """
    call = _system_call()
    if call is None:
        return False
    if call(os.fsencode(one), os.fsencode(other)) == 0:
        return True
    failure = ctypes.get_errno()
    if failure in _UNSUPPORTED:
        return False
    raise OSError(failure, os.strerror(failure), str(one), None, str(other))


@cache
def _system_call() -> Callable[[bytes, bytes], int] | None:
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        renamex = getattr(library, "renamex_np", None)
        return None if renamex is None else lambda one, other: int(renamex(one, other, _DARWIN_SWAP))
    renameat2 = getattr(library, "renameat2", None)
    return None if renameat2 is None else lambda one, other: int(renameat2(_HERE, one, _HERE, other, _LINUX_EXCHANGE))


def _move(kept: Path, path: Path, expected: FileVersion, coming: Path) -> None:
    """Do what a swap does in steps: the draft, which is `kept`, makes room for the present file, then takes its place."""
    kept.rename(coming)
    try:
        path.rename(kept)
    except FileNotFoundError:
        _remove(coming)
        raise FileChangedError from None
    is_theirs = version_of(kept) != expected
    try:
        _enter(kept if is_theirs else coming, path)
    except FileChangedError:
        _remove(coming)
        raise
    _remove(coming)
    if is_theirs:
        _remove(kept)
        raise FileChangedError


def _enter(file: Path, path: Path) -> None:
    """Give the file this name too, or instead where there are no hard links; raises FileChangedError if there is such a file."""
    try:
        path.hardlink_to(file)
    except FileExistsError:
        raise FileChangedError from None
    except OSError:
        if path.exists():
            raise FileChangedError from None
        file.rename(path)


def _drafted(path: Path, data: bytes) -> tuple[Path, FileVersion]:
    draft = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with suppress(FileNotFoundError):
                os.fchmod(descriptor, path.stat().st_mode & 0o777)
            _write_all(descriptor, data)
            os.fsync(descriptor)
            return draft, FileVersion.of(os.fstat(descriptor))
        finally:
            os.close(descriptor)
    except OSError:
        _remove(draft)
        raise


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
