"""What the runtime's processes log, and how: to standard error, which Ray keeps in a file for each process."""

from __future__ import annotations

import io
import logging
import sys
from dataclasses import dataclass

_OURS = ("owlclaw_ray", "actors", "serve")


@dataclass(frozen=True, slots=True)
class LogPlan:
    """As the settings' `log` section."""

    level: str = "info"
    format: str = "text"
    """`text`, or `json`: one object a line."""


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
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")
    handler = logging.StreamHandler()
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
