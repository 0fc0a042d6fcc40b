"""Telling a broken index from everything else that can happen during a call of LanceDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from owlclaw_ray.errors import OwlClawError

_MACHINE_ERRORS = (
    "No space left",
    "Disk quota",
    "File too large",
    "Read-only file system",
    "Permission denied",
    "Too many open files",
)
"""What errors say that come from the machine, not from the index: a rebuild would not help."""


class IndexUnusableError(OwlClawError):
    """The index cannot be read or written as it is. Everything in it can be had from MEMORY.md."""

    @property
    def is_damage(self) -> bool:
        """Whether the index itself may be what is wrong."""
        return not any(each in str(self.__cause__) for each in _MACHINE_ERRORS)


@contextmanager
def index_errors() -> Iterator[None]:
    """Raise IndexUnusableError for whatever LanceDB raises inside, which has no exception class of its own.

    Deadlines and cancellations that strike inside pass through: they say nothing about the index.
    """
    try:
        yield
    except (OwlClawError, TimeoutError, MemoryError):
        raise
    except Exception as error:
        raise IndexUnusableError(_reason(error)) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise IndexUnusableError(_reason(error)) from error


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"the memory index is unusable: {type(error).__name__}: {lines[0] if lines else 'no message'}"[:300]
