"""Signing in with an access key, with a link that works once, or at an issuer; signing out; and the files that pages load."""

from __future__ import annotations

from typing import ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from console.pages import PLACES, Pages, own_path, page, places_of, see
from console.static_files import static_response
from console.visits import Visit, read_form
from owlclaw_ray.access.sessions import CODE_SECONDS
from owlclaw_ray.access.sign_in import FLOW_SECONDS
from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.errors import UnauthenticatedError
from serve.origin_check import FOREIGN
from serve.resource import PUBLIC

_BEARER = "bearer "


class SignInPages(Pages):
    """`/console/sign-in`, for everybody: what it lets in, the access gate asks for at each request that follows."""

    place: ClassVar[str] = "sign-in"

    @page("GET /console/static/{name}", PUBLIC, "v")
    async def console_file(self, request: Request) -> Response:
        """Return a file."""
        return static_response(request, request.path_params["name"])

    @page("GET /console/sign-in", PUBLIC, "next", "link")
    async def console_sign_in(self, request: Request) -> Response:
        """Show the form, or lead on whoever needs none. With `link` a code follows, which the page takes and others would leave
        in the address: it signs in as the code's principal, whoever is signed in.
        """
        following = own_path(request.query_params.get("next", ""))
        if "link" not in request.query_params and await self._principal(request) is not None:
            return RedirectResponse(following, 303)
        return await self._form(request, following)

    @page("GET /console/sign-in/{issuer}", PUBLIC, "next")
    async def console_go_to_issuer(self, request: Request) -> Response:
        """Lead to the issuer at which one signs in."""
        departure = await self._runtime.sign_ins.begin(
            request.path_params["issuer"], own_path(request.query_params.get("next", ""))
        )
        response = RedirectResponse(departure.url, 303)
        Visit.of(request.scope).set(response, "flow", departure.flow, FLOW_SECONDS)
        return response

    @page("GET /console/sign-in/{issuer}/callback", PUBLIC)
    async def console_come_from_issuer(self, request: Request) -> Response:
        """Begin the session of whom the issuer sends back."""
        visit, answer, issuer = Visit.of(request.scope), request.query_params, request.path_params["issuer"]
        begun = self._runtime.sign_ins.begun(issuer, visit.flow)
        response: Response
        try:
            arrival = await self._runtime.sign_ins.finish(issuer, answer, visit.flow)
        except UnauthenticatedError as error:
            response = await self._form(request, own_path(begun.following if begun else ""), str(error))
        else:
            response = RedirectResponse(own_path(arrival.following), 303)
            visit.begin(response, arrival.session)
        if begun is None or answer.get("state") == begun.state:  # that of another tab goes on
            visit.set(response, "flow", "", 0)
        return response

    async def _form(self, request: Request, following: str, problem: str = "") -> Response:
        """Show the ways to sign in, and why the last one did not work."""
        sign_ins = self._runtime.sign_ins
        shown = await self.shown(
            request,
            "sign_in.html",
            following=following,
            problem=problem,
            issuers=sign_ins.names,
            public_url=sign_ins.public_url,
        )
        shown.status_code = 401 if problem else 200
        return shown

    @page("GET /console", PUBLIC)
    async def console_home(self, request: Request) -> Response:
        """Lead to the first part of the console that the principal may see, or to where one signs in."""
        principal = await self._principal(request)
        if principal is None:
            return see("/sign-in")
        return see(f"/{next(iter(places_of(principal)), PLACES[0]).path}")

    async def _principal(self, request: Request) -> Principal | None:
        """Return whom a request acts for that the access gate has let pass unasked, None if it has no session."""
        session = Visit.of(request.scope).session
        try:
            key = await self._runtime.sessions.key_of(session) if session else None
            return await self._runtime.authenticator.principal_of(key, local=FOREIGN not in request.scope)
        except UnauthenticatedError:
            return None

    @page("POST /console/sign-in", PUBLIC)
    async def console_begin_session(self, request: Request) -> Response:
        """Begin the session of a key, or of a code."""
        form, visit = await read_form(request), Visit.of(request.scope)
        following, sessions = own_path(form.text("next")), self._runtime.sessions
        try:
            code = form.text("code").strip()
            session = await (sessions.redeem(code) if code else sessions.begin(form.text("key").strip()))
        except UnauthenticatedError as error:
            return await self._form(request, following, str(error))
        response = RedirectResponse(following, 303)
        visit.begin(response, session)
        return response

    @page("POST /console/sign-in/codes", PUBLIC)
    async def console_make_code(self, request: Request) -> Response:
        """Return a code that begins a session of the key of this request, which is in its header Authorization."""
        given = request.headers.get("authorization", "")
        if given[: len(_BEARER)].lower() != _BEARER:
            await self._runtime.authenticator.principal_of(None, local=FOREIGN not in request.scope)
            return JSONResponse({"code": None, "expires_in": None})
        code = await self._runtime.sessions.code(given[len(_BEARER) :].strip())
        return JSONResponse({"code": code, "expires_in": CODE_SECONDS})

    @page("POST /console/sign-out", PUBLIC)
    async def console_end_session(self, request: Request) -> Response:
        """Have the browser forget its session."""
        await read_form(request)
        response = see("/sign-in")
        Visit.of(request.scope).end(response)
        return response
