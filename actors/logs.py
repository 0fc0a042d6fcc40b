"""What the runtime's processes log, and how: to standard error, which Ray keeps in a file for each process."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, TextIO, cast

from msgspec import Struct

from actors.json_lines import JsonLines
from owlclaw_ray.kernel.log_context import present
from owlclaw_ray.kernel.system_clock import SystemClock

_OURS = ("owlclaw_ray", "actors", "serve", "console")
_SUBJECT = ("run_id", "agent")
"""What a JSON line says beyond level, logger and time, if it is about a run."""


class LogPlan(Struct, frozen=True):
    """As the settings' `log` section."""

    level: str = "info"
    format: str = "text"
    """`text`, or `json`: one object a line."""


class Utf8Handler(logging.StreamHandler[TextIO]):
    """Writes half characters (lone surrogates) as escapes: a stream would refuse them, and take the process with it."""

    def __init__(self, hide: Callable[[str], str]) -> None:
        """`hide` takes out of each line what it must not say."""
        super().__init__()
        self._hide = hide

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, which knows what run it is about."""
        subject = present()
        if subject is not None:
            record.run_id, record.agent = subject.run_id, subject.agent
        return self._hide(super().format(record)).encode("utf-8", "backslashreplace").decode()


class HidingStream:
    """A text stream that takes out of what is written what it must not say: Ray keeps what a process prints in a file."""

    def __init__(self, stream: TextIO, hide: Callable[[str], str]) -> None:
        self._stream, self._hide = stream, hide

    def write(self, text: str) -> int:
        """Write the text, and return how long it was."""
        self._stream.write(self._hide(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write the lines, one after another."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def hide_in_output(hide: Callable[[str], str]) -> None:
    """Have what this process prints from now on be without what `hide` takes out of a text."""
    sys.stdout = cast("TextIO", HidingStream(sys.stdout, hide))
    sys.stderr = cast("TextIO", HidingStream(sys.stderr, hide))


class TextFormatter(logging.Formatter):
    """One line an event, then its trace: time in UTC, level, message, logger."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """Return the line without the trace."""
        return f"{record.asctime} [{record.levelname.lower():<8}] {record.message} [{record.name}]"

    def usesTime(self) -> bool:  # noqa: N802 - the library's name
        """Every line has its time."""
        return True


def configure(plan: LogPlan, hide: Callable[[str], str] = str) -> None:
    """Have our loggers of this process write at this level in this form, and all others as JSON too if that is the form. `hide` takes out
    of each line of ours what it must not say.

    Other libraries keep their levels; as text, they keep their forms. structlog, whose import costs each process 3 MB, writes JSON only.
    """
    handler = Utf8Handler(hide)
    handler.setFormatter(_json_formatter() if plan.format == "json" else TextFormatter())
    for name in _OURS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(plan.level.upper())
        logger.propagate = False
    if plan.format == "json":
        _redirect_loggers(handler)
        sys.stdout, sys.stderr = (
            _as_json(each, name) for each, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr"))
        )


def _as_json(stream: TextIO, name: str) -> TextIO:
    """Return a stream whose lines are JSON too: what libraries, tools and Ray itself print."""
    written = stream if isinstance(stream, JsonLines) else JsonLines(stream, name, SystemClock().now)
    return cast("TextIO", written)


def _redirect_loggers(handler: logging.Handler) -> None:
    """Have the loggers of libraries, and Python's warnings, write as this handler does, wherever they write to."""
    logging.captureWarnings(capture=True)
    logging.getLogger().handlers[:] = [handler]
    for logger in tuple(logging.Logger.manager.loggerDict.values()):
        for each in getattr(logger, "handlers", ()):  # what is only a part of names has none
            each.setFormatter(handler.formatter)


def _json_formatter() -> logging.Formatter:
    import structlog

    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(_SUBJECT),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(ensure_ascii=False),
    ]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last)
