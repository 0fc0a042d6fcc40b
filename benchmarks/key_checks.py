"""What it costs to find out whose a request is: the gate around an application that reads the body and answers, and that application alone.

The gate, the authenticator, its store and the key are the server's own. HTTP is left out: how it varies is more than what is looked for.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.testing.in_process import in_process_runtime
from serve.access_gate import AccessGate
from serve.route_check import PathOperations
from serve.streams import OpenRequestLimit
from serve.triggers import TriggerRoutes

_PATH = "/v1/agents/bench:7/triggers"
_BODY = b'{"payload":{"n":1}}'
REQUESTS, ROUNDS = 5_000, 7


def key_check_ms(requests: int = REQUESTS, rounds: int = ROUNDS) -> float:
    """Return the CPU time, in milliseconds, that the gate adds to a request with a key that was checked a moment ago: the least of some
    rounds with it, less the least of those without it.
    """
    with TemporaryDirectory(prefix="owl-bench-") as folder:
        return asyncio.run(_measured(Path(folder), requests, rounds))


async def _measured(folder: Path, requests: int, rounds: int) -> float:
    (folder / "agents").mkdir()
    async with in_process_runtime(agents_dir=folder / "agents", data_dir=folder / "data") as runtime:
        key = (await runtime.keys.create(LOCAL, KeyRequest("bench", ("runs:write",)))).text
        paths = PathOperations()
        paths.add(TriggerRoutes(runtime, SystemClock(), OpenRequestLimit(1)).router().routes)
        gate = AccessGate(_application, paths, runtime.authenticator)
        headers = [(b"host", b"localhost:8700"), (b"authorization", f"Bearer {key}".encode())]
        with_key, without = list[float](), list[float]()
        for _ in range(rounds):
            without.append(await _cpu_ms(_application, headers, requests))
            with_key.append(await _cpu_ms(gate, headers, requests))
        return (min(with_key) - min(without)) / requests


async def _cpu_ms(application: ASGIApp, headers: list[tuple[bytes, bytes]], requests: int) -> float:
    statuses = set[int]()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.add(message["status"])

    async def receive() -> Message:
        return {"type": "http.request", "body": _BODY, "more_body": False}

    begun = time.process_time()
    for _ in range(requests):
        scope: Scope = {"type": "http", "method": "POST", "path": _PATH, "headers": headers, "query_string": b""}
        await application(scope, receive, send)
    spent = time.process_time() - begun
    if statuses != {202}:
        raise RuntimeError(f"the gate answered {statuses}")
    return 1_000 * spent


async def _application(_scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 202, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})
