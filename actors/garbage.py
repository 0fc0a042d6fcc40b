"""When the runtime's processes look for garbage that reference counts do not free."""

from __future__ import annotations

import gc

_NEW_CONTAINERS = 50_000
_YOUNG_ROUNDS, _MIDDLE_ROUNDS = 10, 50


def collect_rarely() -> None:
    """Leave what is there by now out of all collections, and collect seldom.

    These processes hold much that lives long (modules, the states of thousands of agents) and make little garbage in cycles, so
    that Python's defaults walk the same objects again and again. At most some 50,000 containers more than needed stay in memory.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_CONTAINERS, _YOUNG_ROUNDS, _MIDDLE_ROUNDS)
