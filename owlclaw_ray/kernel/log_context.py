"""The run that a log line is about: known while a run is executed, and in all tasks that it starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

from owlclaw_ray.ids import AgentId, RunId


class LogSubject(Struct, frozen=True):
    """A run and its agent."""

    run_id: RunId
    agent: AgentId


_PRESENT: ContextVar[LogSubject | None] = ContextVar("owlclaw_log_subject", default=None)


@contextmanager
def about(run_id: RunId, agent: AgentId) -> Iterator[None]:
    """Attribute what is logged inside the block to this run."""
    token = _PRESENT.set(LogSubject(run_id, agent))
    try:
        yield
    finally:
        _PRESENT.reset(token)


def present() -> LogSubject | None:
    """Return the current run; None outside of runs."""
    return _PRESENT.get()
