"""What a failed statement means: the store is unavailable, the transaction lost a race, or a command is bad."""

from __future__ import annotations

import sqlite3
from enum import Enum

from msgspec import MsgspecError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from owlclaw_ray.store.sql.sqlite_files import StoreFileLostError

FAILURES = (
    SQLAlchemyError,
    StoreFileLostError,
    OSError,
    TimeoutError,
    ValueError,
    TypeError,
    OverflowError,
    MsgspecError,
)
"""What a query may raise. Applying commands may raise anything: what is no outage is some command's doing."""

_LOST_RACE = {"40001", "40P01"}
_LOCKED = {"55P03"}
_BAD_DATA = {"22", "23"}
_BAD_VALUES = (ValueError, TypeError, OverflowError)
_OUTAGES = (SQLAlchemyError, OSError, TimeoutError)


class FailureAction(Enum):
    """What to do about it."""

    UNAVAILABLE = "unavailable"
    """Tell the callers; nothing was committed, or perhaps it was."""
    LOST_RACE = "lost_race"
    """Begin the transaction again."""
    LOCKED = "locked"
    """Some command needs rows that another transaction keeps locked; the others can be applied."""
    COMMAND = "command"
    """Some command cannot be applied; the others can."""


def failure_of(error: BaseException) -> FailureAction:
    """Return what an error of a transaction means."""
    if isinstance(error, DBAPIError):
        return _failure_of_driver(error)
    return FailureAction.UNAVAILABLE if isinstance(error, _OUTAGES) else FailureAction.COMMAND


def explain(error: BaseException) -> str:
    """Return the driver's own words, without the statement and its parameters."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    text = str(original)
    return text.partition(">: ")[2] or text or type(original).__name__


def _failure_of_driver(error: DBAPIError) -> FailureAction:
    if error.connection_invalidated:
        return FailureAction.UNAVAILABLE
    original = error.orig
    state = getattr(original, "sqlstate", None)
    if state in _LOST_RACE:
        return FailureAction.LOST_RACE
    if state in _LOCKED:
        return FailureAction.LOCKED
    if state is not None:
        return FailureAction.COMMAND if state[:2] in _BAD_DATA else FailureAction.UNAVAILABLE
    cause = original.__cause__ if original is not None else None
    own = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError, *_BAD_VALUES)
    return (
        FailureAction.COMMAND
        if isinstance(original, own) or isinstance(cause, _BAD_VALUES)
        else FailureAction.UNAVAILABLE
    )
