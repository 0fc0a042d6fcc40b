"""Ending in order, whoever asks for it."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def interrupt_on_signals() -> None:
    """Have the first SIGINT or SIGTERM raise KeyboardInterrupt, and the others not disturb the cleaning up."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("interrupted; stopping what was started ...", file=sys.stderr)
    raise KeyboardInterrupt
