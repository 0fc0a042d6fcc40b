"""The load on a peer that runs in the caller's own process. Standard library only, as all that a peer's interpreter runs.

Whoever wants to measure connects to a loopback port and sends a line; see `serve_load`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable

from benchmarks.peers.job import LAST_WORD

Run = Callable[[int], Awaitable[str]]
"""Does the whole job once, for this number, and returns the model's last word."""


async def serve_load(run: Run) -> None:
    """Say where it listens (see `benchmarks.child`), and for each line `{"in_flight": 64, "seconds": 8}` keep that many runs going
    for that long, let them end, and answer how many there were and how long it took, `{"runs": 4711, "seconds": 8.02}`, or what went
    wrong, `{"failed": "Traceback …"}`.
    """
    numbers = itertools.count()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            asked = json.loads(line)
            try:
                runs, seconds = await keep_in_flight(run, numbers, asked["in_flight"], asked["seconds"])
                said: dict[str, object] = {"runs": runs, "seconds": seconds}
            except Exception:  # noqa: BLE001 - whoever asked is told
                said = {"failed": traceback.format_exc()}
            writer.write(json.dumps(said).encode() + b"\n")
        writer.close()

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    print(f"ready http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nobody reads on: a library that prints must not block
    await server.serve_forever()


async def keep_in_flight(run: Run, numbers: itertools.count[int], in_flight: int, seconds: float) -> tuple[int, float]:
    """Return how many runs ended, and the seconds from the first one's start to the last one's end.

    Raises RuntimeError if a run ends with another word than the job does.
    """
    started = time.monotonic()

    async def one_after_the_other() -> int:
        done = 0
        while time.monotonic() - started < seconds:
            last_word = await run(next(numbers))
            if last_word != LAST_WORD:
                raise RuntimeError(f"a run ended with {last_word!r}")
            done += 1
        return done

    counts = await asyncio.gather(*(one_after_the_other() for _ in range(in_flight)))
    return sum(counts), time.monotonic() - started
