"""The double as a program, in the time of the day: prints its token, runs until it is ended; SIGUSR1 has it go down, SIGUSR2 come back."""

from __future__ import annotations

import signal
import threading

from owlclaw_ray.kernel.system_clock import SystemClock
from tests.hatchet_engine.engine import HatchetEngine

_RING_SECONDS = 0.2


def main() -> None:
    """Ring for what is due, again and again."""
    down, up = threading.Event(), threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: down.set())
    signal.signal(signal.SIGUSR2, lambda *_: up.set())
    with HatchetEngine(SystemClock().now) as engine:
        print(engine.token, flush=True)  # noqa: T201
        while True:
            if down.wait(_RING_SECONDS):
                with engine.outage():
                    up.wait()
                down.clear()
                up.clear()
            engine.records.ring()


if __name__ == "__main__":
    main()
