"""Access keys: what is kept of them, and how they are written.

`owl_<id>_<secret>_<check>`: 8 characters that name the key, 43 of a random secret of 256 bits, and 6 of a CRC-32 of all before, so
that a mistyped key is refused without asking the store, and scanners for leaked secrets find it by its form. Only the SHA-256 of the secret
is kept: of 256 random bits a slow hash would protect nothing more.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import string
import zlib
from collections.abc import Callable
from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.principal import Principal, PrincipalKind
from owlclaw_ray.domain.quota import KEY_QUOTAS, KeyQuota
from owlclaw_ray.ids import KeyId, TenantId

KEY_VARIABLE = "OWLCLAW_API_KEY"
"""The access key of the commands: an option would be in the list of processes, and in the shell's history."""
PREFIX = "owl_"
KEY_PATTERN = r"owl_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}"
_KEY = re.compile(r"owl_([0-9A-Za-z]{8})_([0-9A-Za-z]{43})_([0-9A-Za-z]{6})")
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SECRET_BYTES, _SECRET_CHARACTERS, _ID_CHARACTERS, _CHECK_CHARACTERS = 32, 43, 8, 6
DEFAULT_DAYS = 90
"""How long a key is valid unless something else is said."""
MAX_DAYS = 3_650


class AccessKey(Struct, frozen=True):
    """What is kept of a key: enough to know it again, not to make it."""

    key_id: KeyId
    tenant: TenantId
    name: str
    secret_hash: str
    """Hexadecimal SHA-256 of the secret."""
    scopes: tuple[str, ...]
    patterns: tuple[str, ...]
    created_at: datetime
    created_by: str
    expires_at: datetime
    previous_hash: str | None = None
    """Of the secret before the last rotation."""
    previous_until: datetime | None = None
    """Until when that is valid, too."""
    last_used_at: datetime | None = None
    """To a minute or so."""
    revoked_at: datetime | None = None
    starts_a_minute: int | None = None
    """How many runs may be started by it in one minute of the clock; None: as many as its tenant may."""
    open_runs: int | None = None
    """How many of its runs may be queued, running and waiting together."""
    running_runs: int | None = None
    """How many of its runs are executed at once."""
    model_tokens_a_minute: int | None = None
    """How many tokens of models its runs may use in one minute of the clock."""

    @property
    def fingerprint(self) -> str:
        """What tells its present secret from others, for who may see the key: nothing of the secret can be found from it."""
        return hashlib.sha256(f"fingerprint {self.secret_hash}".encode()).hexdigest()[:16]

    @property
    def quota(self) -> KeyQuota | None:
        """Its quotas; None if it has none."""
        found = KeyQuota(self.key_id, **{name: getattr(self, name) for name in KEY_QUOTAS})
        return found if found.given else None

    def refusal(self, secret_hash: str, now: datetime) -> str:
        """Return why the secret with this hash is not let in; empty if it is."""
        current = hmac.compare_digest(self.secret_hash, secret_hash)
        before = self.previous_hash is not None and hmac.compare_digest(self.previous_hash, secret_hash)
        if not current and not before:
            return "unknown"
        if self.revoked_at is not None:
            return "revoked"
        if now >= self.expires_at:
            return "expired"
        if not current and (self.previous_until is None or now >= self.previous_until):
            return "rotated"
        return ""

    @property
    def principal(self) -> Principal:
        """Who has the key."""
        return Principal(
            self.tenant,
            PrincipalKind.KEY,
            self.key_id,
            self.name,
            frozenset(self.scopes),
            self.patterns,
            quota=self.quota,
        )


def make_key(random: Callable[[int], bytes]) -> tuple[KeyId, str, str]:
    """Return a new key's id, the whole key, and the hash of its secret. `random` returns so many random bytes."""
    key_id = "".join(_DIGITS[byte % len(_DIGITS)] for byte in random(_ID_CHARACTERS))
    return KeyId(key_id), *make_secret(KeyId(key_id), random)


def make_secret(key_id: KeyId, random: Callable[[int], bytes]) -> tuple[str, str]:
    """Return a key of this id with a new secret, and the secret's hash."""
    secret = _base62(int.from_bytes(random(_SECRET_BYTES)), _SECRET_CHARACTERS)
    body = f"{PREFIX}{key_id}_{secret}"
    return f"{body}_{_check(body)}", _hash(secret)


def read_key(text: str) -> tuple[KeyId, str] | None:
    """Return the id of a key and the hash of its secret; None if the text is no key."""
    found = _KEY.fullmatch(text)
    if found is None or _check(text[: -_CHECK_CHARACTERS - 1]) != found[3]:
        return None
    return KeyId(found[1]), _hash(found[2])


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _check(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECK_CHARACTERS)


def _base62(value: int, width: int) -> str:
    digits = []
    for _ in range(width):
        value, digit = divmod(value, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
