"""What the runtime's processes log, and how: to standard error, which Ray keeps in a file for each process."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TextIO

_OURS = ("owlclaw_ray", "actors", "serve")


@dataclass(frozen=True, slots=True)
class LogPlan:
    """As the settings' `log` section."""

    level: str = "info"
    format: str = "text"
    """`text`, or `json`: one object a line."""


class Utf8Handler(logging.StreamHandler[TextIO]):
    """Writes half characters (lone surrogates) as escapes: a stream would refuse them, and take the process with it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return super().format(record).encode("utf-8", "backslashreplace").decode()


def configure(plan: LogPlan) -> None:
    """Have our loggers of this process write at this level in this form; other libraries' loggers are left alone."""
    import structlog

    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.typing.Processor] = [
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    ]
    if plan.format == "json":
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    handler = Utf8Handler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
        )
    )
    for name in _OURS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(plan.level.upper())
        logger.propagate = False
