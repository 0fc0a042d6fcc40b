"""How much of a machine's cores work that can wait takes: little while others wait for them too, more while they are idle.

It can wait only as long as there is room for what waits: the fuller the room, the more it takes, whoever wants the cores. So
it settles where it keeps pace with what comes, and nothing is lost for want of CPU time.

Whether others want the cores shows in the work itself: at the lowest priority it waits for a core as soon as they do.
"""

from __future__ import annotations

LEAST, MOST = 0.04, 0.25
"""Of all cores: what it takes on a machine that is busy, and on one that is idle."""
_CROWDED = 0.1
"""Waiting for a core that is as long as this part of the work says that others want it."""
_TELLING = 0.005
"""Seconds of work from which on its waiting says something."""
_FULL = 0.5
"""How full the room is when it takes the most."""
_UP, _DOWN = 1.25, 0.5


class CpuThrottle:
    """Says how long to rest after work. It begins as on a machine that is busy."""

    def __init__(self, cores: int) -> None:
        self._cores, self._share = cores, LEAST

    def rest_after(self, worked: float, waited: float, fullness: float = 0.0) -> float:
        """Return the seconds of rest that keep to the share, after so many of CPU time, and of waiting for a core meanwhile.

        `fullness`, from 0 to 1, is how full the room is for what waits: from the half on it takes the most.
        """
        if worked >= _TELLING:
            crowded = waited > _CROWDED * worked
            self._share = max(LEAST, min(MOST, self._share * (_DOWN if crowded else _UP)))
        pressed = LEAST + (MOST - LEAST) * min(1.0, fullness / _FULL)
        return worked * max(0.0, 1 / (max(self._share, pressed) * self._cores) - 1)
