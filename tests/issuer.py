"""An issuer of tokens: a real HTTP server with the OpenID configuration and the keys, which tests can change."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import orjson
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

RSA, EC, ED = RSAKey.generate_key(2048), ECKey.generate_key("P-256"), OKPKey.generate_key("Ed25519")
STRANGER = RSAKey.generate_key(2048)
AUDIENCE = "https://owlclaw.example.org"
WHOEVER = jws.JWSRegistry(algorithms=["RS256", "ES256", "RS384"], strict_check_header=False)


class IssuerServer:
    """What it answers is what its attributes say. It counts what it is asked for."""

    def __init__(self) -> None:
        self.keys = [jwk(RSA, "rsa"), jwk(EC, "ec"), jwk(ED, "ed")]
        self.status, self.body, self.location = 200, None, ""
        self.discovered: dict[str, str] = {}
        self.asked: Counter[str] = Counter()
        self.go_on = threading.Event()
        self.go_on.set()
        self.url = ""

    def answer(self, path: str) -> bytes:
        if self.body is not None:
            return self.body
        if path == "/.well-known/openid-configuration":
            return orjson.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.discovered})
        return orjson.dumps({"keys": self.keys})

    def claims(self, now: float, **claims: object) -> dict[str, object]:
        """The claims of a valid token; one that is None is left out."""
        said = {"iss": self.url, "sub": "ada", "aud": AUDIENCE, "iat": now, "exp": now + 600, **claims}
        return {name: value for name, value in said.items() if value is not None}


def jwk(key, kid: str, **more: object) -> dict[str, object]:
    return {**key.as_dict(private=False), "kid": kid, "use": "sig", **more}


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def part(value: object) -> str:
    return encoded(orjson.dumps(value))


def signed(claims: dict[str, object], key=RSA, **header: object) -> str:
    """A token, signed by RSA as `rsa` unless something else is said: by bytes with HMAC, by None not at all. A header that is None is
    left out.
    """
    said = {"alg": "RS256", "kid": "rsa", "typ": "JWT", **header}
    protected = {name: value for name, value in said.items() if value is not None}
    unsigned = f"{part(protected)}.{part(claims)}"
    if key is None:
        return f"{unsigned}."
    if "crit" in said:  # joserfc makes none of what it does not know
        return f"{unsigned}.{encoded(key.get_op_key('sign').sign(unsigned.encode(), PKCS1v15(), SHA256()))}"
    if said["alg"] == "EdDSA":  # joserfc warns of that name
        return f"{unsigned}.{encoded(key.get_op_key('sign').sign(unsigned.encode()))}"
    if isinstance(key, bytes):
        return f"{unsigned}.{encoded(hmac.digest(key, unsigned.encode(), hashlib.sha256))}"
    return jws.serialize_compact(protected, orjson.dumps(claims), key, registry=WHOEVER)


@contextmanager
def serving_issuer() -> Iterator[IssuerServer]:
    issuer = IssuerServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            issuer.asked[path] += 1
            issuer.go_on.wait(120)
            content = issuer.answer(path)
            self.send_response(issuer.status)
            if issuer.location:
                self.send_header("Location", issuer.location)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield issuer
    finally:
        issuer.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
