"""Who sits at the command line."""

from __future__ import annotations

import getpass
import os


def person() -> str:
    """Return the name of the operating system's user, or the number of one that has no name, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
