"""What the routes of a resource are made of: a decorator for its operations, with what the OpenAPI document says of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import ClassVar, TypeVar

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.principal import SCOPES
from owlclaw_ray.runtime.api import Runtime
from serve.body_schemas import SCHEMAS, reference
from serve.parameters import principal_of
from serve.problems import PROBLEM_JSON, TYPE_PREFIX
from serve.request_bodies import checked

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Awaitable[Response]])
_ROUTES: dict[Callable[..., object], partial[None]] = {}
"""Of each operation's function, what adds its route to a router, but for the bound function."""
PUBLIC = ""
"""The scope of operations that need no principal: probes, and webhooks, which are signed."""
SECURITY_SCHEME = "key"
"""In the OpenAPI document."""
JSON_BODY = (400, 408, 413)
"""Statuses of every operation that takes a JSON body."""
_PROBLEMS = {
    400: ("malformed-json", "the body is not JSON: unexpected character at line 1, column 14"),
    401: ("unauthenticated", "this server needs a key: send the header Authorization: Bearer owl_…"),
    403: ("forbidden", "key:4fT0aQ1z (ci) has no scope runs:write"),
    404: ("not-found", "there is no run 'run_01kaexample'"),
    408: ("body-timeout", "the body was not received within 30 seconds (http.body_timeout_seconds)"),
    409: ("definition-error", "agents/assistant/SOUL.md: is empty (write who the agent is)"),
    412: ("memory-text-changed", "MEMORY.md was changed meanwhile and stays as it is"),
    413: ("body-too-large", "the body is over the limit of 1,048,576 bytes"),
    422: ("invalid-request", "body.fokus: unknown field (did you mean focus?)"),
    429: ("queue-full", "queue full: agent 'assistant' has 1,000 queued runs (limits.queued_runs)"),
    500: ("unexpected", "unexpected error in the server; its log has the details"),
    503: ("runtime-unavailable", "the runtime is starting"),
}
"""The example of each status: the last part of its `type`, and its `detail`."""
_RATE_LIMIT = (
    ("RateLimit-Policy", "The quota that is reached", '"starts_a_minute";q=600;w=60'),
    ("RateLimit", "What is left of it, and the seconds until there is more", '"starts_a_minute";r=0;t=18'),
)
_REFUSED_WEBHOOK = ("webhook-refused", "webhook of 'github' refused: the signature does not match")
IDEMPOTENCY_KEY: JsonObject = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": SCHEMAS["BatchTrigger"]["properties"]["idempotency_key"],
    "description": "Makes the request safe to repeat.",
}


class Resource:
    """Methods marked with `operation` are its routes, in their order: of two that fit a path, the earlier one answers."""

    tag: ClassVar[str]

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(tags=[self.tag], default_response_class=Response)
        for name, function in vars(type(self)).items():
            if callable(function) and function in _ROUTES:
                _ROUTES[function](router, endpoint=getattr(self, name))
        return router


def operation(
    route: str,
    scope: str,
    summary: str,
    answers: Mapping[int, JsonObject],
    *problems: int,
    extra: JsonObject | None = None,
    documented: bool = True,
    optional: bool = False,
) -> Callable[[_Endpoint], _Endpoint]:
    """Return what marks a function as the operation of its name, with its docstring as its description.

    `route`: method and path. `scope`: what a principal must have, or PUBLIC. `answers`: the first status is the usual one.
    `problems`: statuses besides those of every operation below /v1. `extra`: what the document says of parameters and of the body that
    the function reads itself. `documented`: whether it belongs to the document. `optional`: whether it answers those who lack the scope,
    or cannot be told, too: the function sees by its principal what they are told.
    """
    method, path = route.split()
    if scope != PUBLIC and scope not in SCOPES:
        raise ValueError(f"{route}: {scope!r} is no scope")
    statuses = {
        *problems,
        *((422, 500, 503) if path.startswith("/v1/") else ()),
        *(() if scope == PUBLIC or optional else (401, 403)),
    }
    security: list[JsonObject] = [] if scope == PUBLIC else [*([{}] if optional else []), {SECURITY_SCHEME: [scope]}]

    def mark(endpoint: _Endpoint) -> _Endpoint:
        _ROUTES[endpoint] = partial(
            APIRouter.add_api_route,
            path=path,
            methods=[method],
            operation_id=endpoint.__name__,
            summary=summary,
            status_code=next(iter(answers)),
            response_model=None,
            include_in_schema=documented,
            responses={status: _problem(status, signed=scope == PUBLIC) for status in sorted(statuses)} | dict(answers),
            openapi_extra={**(extra or {}), "security": security},
            dependencies=[] if scope == PUBLIC or optional else [Depends(partial(require_scope, scope))],
        )
        return endpoint

    return mark


def answer(description: str, shape: type, example: str = "") -> JsonObject:
    """Return the documentation of a JSON response of a type of `wire`, with the example of that name or the type's own."""
    return {"model": shape, "description": description, "content": _content(example or shape.__name__)}


def body(shape: type, examples: Mapping[str, JsonValue] | None = None, *, required: bool = True) -> JsonObject:
    """Return the documentation of a JSON body of a type of `wire`, with examples by name, or else the type's own.

    Raises InvalidRequestError if an example would be refused.
    """
    content = _content(shape.__name__)
    content["application/json"]["schema"] = reference(shape.__name__)
    if examples is not None:
        for each in examples.values():
            checked(each, shape)
        content["application/json"]["examples"] = {name: {"value": each} for name, each in examples.items()}
    return {"requestBody": {"required": required, "content": content}}


async def require_scope(scope: str, request: Request) -> None:
    """Raise AccessDeniedError unless the principal of the request has the scope.

    The gate has asked that already, if it and the router take the path for the same.
    """
    principal_of(request).require(scope)


def _content(example: str) -> JsonObject:
    return {"application/json": {"examples": {example: {"$ref": f"#/components/examples/{example}"}}}}


def _problem(status: int, *, signed: bool) -> JsonObject:
    kind, detail = _REFUSED_WEBHOOK if signed and status == HTTPStatus.UNAUTHORIZED else _PROBLEMS[status]
    title = HTTPStatus(status).phrase
    example = {"type": TYPE_PREFIX + kind, "title": title, "status": status, "detail": detail, "instance": "/v1/…"}
    documented: JsonObject = {
        "description": title,
        "content": {PROBLEM_JSON: {"schema": reference("Problem"), "example": example}},
    }
    if status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}:
        documented["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}}
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        documented["headers"] |= {
            name: {"schema": {"type": "string"}, "description": what, "example": example}
            for name, what, example in _RATE_LIMIT
        }
    return documented
