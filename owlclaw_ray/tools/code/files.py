"""Opening and replacing files whose paths were judged."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from owlclaw_ray.tools.failure import ToolFailureError

_KINDS = {
    errno.ENOENT: "file_not_found",
    errno.ENOTDIR: "file_not_found",
    errno.EISDIR: "not_a_file",
    errno.ELOOP: "denied",
    errno.ENAMETOOLONG: "invalid_path",
}

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a folder is entered; with O_PATH, where there is one, the right to search it is enough."""
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def told(shown: str) -> Iterator[None]:
    """Turn an OSError into a ToolFailureError that names the path as `shown`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ToolFailureError(
            _KINDS.get(error.errno or 0, "execution_failed"), f"{shown}: {reason}", details={"path": shown}
        ) from error


@contextmanager
def entered(folder: Path, shown: str, *, make: bool = False) -> Iterator[int]:
    """Yield a descriptor of a folder whose path was judged, reached through no link; with `make`, make what is missing.

    Names that are opened relative to it stay in this folder, whatever becomes of its path. Raises ToolFailureError.
    """
    with told(shown):
        descriptor = os.open(folder.anchor, _FOLDER)
    try:
        for part in folder.parts[1:]:
            with told(shown):
                inner = _step(part, descriptor, shown, make=make)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _step(name: str, within: int, shown: str, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=within)
    try:
        return os.open(name, _FOLDER, dir_fd=within)
    except OSError:
        if stat.S_ISLNK(os.stat(name, dir_fd=within, follow_symlinks=False).st_mode):
            raise ToolFailureError("denied", f"{shown} was changed into a link", details={"path": shown}) from None
        raise


def open_regular(path: Path, shown: str) -> BinaryIO:
    """Open a regular file that is where its judged path says, no link in between; raises ToolFailureError.

    Pipes and devices are refused before a byte is read: they may block, or never end.
    """
    with entered(path.parent, shown) as folder, told(shown):
        descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ToolFailureError("not_a_file", f"{shown} is no regular file", details={"path": shown})
    return os.fdopen(descriptor, "rb")


def read_whole(path: Path, shown: str, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes; raises ToolFailureError."""
    with open_regular(path, shown) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ToolFailureError("too_large", f"{shown} has more than {limit} bytes", details={"path": shown})
    return content


def create(path: Path, content: bytes, shown: str) -> None:
    """Make a file that does not exist yet; raises ToolFailureError (`path_conflict` if it does). A failure leaves none."""
    with entered(path.parent, shown) as folder, told(shown):
        try:
            descriptor = os.open(path.name, _NEW_FILE, 0o666, dir_fd=folder)
        except FileExistsError:
            raise ToolFailureError(
                "path_conflict",
                f"{shown} exists. Read it first; then edit it, or set overwrite to true.",
                details={"path": shown},
            ) from None
        with _removed_on_failure(path.name, folder):
            _fill(descriptor, content)


def replace(path: Path, content: bytes, shown: str) -> None:
    """Give an existing file another content, or, if it fails, leave it as it was. It keeps its mode."""
    with entered(path.parent, shown) as folder, told(shown):
        mode = stat.S_IMODE(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode)
        draft = f".owlclaw-{secrets.token_hex(8)}"
        descriptor = os.open(draft, _NEW_FILE, 0o600, dir_fd=folder)
        with _removed_on_failure(draft, folder):
            _fill(descriptor, content, mode)
            os.replace(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)


@contextmanager
def _removed_on_failure(name: str, folder: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def _fill(descriptor: int, content: bytes, mode: int | None = None) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
        if mode is not None:
            os.fchmod(descriptor, mode)
