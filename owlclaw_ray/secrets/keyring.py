"""Master keys, and what they make of the secrets of tenants.

A secret is sealed with AES-256-GCM. Its tenant and its name are authenticated with it, so that a ciphertext which somebody moves to
another row is refused there. A key is known by an id that is derived from it: nobody has to name keys, or can mix their names up.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from owlclaw_ray.configuration.own_variables import KEYS_VARIABLE
from owlclaw_ray.errors import ConfigurationError, Problem, SecretsUnavailableError
from owlclaw_ray.ids import TenantId

_KEY_BYTES, _NONCE_BYTES = 32, 12
_KEY = re.compile(r"[A-Za-z0-9_-]{43}=?")
_CONTEXT = b"owlclaw secrets key"
_VERSION = b"1"
_MAKE = f"make one with: owlclaw secrets keygen, and set {KEYS_VARIABLE} or secrets.key_file"


class SealedSecret(Struct, frozen=True):
    """A secret as the store has it."""

    key_id: str
    ciphertext: bytes
    """The nonce, and what AES-GCM made of the value."""


class Keyring:
    """The master keys of an installation. The first one seals, each of them opens what it has sealed."""

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        self._keys: Mapping[str, bytes] = {_key_id(key): key for key in keys}

    @property
    def newest(self) -> str:
        """The id of the key that seals; raises SecretsUnavailableError if there is none."""
        for key_id in self._keys:
            return key_id
        raise SecretsUnavailableError(f"no master key of secrets is set: {_MAKE}")

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all keys, the newest first."""
        return tuple(self._keys)

    def seal(self, tenant: TenantId, name: str, value: str) -> SealedSecret:
        """Return the value, sealed for this tenant and name by the newest key; raises SecretsUnavailableError if there is none."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key_id, nonce = self.newest, os.urandom(_NONCE_BYTES)
        sealed = AESGCM(self._keys[key_id]).encrypt(nonce, value.encode(), _bound_to(tenant, name, key_id))
        return SealedSecret(key_id, nonce + sealed)

    def open(self, tenant: TenantId, name: str, sealed: SealedSecret) -> str:
        """Return the value; raises SecretsUnavailableError if its key is missing, and for what was not sealed for the tenant and name."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._keys.get(sealed.key_id)
        if key is None:
            have = f"the keys {', '.join(self._keys)} are set" if self._keys else "no key is set"
            raise SecretsUnavailableError(
                f"secret {name} was encrypted with the master key {sealed.key_id}, which is missing ({have}): add it to {KEYS_VARIABLE}"
                " or secrets.key_file, behind the newest"
            )
        nonce, ciphertext = sealed.ciphertext[:_NONCE_BYTES], sealed.ciphertext[_NONCE_BYTES:]
        try:
            return AESGCM(key).decrypt(nonce, ciphertext, _bound_to(tenant, name, sealed.key_id)).decode()
        except (InvalidTag, ValueError) as error:
            raise SecretsUnavailableError(
                f"secret {name} in the store is not what was encrypted for it: set it again with owlclaw secrets set {name}"
            ) from error


def new_key() -> str:
    """Return a new master key, as it is written."""
    return base64.urlsafe_b64encode(os.urandom(_KEY_BYTES)).decode()


def read_keys(written: str) -> Keyring:
    """Return the keys of a text that has them between commas or white space, the newest first; raises ConfigurationError.

    The error does not repeat what is written.
    """
    words = [word for word in re.split(r"[\s,]+", written) if word]
    keys = []
    for number, word in enumerate(words, 1):
        if not _KEY.fullmatch(word):
            what = f"key {number} of {len(words)} is no master key: 32 bytes in base64, 44 characters"
            raise ConfigurationError([Problem(KEYS_VARIABLE, what, "make one with: owlclaw secrets keygen")])
        keys.append(base64.urlsafe_b64decode(word.rstrip("=") + "="))
    return Keyring(tuple(keys))


def written_keys(key_file: Path | None, environ: Mapping[str, str]) -> str:
    """Return the master keys of the environment, and after them those of the file, as they are written; empty if there are none.

    Raises ConfigurationError for a file that cannot be read, and for what is no key.
    """
    written = environ.get(KEYS_VARIABLE, "")
    if key_file is not None:
        try:
            written = f"{written}\n{key_file.read_text()}"
        except (OSError, UnicodeError) as error:
            fix = "name a file that has one master key a line, the newest first: owlclaw secrets keygen makes one"
            raise ConfigurationError(
                [Problem("secrets.key_file", f"{key_file} cannot be read: {error}", fix)]
            ) from error
    read_keys(written)
    return written.strip()


def _key_id(key: bytes) -> str:
    return hashlib.sha256(_CONTEXT + key).hexdigest()[:12]


def _bound_to(tenant: TenantId, name: str, key_id: str) -> bytes:
    return msgspec.msgpack.encode((_VERSION, tenant, name, key_id))
