"""The share of CPU time for background work: small while other processes want the cores, larger while they are idle.

The work can be deferred only while its buffer has room: the fuller the buffer, the larger the share, even on a busy machine. So it
keeps pace with its input, and nothing is lost for lack of CPU time.

Whether others want the cores shows in the work itself: at the lowest priority it waits for a core as soon as they do.
"""

from __future__ import annotations

LEAST, MOST = 0.04, 0.25
"""The share of all cores on a busy machine, and on an idle one."""
_CROWDED = 0.1
"""Waiting for a core for this part of the work's time means that others want it."""
_TELLING = 0.005
"""Shorter work, in seconds, says nothing about other processes."""
_FULL = 0.5
"""The fullness of the buffer from which on the share is the largest."""
_UP, _DOWN = 1.25, 0.5


class CpuThrottle:
    """Returns how long to rest after work. It starts with the share of a busy machine."""

    def __init__(self, cores: int) -> None:
        self._cores, self._share = cores, LEAST

    def rest_after(self, worked: float, waited: float, fullness: float = 0.0) -> float:
        """Return the seconds of rest that keep to the share, after `worked` seconds of CPU time and `waited` of waiting for a core.

        `fullness`, from 0 to 1, is that of the buffer.
        """
        if worked >= _TELLING:
            crowded = waited > _CROWDED * worked
            self._share = max(LEAST, min(MOST, self._share * (_DOWN if crowded else _UP)))
        pressed = LEAST + (MOST - LEAST) * min(1.0, fullness / _FULL)
        return worked * max(0.0, 1 / (max(self._share, pressed) * self._cores) - 1)
