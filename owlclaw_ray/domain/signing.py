"""HMACs of webhooks, those that come in and those that go out."""

from __future__ import annotations

import base64
import hmac

from owlclaw_ray.domain.webhook import SecretForm

SECRET_PREFIX = "whsec_"  # noqa: S105 - of every secret that Standard Webhooks makes


def digest(key: bytes, content: bytes, algorithm: str = "sha256", encoding: str = "hex") -> str:
    """Return the HMAC of a content as text."""
    raw = hmac.new(key, content, algorithm).digest()
    return raw.hex() if encoding == "hex" else base64.b64encode(raw).decode()


def key_of(secret: str, form: SecretForm) -> bytes:
    """Return a secret's bytes; raises ValueError if it is not of that form."""
    if form is SecretForm.TEXT:
        return secret.encode()
    return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)


def signed_callback(callback_id: str, timestamp: int, body: bytes, key: bytes) -> str:
    """Return the signature of a callback, as Standard Webhooks says: of its id, the time and the body."""
    return "v1," + digest(key, f"{callback_id}.{timestamp}.".encode() + body, encoding="base64")
