"""Two files change names in one step, where the system has such a call: no moment shows one missing, and neither is lost."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

_HERE = -100
"""Linux's AT_FDCWD: paths are as they stand."""
_LINUX_EXCHANGE = 2
_DARWIN_SWAP = 2
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}


def swap(one: Path, other: Path) -> bool:
    """Have the two files change names; return False where the file system, such as NFS, or the system cannot.

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
