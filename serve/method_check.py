"""Which methods each path takes: HEAD wherever GET is, and 405 with `Allow` for all others.

A router tries its routes one by one: it answers for the first path that fits, though a later one takes the method, and what looks like an
id goes to the route of ids (`GET /memories/archive`). Here a path has one template, as in the OpenAPI document: names before parameters.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.problems import wrong_method

_ANY = "{}"
"""Stands for a parameter."""


class _Part(Struct):
    """One part of paths, between two slashes."""

    following: dict[str, _Part] = field(default_factory=dict)
    methods: set[str] = field(default_factory=set)


class PathMethods:
    """The methods of all paths, as a tree of their parts."""

    def __init__(self) -> None:
        self._root = _Part()

    def add(self, routes: Iterable[BaseRoute]) -> None:
        """Take in what routes say of themselves."""
        for route in routes:
            if isinstance(route, Route):
                part, methods = self._root, route.methods or set()
                for name in route.path.split("/"):
                    part = part.following.setdefault(_ANY if name.startswith("{") else name, _Part())
                part.methods |= methods | {"HEAD"} if "GET" in methods else methods

    def of(self, path: str) -> set[str]:
        """Return the methods that a path takes; none if there is no such path."""
        part = self._root
        for name in path.split("/"):
            following = part.following.get(name) or (part.following.get(_ANY) if name else None)
            if following is None:
                return set()
            part = following
        return part.methods


class MethodCheck:
    """ASGI middleware: refuses methods that a path does not take, and answers HEAD as GET without its body."""

    def __init__(self, app: ASGIApp, paths: PathMethods) -> None:
        self._app, self._paths = app, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        methods, method = self._paths.of(scope["path"]), scope["method"]
        if method == "HEAD" and "GET" in methods:
            await self._app({**scope, "method": "GET"}, receive, _HeadersOnly(send))
        elif methods and method not in methods:
            await wrong_method(method, scope["path"], methods).response(scope["path"])(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _HeadersOnly:
    """Sends what begins a response, and that this was all."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
