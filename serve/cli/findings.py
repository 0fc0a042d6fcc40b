"""What `owlclaw doctor` finds."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from owlclaw_ray.errors import ConfigurationError, OwlClawError


class Level(Enum):
    """How bad it is."""

    OK = "OK"
    WARN = "WARN"
    """It works, but not as well as it could, or not for long."""
    FAIL = "FAIL"
    """`owlclaw up` or a run will fail."""


class CheckFinding(Struct, frozen=True):
    """One line of the report."""

    level: Level
    subject: str
    message: str
    fix: str = ""


def ok(subject: str, message: str) -> CheckFinding:
    """Return a good finding."""
    return CheckFinding(Level.OK, subject, message)


def warn(subject: str, message: str, fix: str) -> CheckFinding:
    """Return a doubtful finding."""
    return CheckFinding(Level.WARN, subject, message, fix)


def fail(subject: str, message: str, fix: str) -> CheckFinding:
    """Return a bad finding."""
    return CheckFinding(Level.FAIL, subject, message, fix)


def failures(subject: str, error: OwlClawError) -> list[CheckFinding]:
    """Return one bad finding for each problem of an error."""
    if isinstance(error, ConfigurationError):
        return [fail(subject, f"{problem.where}: {problem.what}", problem.fix) for problem in error.problems]
    return [fail(subject, str(error), "")]
