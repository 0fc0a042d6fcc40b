"""Texts that only we can read and make: what browsers keep for us, sealed by AES-256-GCM."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable

_NONCE_BYTES = 12


def derived_key(secret: bytes, use: str) -> bytes:
    """Return a key of 256 bits for one use of a secret: what is sealed for another use cannot be opened by it."""
    return hmac.digest(secret, use.encode(), "sha256")


def sealed(key: bytes, content: bytes, about: str, random: Callable[[int], bytes]) -> str:
    """Return the content as a text for a cookie, bound to what it is about. `random` returns so many random bytes."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = random(_NONCE_BYTES)
    return base64.urlsafe_b64encode(nonce + AESGCM(key).encrypt(nonce, content, about.encode())).decode().rstrip("=")


def opened(key: bytes, text: str, about: str) -> bytes | None:
    """Return what was sealed, None if it was not sealed by this key about this."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return AESGCM(key).decrypt(content[:_NONCE_BYTES], content[_NONCE_BYTES:], about.encode())
    except (ValueError, InvalidTag):
        return None
