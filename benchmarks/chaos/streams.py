"""Two thousand clients that follow the events of a few runs at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from urllib.parse import urlsplit

from benchmarks.chaos.client import Client
from benchmarks.chaos.workload import watched_order
from benchmarks.question import Say

STREAMS = 2_000
_RUNS = 20
_OPEN_SECONDS = 60.0
_REFUSED, _OPENED = 503, 200


async def follow_all(
    url: str, client: Client, strike: int, seconds: float, say: Say, *, streams: int = STREAMS
) -> list[str]:
    """Open the streams, keep them open for so many seconds; return what they were answered and should not have been.

    An answer is right if it is 200, or 503 with Retry-After; a connection that breaks is nobody's fault here, since other
    strikes may overlap.
    """
    watched = [watched_order(strike, index, seconds) for index in range(_RUNS)]
    run_ids = [run_id for run_id in await asyncio.gather(*map(client.submit_now, watched)) if run_id]
    answers: Counter[str] = Counter()
    async with asyncio.TaskGroup() as group:
        for number in range(streams):
            group.create_task(_follow(url, run_ids[number % len(run_ids)], seconds, answers))
    say(f"streams: {dict(answers.most_common())}")
    right = {"opened", "refused with Retry-After", "broken"}
    return [f"{count} event streams were answered {what}" for what, count in answers.items() if what not in right]


async def _follow(url: str, run_id: str, seconds: float, answers: Counter[str]) -> None:
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            request = f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n"
            writer.write(request.encode())
            head = await reader.readuntil(b"\r\n\r\n")
    except (OSError, asyncio.IncompleteReadError):
        answers["broken"] += 1
        return
    answers[_judged(head)] += 1
    with contextlib.suppress(OSError):
        async with asyncio.timeout(seconds):
            while await reader.read(65_536):
                continue
    writer.close()


def _judged(head: bytes) -> str:
    status = int(head.split(b" ", 2)[1])
    if status == _OPENED:
        return "opened"
    if status == _REFUSED and b"\r\nretry-after:" in head.lower():
        return "refused with Retry-After"
    return str(status)
