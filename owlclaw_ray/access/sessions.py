"""Sessions of people in browsers: tokens that stand for an access key for some hours, and codes that begin a session once.

A token is the key's text and the token's end, encrypted with AES-256-GCM by what is derived from the hash of the key's secret, which the
store has. So every replica can open it, nothing is stored, and neither the store alone (it has no key's text) nor a token alone (it can
be opened by the server only) gives anybody the key. What is in it is checked as any key is: revoking or rotating the key, or suspending
its tenant, ends its sessions within 5 seconds.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta

import msgspec
from msgspec import Struct

from owlclaw_ray.access.authentication import Authenticator
from owlclaw_ray.domain.access_key import AccessKey, read_key
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord, access_record
from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.errors import UnauthenticatedError
from owlclaw_ray.ids import IdSource, KeyId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import AppendLedger
from owlclaw_ray.store.queries import KeyById, LedgerFilter, LedgerPlace

SESSION_SECONDS = 12 * 3_600.0
CODE_SECONDS = 60.0
_NONCE_BYTES = 12
_REMEMBERED = 1_000
_PAGE = 1_000
_SKEW = timedelta(minutes=1)
"""By how much the clocks of two replicas may differ."""
_NO_KEY = "this is no access key: it begins with owl_, and owlclaw keys create makes one"
_USED = "this sign-in link is used, or over a minute old: ask for another one with owlclaw console"


class _Content(Struct, frozen=True):
    key: str
    until: float
    """In seconds since 1970."""
    number: str = ""
    """What tells one code from another."""


class Sessions:
    """Begins sessions, and knows whose they are. `random` returns so many random bytes."""

    def __init__(
        self,
        store: Store,
        authenticator: Authenticator,
        clock: Clock,
        ids: IdSource,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._store, self._authenticator, self._clock, self._ids = store, authenticator, clock, ids
        self._random = random
        self._opened: OrderedDict[bytes, _Content] = OrderedDict()

    async def begin(self, key: str) -> str:
        """Return the token of a new session of 12 hours; raises UnauthenticatedError for what is no valid key, StoreUnavailableError."""
        principal, stored = await self._checked(key)
        await self._tell(self._begun(self._ids.make("rec"), principal, stored.key_id))
        return self._sealed("session", key, stored, SESSION_SECONDS)

    async def code(self, key: str) -> str:
        """Return what begins a session of the key, once, within a minute. Raises as `begin`."""
        _, stored = await self._checked(key)
        return self._sealed("code", key, stored, CODE_SECONDS, self._random(16).hex())

    async def redeem(self, code: str) -> str:
        """Return as `begin`, for a code; of those who come with the same one, one gets a session. Raises as `begin`."""
        content = await self._opened_as("code", code)
        if content is None:
            raise UnauthenticatedError(_USED)
        principal, stored = await self._checked(content.key)
        record = self._begun(derived_id("rec", "console", content.number), principal, stored.key_id)
        await self._tell(record)
        if not await self._is_kept(record):
            raise UnauthenticatedError(_USED)
        return self._sealed("session", content.key, stored, SESSION_SECONDS)

    async def key_of(self, token: str) -> str | None:
        """Return the key that a session stands for, None if it is over or none of ours; raises StoreUnavailableError.

        Whether the key is valid still is for the Authenticator to say.
        """
        digest = hashlib.sha256(token.encode()).digest()
        content = self._opened.get(digest)
        if content is None:
            content = await self._opened_as("session", token)
            if content is None:
                return None
            self._opened[digest] = content
            while len(self._opened) > _REMEMBERED:
                self._opened.popitem(last=False)
        return content.key if self._clock.now().timestamp() < content.until else None

    async def _checked(self, key: str) -> tuple[Principal, AccessKey]:
        read = read_key(key)
        if read is None:
            raise UnauthenticatedError(_NO_KEY)
        principal = await self._authenticator.principal_of(key)
        stored = await self._store.read(KeyById(read[0]))
        if stored is None:
            raise UnauthenticatedError(_NO_KEY)
        return principal, stored

    def _begun(self, record_id: str, principal: Principal, key_id: KeyId) -> LedgerRecord:
        """Return the record of a session; `session` tells those apart that want the same id."""
        data = {"key_id": key_id, "by": str(principal), "session": self._random(8).hex()}
        return access_record(record_id, principal.tenant, "session_begun", self._clock.now(), data)

    async def _tell(self, record: LedgerRecord) -> None:
        await self._store.apply([AppendLedger((record,))])

    async def _is_kept(self, record: LedgerRecord) -> bool:
        """Return whether the ledger has this record, and not an earlier one of its id."""
        since, place = record.at - timedelta(seconds=CODE_SECONDS) - _SKEW, None
        while found := await self._store.read(
            LedgerFilter(record.tenant, kind=LedgerKind.ACCESS, since=since, after=place, limit=_PAGE)
        ):
            for each in found:
                if each.record.record_id == record.record_id:
                    return each.record.data == record.data
            place = LedgerPlace.of(found[-1])
        return False

    def _sealed(self, use: str, key: str, stored: AccessKey, seconds: float, number: str = "") -> str:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        content = _Content(key, self._clock.now().timestamp() + seconds, number)
        nonce = self._random(_NONCE_BYTES)
        sealed = AESGCM(_derived(use, stored.secret_hash)).encrypt(
            nonce, msgspec.json.encode(content), stored.key_id.encode()
        )
        return f"{stored.key_id}.{base64.urlsafe_b64encode(nonce + sealed).decode().rstrip('=')}"

    async def _opened_as(self, use: str, token: str) -> _Content | None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key_id, _, text = token.partition(".")
        try:
            sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            return None
        stored = await self._store.read(KeyById(KeyId(key_id))) if len(sealed) > _NONCE_BYTES else None
        for secret_hash in () if stored is None else filter(None, (stored.secret_hash, stored.previous_hash)):
            try:
                opened = AESGCM(_derived(use, secret_hash)).decrypt(
                    sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], key_id.encode()
                )
            except InvalidTag:
                continue
            content = msgspec.json.decode(opened, type=_Content)
            return content if self._clock.now().timestamp() < content.until else None
        return None


def _derived(use: str, secret_hash: str) -> bytes:
    return hmac.digest(bytes.fromhex(secret_hash), f"owlclaw console {use}".encode(), "sha256")
