"""An OpenID provider: a real HTTP server with discovery, authorization, token and key endpoints, strict unless a test says otherwise."""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

import orjson

from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.system_clock import SystemClock
from tests.issuer import RSA, encoded, jwk, signed

CLIENT, SECRET = "owlclaw console", "s3cret/of+the:client"
PERSON = {"sub": "ada", "name": "Ada Lovelace", "org": "default", "groups": ["desk", "unheard-of"]}


class Grant(NamedTuple):
    """What a code stands for."""

    redirect_uri: str
    nonce: str
    challenge: str


class OpenIdProvider:
    """What it does is what its attributes say. It counts what it is asked for, and keeps what came to the token endpoint."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.url = clock, ""
        self.redirect_uris: set[str] = set()
        self.metadata: dict[str, object] = {}
        self.answer: dict[str, str | None] = {}
        """Changes of what it sends back by the browser; None: that is left out."""
        self.claims: dict[str, object] = {}
        """Changes of the claims of ID tokens; None: that is left out."""
        self.id_token: str | None = None
        """Instead of a new one."""
        self.token_answer: tuple[int, bytes] | None = None
        self.codes_work_again = False
        self.asks_people = False
        """Whether a page asks them before they are sent back."""
        self.grants: dict[str, Grant] = {}
        self.asked: Counter[str] = Counter()
        self.sent: list[dict[str, str]] = []
        self.authorizations: list[str] = []

    def discovery(self) -> dict[str, object]:
        said = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "response_types_supported": ["code"],
            "authorization_response_iss_parameter_supported": True,
            **self.metadata,
        }
        return {name: value for name, value in said.items() if value is not None}

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser is sent back to. What is no proper request is an AssertionError, which breaks the connection."""
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        assert asked["redirect_uri"] in self.redirect_uris
        assert "openid" in asked["scope"].split()
        assert asked["code_challenge_method"] == "S256"
        assert len(asked["state"]) >= 32
        code = secrets.token_urlsafe(16)
        self.grants[code] = Grant(asked["redirect_uri"], asked["nonce"], asked["code_challenge"])
        said = {"code": code, "state": asked["state"], "iss": self.url, "session_state": "x.y", **self.answer}
        return (
            f"{asked['redirect_uri']}?{urlencode({name: value for name, value in said.items() if value is not None})}"
        )

    def token(self, authorization: str, form: dict[str, str]) -> tuple[int, bytes]:
        self.sent.append(form)
        self.authorizations.append(authorization)
        if self.token_answer is not None:
            return self.token_answer
        given = (form.get("client_id", ""), form.get("client_secret", ""))
        if authorization:
            name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
            given = unquote_plus(name), unquote_plus(secret)
        if given != (CLIENT, SECRET):
            return 401, b'{"error": "invalid_client"}'
        code = form["code"]
        grant = self.grants.get(code) if self.codes_work_again else self.grants.pop(code, None)
        if (
            grant is None
            or form["grant_type"] != "authorization_code"
            or form["redirect_uri"] != grant.redirect_uri
            or encoded(hashlib.sha256(form["code_verifier"].encode()).digest()) != grant.challenge
        ):
            return 400, b'{"error": "invalid_grant"}'
        answer = {
            "access_token": "not for us",
            "token_type": "Bearer",
            "id_token": self.id_token or self.identity(grant),
        }
        return 200, orjson.dumps(answer)

    def identity(self, grant: Grant) -> str:
        now = self.clock.now().timestamp()
        said = {
            "iss": self.url,
            "aud": CLIENT,
            "nonce": grant.nonce,
            "iat": now,
            "exp": now + 60,
            **PERSON,
            **self.claims,
        }
        return signed({name: value for name, value in said.items() if value is not None})


@contextmanager
def serving_provider(clock: Clock | None = None, port: int = 0) -> Iterator[OpenIdProvider]:
    provider = OpenIdProvider(clock or SystemClock())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            provider.asked[parts.path] += 1
            if parts.path == "/authorize":
                back = provider.authorize(dict(parse_qsl(parts.query, strict_parsing=True)))
                if provider.asks_people:
                    link = back.replace("&", "&amp;")
                    page = f"<!doctype html><title>Provider</title><link rel=icon href=data:,><a href='{link}'>Continue as Ada</a>"
                    self._send(200, page.encode(), "text/html")
                else:
                    self._send(302, b"", "text/plain", back)
            elif parts.path == "/keys":
                self._send(200, orjson.dumps({"keys": [jwk(RSA, "rsa")]}))
            elif parts.path == "/.well-known/openid-configuration":
                self._send(200, orjson.dumps(provider.discovery()))
            else:
                self._send(404, b"")

        def do_POST(self) -> None:
            provider.asked[self.path] += 1
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            assert self.path == "/token"
            self._send(
                *provider.token(self.headers.get("Authorization", ""), dict(parse_qsl(body, strict_parsing=True)))
            )

        def _send(self, status: int, content: bytes, kind: str = "application/json", location: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
