"""The connection between the worker and its parent: rings go one way, their results the other.

It is a pair of connected sockets, one of which is the worker's standard input. So no other process can connect to it, it works on any
node, and it ends for each side when the other is gone. The messages are lines of JSON, the options first.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from asyncio import AbstractEventLoop, Future, StreamReader, StreamWriter, Task
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import BinaryIO

import msgspec
import orjson

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.errors import OwlClawError, RuntimeUnavailableError
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.schedules.api import Alarm
from owlclaw_ray.schedules.hatchet.options import HatchetOptions

ANSWER_SECONDS = 10.0

Ring = Callable[[Sequence[ScheduleId]], Awaitable[Sequence[Alarm]]]
"""See ScheduleFirer.ring."""

logger = logging.getLogger(__name__)


class WorkerPipe:
    """The worker's end."""

    def __init__(self, end: socket.socket, lines: BinaryIO) -> None:
        """Read the options from `lines`, the file of `end`; raises ValueError if it ends before them."""
        self._end, self._lines = end, lines
        self._sending, self._numbers = threading.Lock(), count()
        self._waiting: dict[int, tuple[AbstractEventLoop, Future[JsonObject]]] = {}
        self.options = msgspec.json.decode(self._lines.readline(), type=HatchetOptions)

    def listen(self) -> None:
        """Deliver answers until the connection ends. It blocks."""
        for line in self._lines:
            answer: JsonObject = orjson.loads(line)
            asked = self._waiting.get(int(str(answer["number"])))
            if asked is not None:
                loop, future = asked
                loop.call_soon_threadsafe(_resolve, future, answer)

    async def ring(self, schedule_id: str) -> JsonObject:
        """Have the runtime fire the schedule if it is due; return its answer.

        Raises RuntimeUnavailableError if that failed, TimeoutError without an answer within ANSWER_SECONDS.
        """
        loop = asyncio.get_running_loop()
        number, future = next(self._numbers), loop.create_future()
        self._waiting[number] = loop, future
        try:
            with self._sending:
                self._end.sendall(orjson.dumps({"number": number, "schedule_id": schedule_id}) + b"\n")
            async with asyncio.timeout(ANSWER_SECONDS):
                answer: JsonObject = await future
        finally:
            del self._waiting[number]
        if "error" in answer:
            raise RuntimeUnavailableError(str(answer["error"]))
        return {"schedule_id": schedule_id, "at": answer["at"]}


async def answer_rings(reader: StreamReader, writer: StreamWriter, ring: Ring) -> None:
    """Answer rings until the worker is gone."""
    ringing: set[Task[None]] = set()
    try:
        while line := await reader.readline():
            task = asyncio.create_task(_answer(orjson.loads(line), writer, ring))
            ringing.add(task)
            task.add_done_callback(ringing.discard)
    except ConnectionError:
        return
    finally:
        for task in ringing:
            task.cancel()


async def _answer(rung: JsonObject, writer: StreamWriter, ring: Ring) -> None:
    try:
        (alarm,) = await ring([ScheduleId(str(rung["schedule_id"]))])
        said: JsonObject = {"at": None if alarm.at is None else alarm.at.isoformat()}
    except OwlClawError as error:
        said = {"error": str(error)}
    except Exception as error:
        logger.exception("a ring from Hatchet failed; Hatchet retries it")
        said = {"error": type(error).__name__}
    writer.write(orjson.dumps({"number": rung["number"], **said}) + b"\n")


def _resolve(future: Future[JsonObject], answer: JsonObject) -> None:
    if not future.done():
        future.set_result(answer)
