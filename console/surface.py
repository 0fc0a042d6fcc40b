"""The console as a surface of the ingress: its routes, its sessions, and how problems look in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import parse_qsl, quote, urlencode

import orjson
from fastapi import APIRouter
from msgspec import convert
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.agents import AgentPages
from console.approvals import ApprovalPages
from console.badge import ApprovalBadge
from console.fleet import FleetPages
from console.jinja import Templates
from console.keys import KeyPages
from console.ledger import LedgerPages
from console.matches import MatchingPages
from console.memories import MemoryPages
from console.pages import PREFIX
from console.prompt import PromptPages
from console.run import RunPages
from console.runs import RunsPages
from console.schedules import SchedulePages
from console.settings import SettingsPages
from console.sign_in import SignInPages
from console.tenants import TenantPages
from console.text import bytes_of
from console.tools import ToolPages
from console.usage import UsagePages
from console.visits import Visit, form_token
from console.webhooks import WebhookPages
from owlclaw_ray.domain.issuer import Credential
from owlclaw_ray.domain.json import JsonObject
from serve.problems import PROBLEM_JSON
from serve.route_check import OPERATIONS
from serve.surfaces import Surroundings, is_below

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers would not say where forms come from
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_UNAUTHENTICATED = 401


class Console:
    """Pages for people below /console."""

    prefix = PREFIX

    def __init__(self, surroundings: Surroundings) -> None:
        self._templates = Templates()
        self._sessions = surroundings.runtime
        badge = ApprovalBadge(surroundings.runtime, surroundings.clock)
        self._pages = [
            kind(surroundings, self._templates, badge)
            for kind in (
                SignInPages,
                RunsPages,
                MatchingPages,
                RunPages,
                PromptPages,
                AgentPages,
                MemoryPages,
                ApprovalPages,
                UsagePages,
                SchedulePages,
                FleetPages,
                WebhookPages,
                LedgerPages,
                ToolPages,
                KeyPages,
                TenantPages,
                SettingsPages,
            )
        ]

    def router(self) -> APIRouter:
        """See Surface.router."""
        router = APIRouter()
        for each in self._pages:
            router.routes += each.router().routes
        return router

    async def key_of(self, scope: Scope) -> Credential | None:
        """See Surface.key_of."""
        session = Visit.of(scope).session
        return await self._sessions.sessions.key_of(session) if session else None

    def around(self, app: ASGIApp) -> ASGIApp:
        """See Surface.around."""
        pages = [
            route.path_regex
            for route in self.router().routes
            if isinstance(route, Route) and "GET" in (route.methods or ())
        ]
        return _Frame(app, self._templates, pages)


def build(surroundings: Surroundings) -> Console:
    """Return the console."""
    return Console(surroundings)


class _Frame:
    """ASGI middleware: gives all answers below /console their headers, and shows people problems as pages.

    Who is not let in is led to where one signs in, and from there back; who opens the address that a form is sent to, to a page above it.
    """

    def __init__(self, app: ASGIApp, templates: Templates, pages: Sequence[re.Pattern[str]]) -> None:
        """`pages`: the paths that can be opened."""
        self._app, self._templates, self._pages = app, templates, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http" or not is_below(PREFIX, scope["path"]):
            await self._app(scope, receive, send)
            return
        readable = "text/html" in Headers(scope=scope).get("accept", "")
        start: Message | None = None
        problem = b""

        async def framed(message: Message) -> None:
            nonlocal start, problem
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in _HEADERS.items():
                    headers[name] = value
                if readable and headers.get("content-type", "").startswith(PROBLEM_JSON):
                    start = message
                    return
            if start is None:
                await send(message)
                return
            problem += message.get("body", b"")
            if not message.get("more_body", False):
                await self._shown(scope, start, orjson.loads(problem) if problem else {})(scope, receive, send)

        await self._app(scope, receive, framed)

    def _shown(self, scope: Scope, start: Message, problem: JsonObject) -> Response:
        response: Response
        if start["status"] == _UNAUTHENTICATED and scope["method"] in {"GET", "HEAD"}:
            asked = scope["raw_path"].decode("latin-1")  # as it was sent: what is beyond ASCII is quoted in it
            asked += f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
            response = RedirectResponse(f"{PREFIX}/sign-in?next={quote(asked, safe='/')}", 303)
        elif start["status"] == HTTPStatus.METHOD_NOT_ALLOWED and scope["method"] in {"GET", "HEAD"}:
            response = RedirectResponse(self._page_above(scope["raw_path"].decode("latin-1")), 303)
        else:
            said = {
                "status": start["status"],
                "title": problem.get("title", "Something is wrong"),
                "detail": problem.get("detail", ""),
                "problems": problem.get("problems", ()),
            }
            session = Visit.of(scope).session
            context = {
                "problem": said,
                "token": form_token(session) if session else "",
                "without": _address_without(scope, problem),
            }
            response = HTMLResponse(bytes_of(self._templates.page("problem.html", context)), start["status"])
            kept = MutableHeaders(raw=start["headers"])
            for name in ("allow", "retry-after", "ratelimit", "ratelimit-policy"):
                if name in kept:
                    response.headers[name] = kept[name]
        response.headers.update(_HEADERS)
        return response

    def _page_above(self, path: str) -> str:
        """Return the nearest page: a form that was refused is shown at the address that it was sent to, which people open again."""
        while path != PREFIX and not any(page.match(path) for page in self._pages):
            path = path.rpartition("/")[0]
        return path


_PLACES = {"query after", "query before"}


def _address_without(scope: Scope, problem: JsonObject) -> str:
    """Return the address that was asked for, without the query parameters in which the problem is; empty if it is elsewhere.

    What is not there may be the place in a list at which a page begins: the first page is.
    """
    wrong = {each["where"] for each in convert(problem.get("problems", []), list[dict[str, str]])}
    if problem.get("status") == HTTPStatus.NOT_FOUND and scope.get(OPERATIONS):
        wrong |= _PLACES
    asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    right = [(name, value) for name, value in asked if f"query {name}" not in wrong]
    if scope["method"] not in {"GET", "HEAD"} or len(right) == len(asked):
        return ""
    path: str = scope["raw_path"].decode("latin-1")
    return f"{path}?{urlencode(right)}" if right else path
