"""Who visits: the session that a browser's cookie names, and forms that only our own pages can send.

A form carries a token that is derived from a cookie which no script reads. A page of another origin cannot read it, and what browsers say
of where a form comes from (`Origin`) is asked for, too: cookies alone are sent whoever made the browser ask.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct
from msgspec.structs import replace
from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import Response
from starlette.types import Scope

from owlclaw_ray.access.sessions import SESSION_SECONDS
from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.errors import AccessDeniedError, Problem
from serve.errors import InvalidRequestError, MalformedJsonError
from serve.request_bodies import read_json

TOKEN_FIELD = "token"  # noqa: S105 - the name of a field
_TOO_LARGE = 2.0**63
"""No number of JSON that anything of ours takes."""
_MOST_FIELDS = 1_000
_SALT = 16
"""Of a token: characters at its beginning that differ from page to page."""
_FOREIGN = (
    "this form was not sent by a page of this console, or the page is of an earlier session: open it again and repeat"
)


class SentForm(Struct, frozen=True):
    """What a form of ours says."""

    fields: tuple[tuple[str, str], ...]

    def text(self, name: str) -> str:
        """Return the field, empty if it is not there. Browsers send CRLF for what was typed as a line feed."""
        return next((value for each, value in self.fields if each == name), "").replace("\r\n", "\n")

    def number(self, name: str) -> JsonValue:
        """Return the number in a field, None for an empty one; what is none as its text, for the check of the whole form to refuse."""
        text = self.text(name).strip()
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            return text
        return text if not abs(value) < _TOO_LARGE else int(value) if value.is_integer() else value

    def json(self, name: str, fix: str) -> JsonValue:
        """Return the JSON that somebody typed into a field; raises InvalidRequestError, with what would be right."""
        try:
            return read_json(self.text(name).encode())
        except MalformedJsonError as error:
            raise InvalidRequestError([Problem(name, error.reason, fix)]) from None
        except InvalidRequestError as error:
            raise InvalidRequestError(
                [replace(each, where=each.where.replace("body", name, 1)) for each in error.problems]
            ) from None

    def all(self, name: str) -> tuple[str, ...]:
        """Return every value of a field, once."""
        return tuple(dict.fromkeys(value for each, value in self.fields if each == name))


class Visit(Struct, frozen=True):
    """What a request says of who sends it."""

    cookies: Mapping[str, str]
    secure: bool
    port: str

    @classmethod
    def of(cls, scope: Scope) -> Visit:
        """Return the visit that a request belongs to."""
        headers = Headers(scope=scope)
        cookies = cookie_parser(headers.get("cookie", ""))
        port = headers.get("host", "").rpartition(":")[2]
        return cls(cookies, scope["scheme"] == "https", port if port.isdigit() else "")

    def _named(self, what: str) -> str:
        """Return the name of a cookie. Cookies know no ports: two servers of one machine need two names."""
        return f"__Host-owlclaw-{what}" if self.secure else f"owlclaw-{what}{self.port and f'-{self.port}'}"

    @property
    def session(self) -> str:
        """The token of a session, empty if there is none."""
        return self.cookies.get(self._named("session"), "")

    @property
    def visitor(self) -> str:
        """What tells a browser without a session from others; empty at its first request."""
        return self.cookies.get(self._named("visit"), "")

    @property
    def flow(self) -> str:
        """What a sign-in at an issuer that has begun remembers; empty if none has."""
        return self.cookies.get(self._named("flow"), "")

    def set(self, response: Response, what: str, value: str, seconds: float | None = None) -> None:
        """Have the browser keep a cookie, which scripts do not see; for 0 seconds: forget it."""
        response.set_cookie(
            self._named(what),
            value,
            max_age=None if seconds is None else int(seconds),
            path="/" if self.secure else "/console",
            secure=self.secure,
            httponly=True,
            samesite="strict" if what == "visit" else "lax",  # links of others, and issuers, lead here
        )

    def begin(self, response: Response, session: str) -> None:
        """Have the browser keep a session."""
        self.set(response, "session", session, SESSION_SECONDS)

    def end(self, response: Response) -> None:
        """Have the browser forget its session."""
        self.set(response, "session", "", 0)


def new_visitor() -> str:
    """Return what nobody can guess."""
    return secrets.token_urlsafe(24)


def form_token(secret: str, salt: str = "") -> str:
    """Return what a form carries for the session, or the visitor, of that cookie: another one on every page, since pages are compressed,
    and how well tells what in them repeats.
    """
    salt = salt or secrets.token_hex(_SALT // 2)
    return salt + hashlib.sha256(f"owlclaw console form {salt} {secret}".encode()).hexdigest()


async def read_form(request: Request) -> SentForm:
    """Return the form that a page of ours sent.

    Raises AccessDeniedError for one of another page, InvalidRequestError for what is no form.
    """
    visit = Visit.of(request.scope)
    if urlsplit(request.headers.get("origin", "")).netloc.lower() != request.headers.get("host", "").lower():
        raise AccessDeniedError(_FOREIGN)
    try:
        body = (await request.body()).decode()
        form = SentForm(tuple(parse_qsl(body, keep_blank_values=True, max_num_fields=_MOST_FIELDS)))
    except ValueError as error:
        problem = Problem("body", f"is no form: {error}", "send it from a page of the console")
        raise InvalidRequestError([problem]) from None
    secret = visit.session or visit.visitor
    token = form.text(TOKEN_FIELD)
    expected = form_token(secret, token[:_SALT].ljust(_SALT))
    if not secret or not hmac.compare_digest(token.encode(), expected.encode()):
        raise AccessDeniedError(_FOREIGN)
    return form
