"""Opening and replacing files whose paths were judged."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
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


def open_regular(path: Path, shown: str) -> BinaryIO:
    """Open a regular file that is where its judged path says, no link in between; raises ToolFailureError.

    Pipes and devices are refused before a byte is read: they may block, or never end.
    """
    with told(shown):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ToolFailureError("not_a_file", f"{shown} is no regular file", details={"path": shown})
    if os.path.realpath(path) != str(path):
        os.close(descriptor)
        raise ToolFailureError("denied", f"{shown} was changed into a link", details={"path": shown})
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
    with told(shown):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            raise ToolFailureError(
                "path_conflict",
                f"{shown} exists. Read it first; then edit it, or set overwrite to true.",
                details={"path": shown},
            ) from None
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise


def replace(path: Path, content: bytes, shown: str) -> None:
    """Give an existing file another content, or, if it fails, leave it as it was. It keeps its mode."""
    with told(shown):
        mode = stat.S_IMODE(path.lstat().st_mode)
        descriptor, name = tempfile.mkstemp(prefix=".owlclaw-", dir=path.parent)
        draft = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), mode)
            draft.replace(path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
