"""From problem+json back to the errors that the server raised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
import orjson

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.errors import (
    AccessConflictError,
    AccessDeniedError,
    AgentBusyError,
    AlreadyDecidedError,
    BudgetExhaustedError,
    DefinitionError,
    IdempotencyConflictError,
    InvalidAccessError,
    IssuerUnavailableError,
    MemoryChangedError,
    MemoryTextChangedError,
    MemoryTooLargeError,
    NotFoundError,
    OwlClawError,
    Problem,
    QueueFullError,
    QuotaReachedError,
    RetryableError,
    RuntimeUnavailableError,
    ScheduleClosedError,
    ScheduleError,
    ScoreRefusedError,
    SecretsUnavailableError,
    SettledError,
    StoreUnavailableError,
    TooManySchedulesError,
    UnauthenticatedError,
    UnknownAgentError,
)

RETRYABLE_STATUSES = frozenset({429, 502, 503, 504})
RETRYABLE_WITHOUT_PROBLEM = frozenset({404, 500})
"""What Ray Serve's proxy answers while no server process is there; a server process that answers it says what is wrong."""
_UNAVAILABLE = frozenset({502, 503, 504})


class ClientError(OwlClawError):
    """The server refused or failed. `problem` is the problem+json body, `status` the HTTP status."""

    def __init__(self, status: int, problem: JsonObject) -> None:
        self.status, self.problem = status, problem
        super().__init__(str(problem.get("detail") or problem.get("title") or f"the server answered {status}"))

    def __reduce__(self) -> tuple[type[ClientError], tuple[int, JsonObject]]:
        return (type(self), (self.status, self.problem))


class ServerUnreachableError(RuntimeUnavailableError):
    """No server answers at `url`; a request may or may not have arrived, but for `refused`: then nothing listens there."""

    def __init__(self, url: str, reason: str, *, refused: bool = False) -> None:
        self.url, self.reason, self.refused = url, reason, refused
        super().__init__(f"no server answers at {url}: {reason}")

    @classmethod
    def after(cls, url: str, error: Exception) -> ServerUnreachableError:
        """Return the error for what became of the last attempt."""
        return cls(url, str(error) or type(error).__name__, refused=isinstance(error, httpx.ConnectError))

    def __reduce__(self) -> tuple[Any, ...]:
        return (partial(type(self), refused=self.refused), (self.url, self.reason))


class TryAgainError(RetryableError):
    """The server cannot answer now, and a retry may help; `cause` is what to raise after the last one."""

    def __init__(self, cause: OwlClawError, retry_after: float | None) -> None:
        self.cause, self.retry_after = cause, retry_after
        super().__init__(str(cause))


_TYPED: Mapping[str, Callable[[JsonObject], OwlClawError]] = {
    "unknown-agent": lambda problem: UnknownAgentError(problem["agent"], problem["known"]),
    "not-found": lambda problem: NotFoundError(problem["kind"], problem["id"]),
    "idempotency-conflict": lambda problem: IdempotencyConflictError(problem["key"]),
    "agent-busy": lambda problem: AgentBusyError(problem["agent"], problem["run_id"]),
    "queue-full": lambda problem: QueueFullError(problem["agent"], problem["limit"]),
    "quota-reached": lambda problem: QuotaReachedError(
        problem["quota"], problem["limit"], problem["retry_after"], of_key=problem["of"] == "key"
    ),
    "memory-changed": lambda problem: MemoryChangedError(problem["memory_id"], problem["fields"]),
    "memory-text-changed": lambda _: MemoryTextChangedError(),
    "memory-too-large": lambda problem: MemoryTooLargeError(problem["size_bytes"], problem["limit_bytes"]),
    "unauthenticated": lambda problem: UnauthenticatedError(problem["detail"]),
    "forbidden": lambda problem: AccessDeniedError(problem["detail"], problem.get("scope", "")),
    "access-conflict": lambda problem: AccessConflictError(problem["detail"]),
    "invalid-access": lambda problem: _invalid_access(**problem["problems"][0]),
    "already-decided": lambda problem: AlreadyDecidedError(problem["approval_id"], problem["approval_status"]),
    "invalid-schedule": lambda problem: ScheduleError(
        problem["problems"][0]["where"].removeprefix("body."), problem["problems"][0]["what"]
    ),
    "schedule-closed": lambda problem: ScheduleClosedError(problem["schedule_id"], problem["schedule_status"]),
    "too-many-schedules": lambda problem: TooManySchedulesError(problem["agent"], problem["limit"]),
    "score-refused": lambda problem: ScoreRefusedError(problem["detail"]),
    "secrets-unavailable": lambda problem: SecretsUnavailableError(problem["detail"]),
    "settled": lambda problem: SettledError(problem["kind"], problem["id"], problem["settled_status"], problem["why"]),
    "budget-exhausted": lambda problem: BudgetExhaustedError(problem["detail"]),
    "definition-error": lambda problem: DefinitionError([Problem(**each) for each in problem["problems"]]),
    "store-unavailable": lambda problem: StoreUnavailableError(problem["detail"]),
    "issuer-unavailable": lambda problem: IssuerUnavailableError(problem["detail"]),
    "runtime-unavailable": lambda problem: RuntimeUnavailableError(problem["detail"]),
}


def _invalid_access(where: str, what: str, fix: str) -> InvalidAccessError:
    return InvalidAccessError(where.removeprefix("body."), what, fix)


def failure_of(response: httpx.Response) -> OwlClawError:
    """Return the error of a response that is none of success, its body read: a TryAgainError if a retry may help."""
    status = response.status_code
    try:
        problem = orjson.loads(response.content)
    except ValueError:
        problem = None
    unavailable, retryable = status in _UNAVAILABLE, status in RETRYABLE_STATUSES
    make = None
    if isinstance(problem, dict) and isinstance(problem.get("type"), str):
        make = _TYPED.get(problem["type"].rpartition(":")[2])
        detail = str(problem.get("detail") or problem.get("title") or problem["type"])
    else:
        detail = f"the server answered {status} {response.reason_phrase}"
        problem = {"detail": detail}
        unavailable |= status in RETRYABLE_WITHOUT_PROBLEM
        retryable |= status in RETRYABLE_WITHOUT_PROBLEM
    error: OwlClawError = RuntimeUnavailableError(detail) if unavailable else ClientError(status, problem)
    if make is not None:
        with suppress(KeyError, TypeError):  # a problem without the fields of its type stays a general one
            error = make(problem)
    if not retryable:
        return error
    text = response.headers.get("retry-after", "")
    return TryAgainError(error, float(text) if text.isdecimal() else None)
