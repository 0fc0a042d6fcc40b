"""What the runtime's processes complained of: tracebacks in their logs, by their last line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_TRACEBACK = "Traceback (most recent call last):"
_LAST_LINE = re.compile(r"^[\w.]+(Error|Exception|Interrupt|Exit|Timeout|Group)\b.*")
_NUMBERS = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\b(run|act|host|req|call|key)_\w+|\d+")


def complaints(folder: Path) -> Counter[str]:
    """Return how often each kind of traceback is in the logs of all processes of all clusters; what varies in its last line is `…`."""
    found: Counter[str] = Counter()
    for session in (*folder.glob("ray/session_*"), *folder.glob("*/ray/session_*")):
        if not session.is_symlink():
            for log in (*session.glob("logs/worker-*.err"), *session.glob("logs/serve/*.log")):
                found.update(_last_lines(log))
    return found


def _last_lines(log: Path) -> Iterator[str]:
    inside = False
    for line in log.read_text(errors="replace").splitlines():
        if _TRACEBACK in line:
            inside = True
        elif inside and _LAST_LINE.match(line.strip()):
            inside = False
            yield _NUMBERS.sub("…", line.strip())[:200]
