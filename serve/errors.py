"""Requests that HTTP itself refuses, before the runtime sees them.

RetryableError
└── BodiesOverloadedError  large bodies use all the memory for them; this one was not read
UserError
├── MalformedJsonError   the body is not JSON
├── InvalidRequestError  it is JSON, or a header or parameter, that is not valid; has every problem at once
├── BodyTooLargeError    the body is over the limit; the rest of it was not read
└── BodyTimeoutError     the body was not received in time
RetryableError
├── StreamShareError     one tenant or key has its share of open event streams and waiting triggers
└── TooManyStreamsError  the limit of open event streams and waiting triggers is reached
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from owlclaw_ray.errors import Problem, RetryableError, UserError


class MalformedJsonError(UserError):
    """The body is not JSON; `line` and `column` count from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        self.line, self.column = line, column
        self.reason = f"is not JSON: {reason} at line {line}, column {column}"
        super().__init__(f"the body {self.reason}")

    @classmethod
    def at(cls, error: orjson.JSONDecodeError) -> MalformedJsonError:
        """Return the error for what the parser found."""
        return cls(error.msg, error.lineno, error.colno)


class InvalidRequestError(UserError):
    """Parts of the request are not valid."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class BodiesOverloadedError(RetryableError):
    """Bodies of other requests use all the memory for large ones."""

    def __init__(self) -> None:
        super().__init__("too many large bodies at once (http.bodies_limit_bytes): send it again later")


class BodyTooLargeError(UserError):
    """The body is larger than this server accepts."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the body is over the limit of {limit:,} bytes; send a reference to large data instead of the data"
        )


class BodyTimeoutError(UserError):
    """The body was not complete after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"the body was not received within {seconds:g} seconds (http.body_timeout_seconds)")


class TooManyStreamsError(RetryableError):
    """`limit` event streams and triggers with `?wait=` are open."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"too many streams: {limit:,} event streams and triggers with wait are open (http.streams); try again later, or poll the run"
        )


class StreamShareError(RetryableError):
    """A tenant or key has `limit` event streams and triggers with `?wait=` open: its share."""

    def __init__(self, whose: str, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"too many streams: this {whose} has {limit:,} event streams and triggers with wait open, its share of http.streams; "
            "try again later, or poll the run"
        )
