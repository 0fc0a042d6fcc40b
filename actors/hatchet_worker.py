"""The process that Hatchet rings, with the runtime's logs: `python -m actors.hatchet_worker LEVEL FORMAT HEALTH_PORT`.

The SDK's worker has a child, which imports this module too, under another name and with the same arguments.
"""

from __future__ import annotations

import logging
import re
import sys
import time

from actors.logs import LogPlan, configure
from owlclaw_ray.schedules.hatchet.worker import work

_SDK = "hatchet"
_DIGITS = re.compile(r"\d+")
_SECONDS = 60.0


class LogThrottle(logging.Filter):
    """Lets a message through once a minute, whatever numbers are in it, and no traces: what is wrong with the engine is what it says."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See logging.Filter.filter."""
        now, what = time.monotonic(), _DIGITS.sub("", record.getMessage())
        if now - self._said.get(what, -_SECONDS) < _SECONDS:
            return False
        self._said[what] = now
        record.exc_info = record.exc_text = None
        return True


def configure_logs(plan: LogPlan) -> None:
    """Have the SDK log as the runtime does. Its `info`, three lines for every ring, is our `debug`."""
    configure(plan)
    ours, sdk = logging.getLogger("actors"), logging.getLogger(_SDK)
    sdk.handlers[:], sdk.propagate = ours.handlers, False
    sdk.setLevel(ours.level if ours.level == logging.DEBUG else max(ours.level, logging.WARNING))
    if ours.level != logging.DEBUG:
        sdk.addFilter(LogThrottle())


def main() -> None:
    """Work until it is told to end, by a signal or by the end of its line."""
    work(int(sys.argv[3]))


if __name__ in {"__main__", "__mp_main__"}:
    configure_logs(LogPlan(sys.argv[1], sys.argv[2]))
if __name__ == "__main__":
    main()
