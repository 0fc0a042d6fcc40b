"""Where Ray's own output goes while the runtime is up: out of the way, and to be found after a failure."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path


@contextmanager
def aside(log: Path) -> Iterator[None]:
    """Have what Ray and Serve print in this process written to a file for this user only: most of it warns of what is as it
    should be.
    """
    log.touch(0o600)
    file = log.open("w", encoding="utf-8", buffering=1)
    atexit.register(file.close)
    with redirect_stdout(file), redirect_stderr(file):
        yield


def link_logs(link: Path, temp_dir: Path) -> None:
    """Make the link, in the place of an older one or of logs that were kept."""
    if link.is_symlink():
        link.unlink()
    else:
        shutil.rmtree(link, ignore_errors=True)
    link.symlink_to(temp_dir.resolve() / "session_latest" / "logs")


def keep_logs(link: Path) -> None:
    """Put the logs in the place of the link to them, because their folder goes away; they are for this user only."""
    if link.is_symlink() and link.exists():
        logs = link.resolve()
        link.unlink()
        shutil.copytree(logs, link, ignore_dangling_symlinks=True)
        link.chmod(0o700)
        for path in link.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
