"""Which methods and query parameters each path takes: HEAD wherever GET is, 405 with `Allow` for all others, 422 for unknown parameters.

A router tries its routes one by one: it answers for the first path that fits, though a later one takes the method, and what looks like an
id goes to the route of ids (`GET /memories/archive`). Here a path has one template, as in the OpenAPI document: names before parameters.
A router ignores parameters that nobody declares, so that a mistyped filter looks as if it had found everything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias
from urllib.parse import parse_qsl

from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from msgspec import Struct, field
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from owlclaw_ray.errors import Problem
from serve.errors import InvalidRequestError
from serve.problems import problem_of, wrong_method
from serve.resource import PUBLIC, SECURITY_SCHEME

_ANY = "{}"
"""Stands for a parameter."""
_OF_OTHERS = {
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1/webhooks/{source}",
    "/console/sign-in/{issuer}/callback",  # issuers add what they like, such as session_state
}
"""Paths that other programs request, with query parameters of their own."""
OPERATIONS = "owlclaw.operations"
"""The key, in the ASGI scope, of what PathOperations.of returned for its path."""


class Operation(Struct, frozen=True):
    """What a path does for a method."""

    parameters: tuple[str, ...] | None
    """The query parameters that it takes; None: any."""
    scope: str
    """What a principal needs for it, or PUBLIC."""
    optional: bool = False
    """Whether others are let in, too, who are told less."""


_Operations: TypeAlias = dict[str, Operation]


class _Part(Struct):
    """One part of paths, between two slashes."""

    following: dict[str, _Part] = field(default_factory=dict)
    operations: _Operations = field(default_factory=dict)


class PathOperations:
    """The operations of all paths, as a tree of their parts."""

    def __init__(self) -> None:
        self._root = _Part()
        self._undeclared: set[tuple[str, str]] = set()

    def add(self, routes: Iterable[BaseRoute]) -> None:
        """Add routes, with the query parameters that their functions, or their part of the document, declare, and with their scopes.

        Raises ValueError for a route that declares no scope, or is none of those that can: see `require_scopes`.
        """
        for route in routes:
            if not isinstance(route, Route):
                raise ValueError(f"{route} declares no scope: it is no operation")  # noqa: TRY004 - its kind is the value
            part, methods = self._root, route.methods or set()
            methods = methods | {"HEAD"} if "GET" in methods else methods
            for name in route.path.split("/"):
                part = part.following.setdefault(_ANY if name.startswith("{") else name, _Part())
            declared, scope, optional = None, PUBLIC, False
            if isinstance(route, APIRoute):
                scope, optional = _scope_of(route)
                self._undeclared -= {(route.path, method) for method in methods}
            else:
                self._undeclared |= {(route.path, method) for method in methods}
            if isinstance(route, APIRoute) and route.path not in _OF_OTHERS:
                names = [each.alias for each in get_flat_params(route.dependant)]
                documented = (route.openapi_extra or {}).get("parameters", ())
                names += [each["name"] for each in documented if each["in"] == "query"]
                declared = tuple(name for name in names if name not in route.param_convertors)
            part.operations |= dict.fromkeys(methods, Operation(declared, scope, optional))

    def require_scopes(self, public: Collection[str | None]) -> None:
        """Raise ValueError if an operation was added whose scope no route declares, but for the paths that show the API's document."""
        left = sorted(f"{method} {path}" for path, method in self._undeclared if path not in public)
        if left:
            raise ValueError(f"no scope is declared of {', '.join(left)}")

    def of(self, path: str) -> Mapping[str, Operation]:
        """Return the operations of a path; none if it does not exist."""
        part = self._root
        for name in path.split("/"):
            following = part.following.get(name) or (part.following.get(_ANY) if name else None)
            if following is None:
                return {}
            part = following
        return part.operations


def _scope_of(route: APIRoute) -> tuple[str, bool]:
    """Return the scope of a route, and whether others are let in, too."""
    security = (route.openapi_extra or {}).get("security")
    if security is None:
        raise ValueError(f"{route.path} declares no scope")
    scopes = [scope for each in security for scope in each.get(SECURITY_SCHEME, ())]
    return (scopes[0] if scopes else PUBLIC), {} in security


class RouteCheck:
    """ASGI middleware: refuses methods and query parameters that a path does not take, and answers HEAD as GET without its body.

    The middleware around it has looked the path up.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, method = scope["path"], scope["method"]
        operations: Mapping[str, Operation] = scope[OPERATIONS]
        if operations and method not in operations:
            await wrong_method(method, path, operations.keys()).response(path)(scope, receive, send)
        elif scope["query_string"] and (unknown := _unknown(scope["query_string"], operations.get(method))):
            await problem_of(InvalidRequestError(unknown)).response(path)(scope, receive, send)
        elif method == "HEAD" and "GET" in operations:
            await self._app({**scope, "method": "GET"}, receive, _HeadersOnly(send))
        else:
            await self._app(scope, receive, send)


def _unknown(query: bytes, operation: Operation | None) -> list[Problem]:
    known = None if operation is None else operation.parameters
    if known is None:
        return []
    given = dict.fromkeys(name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    right = f"known parameters: {', '.join(known)}" if known else "there are none here"
    return [Problem(f"query {name}", "unknown parameter", right) for name in given if name not in known]


class _HeadersOnly:
    """Sends the start of a response and an empty body."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
