"""Lines that others write, in the form of our own JSON logs: one object a line, with `event`, `level`, `logger` and `timestamp`."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable
from datetime import datetime
from typing import TextIO

import orjson
from typing_extensions import override

from owlclaw_ray.domain.json import JsonObject

_MARKS = (":job_id:", ":actor_name:", ":task_name:")
"""How Ray marks whose lines follow, for drivers that print their workers' lines; ours does not."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def json_line(event: str, logger: str, at: datetime | None, *, level: str = "info", **more: str) -> str:
    """Return an event as a line, without its end. `at` is None if nobody knows."""
    entry: JsonObject = {"event": event, "level": level, "logger": logger, **more}
    if at is not None:
        entry["timestamp"] = at.isoformat().replace("+00:00", "Z")
    return orjson.dumps(entry).decode()


def converted(line: str, logger: str, at: datetime | None) -> str:
    """Return a line as it is if it is a JSON object, else as the event of one, without colours; nothing for a blank one or a mark."""
    text = _COLOURS.sub("", line).strip()
    if text.startswith(_MARKS):
        return ""
    if not text or _is_object(text):
        return text
    return json_line(text.encode("utf-8", "backslashreplace").decode(), logger, at)


class JsonLines(io.TextIOBase):
    """A stream that writes each line as JSON to another one."""

    encoding = "utf-8"

    def __init__(self, target: TextIO, logger: str, now: Callable[[], datetime]) -> None:
        """`logger` is whose lines they are; `target` is closed by whoever opened it."""
        self._target, self._logger, self._now = target, logger, now
        self._begun, self._lock = "", threading.RLock()

    @override
    def write(self, text: str, /) -> int:
        with self._lock:
            *whole, self._begun = (self._begun + text).split("\n")
            for line in whole:
                self._write_line(line)
        return len(text)

    @override
    def flush(self) -> None:
        with self._lock:
            self._target.flush()

    @override
    def close(self) -> None:
        with self._lock:
            begun, self._begun = self._begun, ""
            self._write_line(begun)
        super().close()

    @override
    def writable(self) -> bool:
        return True

    @override
    def fileno(self) -> int:
        return self._target.fileno()

    def _write_line(self, line: str) -> None:
        text = converted(line, self._logger, self._now())
        if text:
            self._target.write(f"{text}\n")


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False
