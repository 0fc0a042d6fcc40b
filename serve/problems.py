"""From exception to status: the one table, and problem+json (RFC 9457) responses.

A broken agent definition is 409. The request is right and the server works, so neither 4xx of the body nor 5xx fits (5xx would
also make clients and load balancers retry); the state of the agent forbids the run until a person mends its files, and then
the same request succeeds: that is a conflict with the state of the resource.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from math import ceil
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from msgspec import Struct, field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from owlclaw_ray.domain.agent import InvalidAgentNameError
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.domain.quota import STARTS_A_MINUTE
from owlclaw_ray.errors import (
    AccessConflictError,
    AccessDeniedError,
    AgentBusyError,
    AlreadyDecidedError,
    BudgetExhaustedError,
    CallbackRefusedError,
    ConfigurationError,
    DefinitionError,
    IdempotencyConflictError,
    InvalidAccessError,
    IssuerUnavailableError,
    MemoryChangedError,
    MemoryTextChangedError,
    MemoryTooLargeError,
    MemoryUnavailableError,
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
    StoreOverloadedError,
    StoreUnavailableError,
    ToolArgumentsError,
    TooManySchedulesError,
    UnauthenticatedError,
    UnknownAgentError,
    UserError,
    VerificationBusyError,
    WebhookRefusedError,
    WebhookUnmappedError,
)
from serve.errors import (
    BodiesOverloadedError,
    BodyTimeoutError,
    BodyTooLargeError,
    InvalidRequestError,
    MalformedJsonError,
    StreamShareError,
    TooManyStreamsError,
)

PROBLEM_JSON = "application/problem+json"
TYPE_PREFIX = "urn:owlclaw:problem:"
RETRY_AFTER = {"Retry-After": "1"}


class ProblemDetails(Struct, frozen=True):
    """An error as an HTTP response."""

    status: int
    kind: str
    """The last part of `type`."""
    title: str
    detail: str
    extras: JsonObject = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self, instance: str) -> Response:
        """Return the response for the request path `instance`."""
        return Response(orjson.dumps(self.body(instance)), self.status, dict(self.headers), PROBLEM_JSON)

    def body(self, instance: str) -> JsonObject:
        """Return the problem document."""
        return {
            "type": TYPE_PREFIX + self.kind,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            **self.extras,
        }


class _ProblemRule(Struct, frozen=True):
    status: int
    kind: str
    title: str
    extras: Callable[[Any], JsonObject] = lambda _: {}
    headers: Mapping[str, str] = field(default_factory=dict)


def listed(problems: Sequence[Problem]) -> list[JsonObject]:
    """Return problems as JSON."""
    return [{"where": each.where, "what": each.what, "fix": each.fix} for each in problems]


_RULES: Mapping[type[Exception], _ProblemRule] = {
    MalformedJsonError: _ProblemRule(
        400, "malformed-json", "The body is not JSON", lambda e: {"line": e.line, "column": e.column}
    ),
    UnknownAgentError: _ProblemRule(
        404, "unknown-agent", "No such agent", lambda e: {"agent": e.agent, "known": list(e.known)}
    ),
    NotFoundError: _ProblemRule(404, "not-found", "Not found", lambda e: {"kind": e.kind, "id": e.id}),
    IdempotencyConflictError: _ProblemRule(
        409, "idempotency-conflict", "The Idempotency-Key was used for another body", lambda e: {"key": e.key}
    ),
    AgentBusyError: _ProblemRule(
        409, "agent-busy", "The agent is busy", lambda e: {"agent": e.agent, "run_id": e.run_id}
    ),
    AlreadyDecidedError: _ProblemRule(
        409,
        "already-decided",
        "The approval is not pending",
        lambda e: {"approval_id": e.approval_id, "approval_status": e.status},
    ),
    MemoryChangedError: _ProblemRule(
        409,
        "memory-changed",
        "The memory was changed in the meantime",
        lambda e: {"memory_id": e.memory_id, "fields": list(e.fields)},
    ),
    MemoryTextChangedError: _ProblemRule(412, "memory-text-changed", "MEMORY.md was changed in the meantime"),
    MemoryTooLargeError: _ProblemRule(
        413,
        "memory-too-large",
        "MEMORY.md would be too large",
        lambda e: {"size_bytes": e.size, "limit_bytes": e.limit},
    ),
    ScheduleClosedError: _ProblemRule(
        409,
        "schedule-closed",
        "The schedule is done or cancelled",
        lambda e: {"schedule_id": e.schedule_id, "schedule_status": e.status},
    ),
    TooManySchedulesError: _ProblemRule(
        409, "too-many-schedules", "The agent has too many schedules", lambda e: {"agent": e.agent, "limit": e.limit}
    ),
    SettledError: _ProblemRule(
        409,
        "settled",
        "It cannot be delivered again",
        lambda e: {"kind": e.kind, "id": e.id, "settled_status": e.status, "why": e.why},
    ),
    BudgetExhaustedError: _ProblemRule(409, "budget-exhausted", "The budget is exhausted"),
    UnauthenticatedError: _ProblemRule(
        401, "unauthenticated", "A valid key is needed", headers={"WWW-Authenticate": 'Bearer realm="owlclaw"'}
    ),
    AccessDeniedError: _ProblemRule(
        403, "forbidden", "The principal may not do that", lambda e: {"scope": e.scope} if e.scope else {}
    ),
    AccessConflictError: _ProblemRule(409, "access-conflict", "The key or tenant is not as it would have to be"),
    InvalidAccessError: _ProblemRule(
        422,
        "invalid-access",
        "There can be no such key or tenant",
        lambda e: {"problems": listed([Problem(f"body.{e.field}", e.problem, e.fix)])},
    ),
    WebhookRefusedError: _ProblemRule(
        401, "webhook-refused", "The webhook's signature is not valid", lambda e: {"source": e.source}
    ),
    WebhookUnmappedError: _ProblemRule(
        422,
        "webhook-unmapped",
        "The webhook cannot be mapped to a trigger",
        lambda e: {"source": e.source, "delivery_id": e.delivery_id},
    ),
    ScoreRefusedError: _ProblemRule(409, "score-refused", "The score was refused"),
    CallbackRefusedError: _ProblemRule(
        422, "callback-refused", "The callback URL was refused", lambda e: {"url": e.url}
    ),
    DefinitionError: _ProblemRule(
        409,
        "definition-error",
        "The agent's definition cannot be used",
        lambda e: {"problems": listed(e.problems)},
    ),
    BodyTimeoutError: _ProblemRule(
        408, "body-timeout", "The body was not received in time", headers={"Connection": "close"}
    ),
    BodyTooLargeError: _ProblemRule(413, "body-too-large", "The body is too large", lambda e: {"limit_bytes": e.limit}),
    InvalidRequestError: _ProblemRule(
        422, "invalid-request", "The request is not valid", lambda e: {"problems": listed(e.problems)}
    ),
    InvalidAgentNameError: _ProblemRule(
        422, "invalid-agent-name", "The agent id is not valid", lambda e: {"agent": e.text}
    ),
    ToolArgumentsError: _ProblemRule(
        422,
        "invalid-arguments",
        "The arguments do not fit the tool",
        lambda e: {"problems": listed([Problem("body.arguments", each) for each in e.details])},
    ),
    ScheduleError: _ProblemRule(
        422,
        "invalid-schedule",
        "The schedule is not valid",
        lambda e: {"problems": listed([Problem(f"body.{e.field}", e.problem)])},
    ),
    UserError: _ProblemRule(422, "refused", "The request cannot be carried out"),
    QueueFullError: _ProblemRule(
        429,
        "queue-full",
        "The agent's queue is full",
        lambda e: {"agent": e.agent, "limit": e.limit},
        {"Retry-After": "5"},
    ),
    QuotaReachedError: _ProblemRule(
        429,
        "quota-reached",
        "A quota is reached",
        lambda e: {
            "quota": e.quota,
            "limit": e.limit,
            "of": "key" if e.of_key else "tenant",
            "retry_after": _seconds(e),
        },
    ),
    VerificationBusyError: _ProblemRule(
        429, "verification-busy", "The ledger is being verified", headers={"Retry-After": "5"}
    ),
    SecretsUnavailableError: _ProblemRule(409, "secrets-unavailable", "A master key is missing"),
    ConfigurationError: _ProblemRule(
        500,
        "configuration-error",
        "The server's configuration cannot be used",
        lambda e: {"problems": listed(e.problems)},
    ),
    BodiesOverloadedError: _ProblemRule(503, "overloaded", "The server is overloaded", headers=RETRY_AFTER),
    StoreOverloadedError: _ProblemRule(503, "overloaded", "The server is overloaded", headers=RETRY_AFTER),
    StoreUnavailableError: _ProblemRule(503, "store-unavailable", "The store is unavailable", headers=RETRY_AFTER),
    MemoryUnavailableError: _ProblemRule(
        503, "memory-unavailable", "The agent's memory is unavailable", headers=RETRY_AFTER
    ),
    IssuerUnavailableError: _ProblemRule(
        503, "issuer-unavailable", "The token's issuer is unavailable", headers=RETRY_AFTER
    ),
    RuntimeUnavailableError: _ProblemRule(503, "runtime-unavailable", "The runtime is not ready", headers=RETRY_AFTER),
    TooManyStreamsError: _ProblemRule(
        503, "too-many-streams", "Too many streams are open", lambda e: {"limit": e.limit}, {"Retry-After": "5"}
    ),
    StreamShareError: _ProblemRule(
        429, "stream-share", "The share of streams is open", lambda e: {"limit": e.limit}, {"Retry-After": "5"}
    ),
    RetryableError: _ProblemRule(503, "unavailable", "Temporarily unavailable", headers=RETRY_AFTER),
    OwlClawError: _ProblemRule(500, "failed", "The server failed"),
}


def problem_of(error: Exception, path: str = "", principal: Principal | None = None) -> ProblemDetails:
    """Return the problem for an error of ours (the rule of its nearest class in the table), or of the router at a path.

    What it names of others is only what the `principal` sees.
    """
    if isinstance(error, UnknownAgentError) and principal is not None:
        error = UnknownAgentError(error.agent, [name for name in error.known if principal.sees_definition(name)])
    if isinstance(error, RequestValidationError):
        error = InvalidRequestError([_parameter(each) for each in error.errors()])
    if isinstance(error, HTTPException):
        if error.status_code == HTTPStatus.NOT_FOUND:
            detail = f"there is nothing at {path}; /docs lists what there is"
            return ProblemDetails(404, "unknown-path", "Not found", detail)
        title = HTTPStatus(error.status_code).phrase
        return ProblemDetails(error.status_code, "http", title, str(error.detail), headers=dict(error.headers or {}))
    rule = next(_RULES[kind] for kind in type(error).__mro__ if kind in _RULES)
    headers = _rate_limit(error) if isinstance(error, QuotaReachedError) else rule.headers
    return ProblemDetails(rule.status, rule.kind, rule.title, str(error), rule.extras(error), headers)


def _seconds(error: QuotaReachedError) -> int:
    return max(1, ceil(error.retry_after))


def _rate_limit(error: QuotaReachedError) -> Mapping[str, str]:
    """Return the headers of draft-ietf-httpapi-ratelimit-headers for a quota of which nothing is left; `t` and Retry-After are seconds."""
    seconds = _seconds(error)
    window = ";w=60" if error.quota == STARTS_A_MINUTE else ""
    return {
        "Retry-After": str(seconds),
        "RateLimit-Policy": f'"{error.quota}";q={error.limit}{window}',
        "RateLimit": f'"{error.quota}";r=0;t={seconds}',
    }


def _parameter(error: JsonObject) -> Problem:
    place, *path = [str(part) for part in error["loc"]]
    given = f"; given: {error['input']}" if error.get("input") is not None else ""
    return Problem(where=f"{place} {'.'.join(path)}".strip(), what=f"{error['msg']}{given}")


def unexpected() -> ProblemDetails:
    """Return the problem for an unexpected error, without its message, which may hold data of others."""
    return ProblemDetails(
        500,
        "unexpected",
        "Unexpected error",
        "unexpected error in the server; its log has the details",
    )


def wrong_method(method: str, path: str, methods: Collection[str]) -> ProblemDetails:
    """Return the problem for a method that a path does not support."""
    allowed = ", ".join(sorted(methods))
    detail = f"{path} does not take {method}; it takes {allowed}"
    return ProblemDetails(405, "wrong-method", "Method not allowed", detail, headers={"Allow": allowed})
