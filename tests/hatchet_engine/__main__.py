"""The double as a program, in the time of the day: prints its token, then runs until it is ended; SIGUSR1 makes it restart."""

from __future__ import annotations

import signal
import threading

from owlclaw_ray.adapters.system_clock import SystemClock
from tests.hatchet_engine.engine import HatchetEngine

_RING_SECONDS = 0.2


def main() -> None:
    """Ring for what is due, again and again."""
    restart = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: restart.set())
    with HatchetEngine(SystemClock().now) as engine:
        print(engine.token, flush=True)  # noqa: T201
        while True:
            if restart.wait(_RING_SECONDS):
                restart.clear()
                with engine.outage():
                    threading.Event().wait(3)
            engine.records.ring()


if __name__ == "__main__":
    main()
