"""When the runtime's processes look for garbage that reference counts do not free, and what they give back."""

from __future__ import annotations

import ctypes
import gc

_NEW_CONTAINERS = 50_000
_YOUNG_ROUNDS, _MIDDLE_ROUNDS = 10, 50


def collect_rarely() -> None:
    """Leave what is there by now out of all collections, and collect seldom; to be called once all is imported.

    These processes hold much that lives long (modules, the states of thousands of agents) and make little garbage in cycles, so
    that Python's defaults walk the same objects again and again. At most some 50,000 containers more than needed stay in memory.
    What importing took and freed, a megabyte or two, goes back to the system.
    """
    gc.collect()
    _give_back()
    gc.freeze()
    gc.set_threshold(_NEW_CONTAINERS, _YOUNG_ROUNDS, _MIDDLE_ROUNDS)


def _give_back() -> None:
    """Return free pages of the C heap to the system: GNU's C library keeps them, and others have no malloc_trim."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
