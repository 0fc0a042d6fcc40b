"""Whose work a log line is about: known wherever a line is written while a run is executed, and in all tasks that this begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

from owlclaw_ray.ids import AgentId, RunId


class LogSubject(Struct, frozen=True):
    """A run, and whose it is."""

    run_id: RunId
    agent: AgentId


_PRESENT: ContextVar[LogSubject | None] = ContextVar("owlclaw_log_subject", default=None)


@contextmanager
def about(run_id: RunId, agent: AgentId) -> Iterator[None]:
    """Have what is logged inside the block be about this run."""
    token = _PRESENT.set(LogSubject(run_id, agent))
    try:
        yield
    finally:
        _PRESENT.reset(token)


def present() -> LogSubject | None:
    """Return what the present work is about; None for what belongs to no run."""
    return _PRESENT.get()
