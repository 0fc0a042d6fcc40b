"""The client: it submits every order until it has a 202, whatever happens to its connections, and writes down every answer."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from benchmarks.chaos.workload import Manner, Order

_AT_ONCE = 16
_TIMEOUT = 10.0
_PAUSE = 0.2
_PROBLEM = "application/problem+json"
_ACCEPTED = 202


class Client:
    """Submits orders at a given rate, but none beyond `gate`, to each of the URLs in turns. Lines of `answers` are all that it was told.

    The first `ahead` orders go at once.
    """

    def __init__(
        self, urls: Sequence[str], orders: Iterator[Order], *, rate: float, answers: Path, ahead: int = 0
    ) -> None:
        self._urls, self._orders, self._interval, self._ahead = cycle(urls), orders, 1 / rate, ahead
        self._answers = answers
        self._next_at = time.monotonic()
        self._turn = asyncio.Lock()
        self._opened, self._advanced, self._asking = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._cancels: set[asyncio.Task[None]] = set()
        self.gate = 0
        self.accepted = 0
        self.troubles: Counter[str] = Counter()
        """How often which kind of failure was met with a retry."""

    def open_until(self, number: int) -> None:
        """Let all orders below that number go."""
        self.gate = number
        self._opened.set()

    async def has_accepted(self, number: int) -> None:
        """Return when so many orders have had their answer."""
        while self.accepted < number:
            self._advanced.clear()
            await self._advanced.wait()

    async def next_request(self, seconds: float) -> None:
        """Return when the next request is on its way, or after so many seconds."""
        self._asking.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asking.wait()

    async def run(self) -> None:
        """Return when every order has its 202, and every cancellation its answer."""
        limits = httpx.Limits(max_connections=2 * _AT_ONCE)
        async with httpx.AsyncClient(timeout=_TIMEOUT, limits=limits, trust_env=False) as http:
            await asyncio.gather(*(self._work(http) for _ in range(_AT_ONCE)))
            await asyncio.gather(*self._cancels)

    async def submit_now(self, order: Order) -> str | None:
        """Submit an order beside the others; return the id of its run, None if it was refused for good."""
        async with httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False) as http:
            return await self._submit(http, order)

    async def _work(self, http: httpx.AsyncClient) -> None:
        while (order := await self._take()) is not None:
            if order.manner is Manner.HANG_UP:
                await self._hang_up(order)
            run_id = await self._submit(http, order)
            self.accepted += 1
            self._advanced.set()
            if run_id is None:
                continue
            if order.manner is Manner.REPEAT:
                await self._submit(http, order)
            if order.manner is Manner.CANCEL:
                task = asyncio.create_task(self._cancel(http, order, run_id))
                self._cancels.add(task)
                task.add_done_callback(self._cancels.discard)

    async def _take(self) -> Order | None:
        async with self._turn:
            order = next(self._orders, None)
            while order is not None and order.number >= self.gate:
                self._opened.clear()
                await self._opened.wait()
            if order is not None and order.number >= self._ahead:
                await asyncio.sleep(self._next_at - time.monotonic())
                self._next_at = max(self._next_at, time.monotonic() - 1.0) + self._interval
            return order

    async def _submit(self, http: httpx.AsyncClient, order: Order) -> str | None:
        """Return the run's id; None if the trigger was refused for good."""
        while True:
            path, headers = f"/v1/agents/{order.agent}/triggers", {"Idempotency-Key": order.key}
            answer = await self._post(http, path, order.body(), headers)
            if answer is None:
                continue
            body = _content(answer)
            if answer.status_code == _ACCEPTED:
                self._note("accepted", order, run_id=body["run_id"], duplicate=body["duplicate"])
                return str(body["run_id"])
            self._note("refused", order, status=answer.status_code, detail=body)
            return None

    async def _cancel(self, http: httpx.AsyncClient, order: Order, run_id: str) -> None:
        await asyncio.sleep(order.cancel_after)
        self._note("cancelling", order, run_id=run_id)
        while (answer := await self._post(http, f"/v1/runs/{run_id}/cancel", b"", {})) is None:
            continue
        self._note("cancel", order, run_id=run_id, status=answer.status_code)

    async def _post(
        self, http: httpx.AsyncClient, path: str, body: bytes, headers: dict[str, str]
    ) -> httpx.Response | None:
        """Return an answer that is final, None (after a pause) for one that asks to try again or for none."""
        self._asking.set()
        try:
            answer = await http.post(next(self._urls) + path, content=body, headers=headers)
        except httpx.TransportError as error:
            self.troubles[type(error).__name__] += 1
        else:
            if answer.is_success or _is_final(answer):
                return answer
            self.troubles[f"HTTP {answer.status_code} {_author(answer)}"] += 1
        await asyncio.sleep(_PAUSE)
        return None

    async def _hang_up(self, order: Order) -> None:
        """Send the request and close the connection without waiting for the answer."""
        parts = urlsplit(next(self._urls))
        body = order.body()
        head = (
            f"POST /v1/agents/{order.agent}/triggers HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Idempotency-Key: {order.key}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(head.encode() + body)
            await writer.drain()
            writer.close()
        except OSError as error:
            self.troubles[type(error).__name__] += 1

    def _note(self, what: str, order: Order, **facts: Any) -> None:
        line = {"what": what, "number": order.number, "key": order.key, "agent": order.agent, **facts}
        with self._answers.open("ab") as log:
            log.write(orjson.dumps({**line, "wall_ns": time.time_ns()}) + b"\n")


def _author(answer: httpx.Response) -> str:
    return "of the API" if answer.headers.get("content-type") == _PROBLEM else "of a proxy"


def _is_final(answer: httpx.Response) -> bool:
    """Whether a sender would believe that it is refused for good: by the API, or by a proxy."""
    return answer.status_code < 500 and answer.status_code != 429


def _content(answer: httpx.Response) -> Any:
    """Return the JSON of an answer, or the beginning of another text."""
    return orjson.loads(answer.content) if "json" in answer.headers.get("content-type", "") else answer.text[:200]
