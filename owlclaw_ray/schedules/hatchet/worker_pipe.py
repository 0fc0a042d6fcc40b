"""The line between the worker and whoever started it: rings go one way, what came of them goes the other.

It is a pair of connected sockets, one of which is the worker's standard input. So it has no address that others could reach, works on
whatever node the two are, and ends for either when the other one is gone. What is said is lines of JSON, the options first.
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
        """Wait for the options on `lines`, which is what comes in at `end`; raises ValueError if the line ends before they came."""
        self._end, self._lines = end, lines
        self._sending, self._numbers = threading.Lock(), count()
        self._waiting: dict[int, tuple[AbstractEventLoop, Future[JsonObject]]] = {}
        self.options = HatchetOptions.of_json(self._lines.readline())

    def listen(self) -> None:
        """Hand on answers until the line ends. It blocks."""
        for line in self._lines:
            answer: JsonObject = orjson.loads(line)
            asked = self._waiting.get(int(str(answer["number"])))
            if asked is not None:
                loop, future = asked
                loop.call_soon_threadsafe(_resolve, future, answer)

    async def ring(self, schedule_id: str) -> JsonObject:
        """Have the runtime fire what is due of the schedule; return what it says.

        Raises RuntimeUnavailableError if that failed, TimeoutError if it says nothing for some seconds.
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
    """Be the runtime's end, until the worker's is gone."""
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
        logger.exception("a ring of Hatchet failed; it rings again")
        said = {"error": type(error).__name__}
    writer.write(orjson.dumps({"number": rung["number"], **said}) + b"\n")


def _resolve(future: Future[JsonObject], answer: JsonObject) -> None:
    if not future.done():
        future.set_result(answer)
