"""Which machine this is."""

from __future__ import annotations

import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot_id() -> str:
    """Return what tells this machine, since it was started, from all others: processes with the same one have the same monotonic clock.

    Where the system has no such id, it is the machine's name.
    """
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return socket.gethostname()
