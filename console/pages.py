"""What pages are made of: routes with a scope each, and a frame that shows what its principal may see."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial, wraps
from gzip import GzipFile
from io import BytesIO
from types import MappingProxyType
from typing import ClassVar, TypeVar, cast
from urllib.parse import parse_qsl

from fastapi.exceptions import RequestValidationError
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from console.badge import ApprovalBadge
from console.jinja import Templates, query
from console.live_parts import Audience, LiveParts
from console.refusal import Refusal
from console.text import bytes_of
from console.visits import SentForm, Visit, form_token, new_visitor, read_form
from owlclaw_ray.domain.principal import LOCAL, Principal
from owlclaw_ray.errors import AccessDeniedError, NotFoundError, OwlClawError, StoreUnavailableError
from owlclaw_ray.wire import MAX_ID
from serve.parameters import PRINCIPAL, principal_id_of, principal_of
from serve.problems import ProblemDetails, problem_of
from serve.resource import Resource, operation
from serve.surfaces import Surroundings

PREFIX = "/console"
_LONGEST_PATH = 1_500
_OWN_PATH = re.compile(r"/console(/[\w.~!$&'()*+,;=:@%/-]*)?(\?[\w.~!$&'()*+,;=:@%/?-]*)?", re.ASCII)
FRAGMENT = "fragment"
"""The query parameter that asks for a part of a page."""
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Awaitable[Response]])
_T = TypeVar("_T")
_AUDIENCE = "owlclaw.audience"
"""In the ASGI scope: for whom a live part is made."""
_SCOPES: dict[Callable[..., Awaitable[Response]], str] = {}
"""Of each page."""
_REFUSAL = "owlclaw.refusal"
"""In the ASGI scope: the form that comes back."""
NOT_OF_THE_FORM = 500
"""The first status that says nothing of what was sent."""
_WORTH_COMPRESSING = 1_000
"""Bytes of a page."""
_BLUR_BYTES = 100
_LEVEL = 1
_NO_REFUSAL = Refusal()
_GZIP = re.compile(r"(?:^|,)\s*gzip\s*(?:$|,|;(?!\s*q=0(?:\.0*)?\s*(?:$|,)))", re.IGNORECASE)
"""In the header of one who takes it; with a weight of 0 it is refused."""


class _NavigationPlace(Struct, frozen=True):
    """One of the console's parts, in its navigation. Of several with one title, the first that a principal may see stands for all."""

    path: str
    title: str
    scope: str


PLACES = (
    _NavigationPlace("runs", "Runs", "runs:read"),
    _NavigationPlace("agents", "Agents", "agents:read"),
    _NavigationPlace("usage", "Usage", "runs:read"),
    _NavigationPlace("approvals", "Approvals", "approvals:read"),
    _NavigationPlace("schedules", "Schedules", "schedules:read"),
    _NavigationPlace("fleet", "Fleet", "system:read"),
    _NavigationPlace("webhooks", "Webhooks", "webhooks:read"),
    _NavigationPlace("ledger", "Ledger", "ledger:read"),
    _NavigationPlace("tools", "Tools", "system:read"),
    _NavigationPlace("keys", "Access", "keys:read"),
    _NavigationPlace("tenants", "Access", "tenants:read"),
    _NavigationPlace("settings", "Settings", "system:read"),
)
FIRST_PLACES = 3
"""How many of them stand in the navigation of a narrow screen; the others are behind "More"."""


def page(
    route: str,
    scope: str,
    *queries: str,
    live: Mapping[str, float] = MappingProxyType({}),
    personal: bool = False,
    form: Callable[..., Awaitable[Response]] | None = None,
) -> Callable[[_Endpoint], _Endpoint]:
    """Return what marks a function as the page, or the action, of a route; `queries`: the query parameters that it takes.

    `live`: parts that open pages ask for again and again, and how many seconds old each may be. All who may see the same get the same,
    so there is no token in their forms: a live region fills in that of its page. `personal`: they tell who asks from others who may see
    the same. `form`: the page that has the form which is sent to this action. What is refused comes back on it with what was typed, to
    those who may see the page.
    """
    extra = {"parameters": [{"name": name, "in": "query"} for name in queries]}
    mark = operation(route, scope, "", {200: {}}, extra=extra, documented=False)

    def marked(endpoint: _Endpoint) -> _Endpoint:
        if live:
            endpoint = _shared(endpoint, live, personal=personal)
        if form is not None:
            endpoint = _returned(endpoint, form)
        _SCOPES[endpoint] = scope
        return mark(endpoint)

    return marked


def _returned(endpoint: _Endpoint, form: Callable[..., Awaitable[Response]]) -> _Endpoint:
    @wraps(endpoint)
    async def answered(self: Pages, request: Request) -> Response:
        sent = await read_form(request)
        try:
            return await endpoint(self, request)
        except (OwlClawError, RequestValidationError) as error:
            problem = self._refuse(request, sent, error)
            if problem.status >= NOT_OF_THE_FORM or not principal_of(request).may(_SCOPES[form]):
                raise
            try:
                response = await form(self, request)
            except OwlClawError:
                raise error from None
            response.status_code = problem.status
            response.headers.update(problem.headers)
            return response

    return cast("_Endpoint", answered)


def _shared(endpoint: _Endpoint, live: Mapping[str, float], *, personal: bool) -> _Endpoint:
    @wraps(endpoint)
    async def answered(self: Pages, request: Request) -> Response:
        seconds = live.get(request.query_params.get(FRAGMENT, ""))
        if seconds is None:
            return await endpoint(self, request)
        address = f"{request.scope['path']}?{request.scope['query_string'].decode('latin-1')}"
        who = principal_id_of(request) if personal else ""
        audience = Audience.of(address, principal_of(request), compressed=_takes_gzip(request), who=who)
        request.scope[_AUDIENCE] = audience
        try:
            return await self._live.answer(audience, seconds, partial(endpoint, self, request))
        except AccessDeniedError:
            del request.scope[_AUDIENCE]
            return await endpoint(self, request)  # a refusal names whom it refuses: each gets their own

    return cast("_Endpoint", answered)


class Pages(Resource):
    """Pages of one subject. Problems are raised as the JSON routes do: they become pages on their way out."""

    tag = "console"
    place: ClassVar[str] = ""
    """The part of the console that they belong to."""

    def __init__(self, surroundings: Surroundings, templates: Templates, badge: ApprovalBadge) -> None:
        super().__init__(surroundings.runtime)
        self._surroundings, self._templates, self._badge = surroundings, templates, badge
        self._live = LiveParts(surroundings.clock)

    async def shown(self, request: Request, template: str, *parts: str, **context: object) -> Response:
        """Return a page, or one of these parts of it if the request asks for that. A live part knows nothing of who asks but what they may
        see, and is drawn again only if what it shows is not what it showed before.
        """
        principal, part = principal_of(request), request.query_params.get(FRAGMENT)
        facts: dict[str, object] = {"pending": await unless_away(self._badge.text(principal)) or "", **context}
        audience: Audience | None = request.scope.get(_AUDIENCE)
        if part in parts and audience is not None:
            known = {"may": principal.may, "token": "", "version": new_visitor(), **facts}
            return self._live.drawn(
                audience, facts, lambda: _html(request, self._templates.live_part(template, part, known))
            )
        visit = Visit.of(request.scope)
        secret = visit.session or visit.visitor or new_visitor()
        whole = {
            "principal": principal,
            "signed_in": principal is not LOCAL,
            "may": principal.may,
            "token": form_token(secret),
            "once": new_visitor(),
            "version": new_visitor(),
            "place": next((each.title for each in PLACES if each.path == self.place), ""),
            "places": places_of(principal),
            "first_places": FIRST_PLACES,
            "refusal": request.scope.get(_REFUSAL, _NO_REFUSAL),
            **facts,
        }
        if part in parts:
            return _html(request, self._templates.live_part(template, part, whole))
        response = _html(request, self._templates.page(template, whole))
        if not visit.session and not visit.visitor:
            visit.set(response, "visit", secret)
        return response

    @staticmethod
    def _refuse(request: Request, sent: SentForm, error: Exception) -> ProblemDetails:
        """Have the page that is shown next bring the form back; return what is wrong with it."""
        path = request.scope["path"]
        problem = problem_of(error, path, request.scope.get(PRINCIPAL))
        request.scope[_REFUSAL] = Refusal.of(path, sent, problem)
        return problem

    def _now(self) -> datetime:
        return self._surroundings.clock.now()


def _takes_gzip(request: Request) -> bool:
    return _GZIP.search(request.headers.get("accept-encoding", "")) is not None


def _html(request: Request, text: str) -> Response:
    """Return the page, compressed where the browser takes that.

    Whoever sees the length of what is encrypted, and has something of his in the page, could guess at the rest by how well it compresses.
    So the length is blurred, nothing secret is the same on two pages (see `form_token`), and other sites cannot have pages loaded but by
    a visit.
    """
    body, headers = bytes_of(text), {"Vary": "Accept-Encoding"}
    if len(body) >= _WORTH_COMPRESSING and _takes_gzip(request):
        body, headers = _compressed(body), headers | {"Content-Encoding": "gzip"}
    return HTMLResponse(body, headers=headers)


def _compressed(content: bytes) -> bytes:
    packed = BytesIO()
    name = "n" * (1 + secrets.randbelow(_BLUR_BYTES))  # the header of gzip has room for a file's name
    with GzipFile(name, "wb", _LEVEL, packed, mtime=0) as file:
        file.write(content)
    return packed.getvalue()


async def unless_away(answer: Awaitable[_T]) -> _T | None:
    """Return the answer, or None while the store does not give it: of a page that shows what is away, the rest is still to be seen."""
    try:
        return await answer
    except StoreUnavailableError:
        return None


async def known(value: _T) -> _T:
    """Return the value: what is known already, among what is waited for."""
    return value


def places_of(principal: Principal) -> list[_NavigationPlace]:
    """Return the parts of the console that a principal may see, in their order."""
    found: dict[str, _NavigationPlace] = {}
    for each in PLACES:
        if principal.may(each.scope):
            found.setdefault(each.title, each)
    return [*found.values()]


def name_in(request: Request, parameter: str, what: str) -> str:
    """Return the name that a part of the path is; raises NotFoundError for what nothing is called."""
    name: str = request.path_params[parameter]
    if "\0" in name or len(name) > MAX_ID:
        raise NotFoundError(what, name.replace("\0", ""))
    return name


def see(path: str) -> Response:
    """Return what leads to a page of the console after a form was sent."""
    return RedirectResponse(f"{PREFIX}{path}", 303)


def own_path(text: str, otherwise: str = PREFIX) -> str:
    """Return the path of a page of the console to go on with: the one that is asked for, if it is one, and fits into a cookie."""
    return text if len(text) <= _LONGEST_PATH and _OWN_PATH.fullmatch(text) else otherwise


def back(text: str, otherwise: str, *, anchor: str = "", **did: object) -> Response:
    """Return what leads back to the page of the console that a form was on, to an element of it, which says what was `did`; `otherwise`
    is for a form that does not say where that is.
    """
    path, _, asked = own_path(text, f"{PREFIX}{otherwise}").partition("?")
    kept = {name: value for name, value in parse_qsl(asked) if name not in did}
    return RedirectResponse(f"{path}{query(**kept, **did)}{anchor and f'#{anchor}'}", 303)
