"""Sessions of people in browsers: tokens that stand for an access key, or for who signed in at an issuer, for some hours; and codes that
begin a session once.

A token of a key is the key's text and the token's end, encrypted with AES-256-GCM by what is derived from the hash of the key's secret,
which the store has. So every replica can open it, nothing is stored, and neither the store alone (it has no key's text) nor a token alone
(it can be opened by the server only) gives anybody the key. What is in it is checked as any key is: revoking or rotating the key, or
suspending its tenant, ends its sessions within 5 seconds.

A token of who signed in is what the issuer said of them and the token's end, encrypted likewise by what is derived from the secret of the
settings, which neither the store nor an issuer has. Tenant and scopes are mapped from it at each look-up, by the settings as they are.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from owlclaw_ray.access.authentication import Authenticator
from owlclaw_ray.access.seals import derived_key, opened, sealed
from owlclaw_ray.domain.access_key import AccessKey, read_key
from owlclaw_ray.domain.issuer import Credential, Issuer, PersonSession, SignInOptions
from owlclaw_ray.domain.json import JsonObject
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
_NAME_END = "~"
"""Between an issuer's name and what is sealed: ids of keys, and names of issuers that people sign in at, have none."""
_MOST_CHARACTERS = 3_800
"""Of a token: browsers keep cookies of up to 4,096."""
_REMEMBERED = 1_000
_PAGE = 1_000
_SKEW = timedelta(minutes=1)
"""By how much the clocks of two replicas may differ."""
_NO_KEY = "this is no access key: it begins with owl_, and owlclaw keys create makes one"
_TOO_MUCH = "what your issuer says of you is too long for a cookie: have it name fewer roles or agents"
_USED = "this sign-in link is used, or over a minute old: ask for another one with owlclaw console"


class _Content(Struct, frozen=True):
    key: str
    until: float
    """In seconds since 1970."""
    number: str = ""
    """What tells one code from another."""


class _PersonContent(Struct, frozen=True):
    claims: dict[str, Any]
    until: float


class _Session(Struct, frozen=True):
    credential: Credential
    until: float


class Sessions:
    """Begins sessions, and knows whose they are.

    `people`: the issuers at which people sign in, and what their sessions are sealed with. `random` returns so many random bytes.
    """

    def __init__(
        self,
        store: Store,
        authenticator: Authenticator,
        clock: Clock,
        ids: IdSource,
        random: Callable[[int], bytes] = secrets.token_bytes,
        *,
        people: tuple[Sequence[Issuer], SignInOptions] | None = None,
    ) -> None:
        issuers, options = people or ((), None)
        self._people = {
            each.name: (each, derived_key(options.session_secret.encode(), f"owlclaw console session {each.issuer}"))
            for each in issuers
            if options is not None and each.client is not None
        }
        self._store, self._authenticator, self._clock, self._ids = store, authenticator, clock, ids
        self._random = random
        self._opened: OrderedDict[bytes, _Session] = OrderedDict()

    async def begin(self, key: str) -> str:
        """Return the token of a new session of 12 hours; raises UnauthenticatedError for what is no valid key, StoreUnavailableError."""
        principal, stored = await self._checked(key)
        await self._tell(self._begun(self._ids.make("rec"), principal, {"key_id": stored.key_id}))
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
        record = self._begun(derived_id("rec", "console", content.number), principal, {"key_id": stored.key_id})
        if not await self._is_first(record):
            raise UnauthenticatedError(_USED)
        return self._sealed("session", content.key, stored, SESSION_SECONDS)

    async def admit(self, issuer: Issuer, claims: JsonObject, sign_in: str) -> str | None:
        """Return the token of a new session for whom the issuer said this of; None if that sign-in, by its id, began one before.

        Raises UnauthenticatedError for who has no access here, IssuerUnavailableError, StoreUnavailableError.
        """
        content = _PersonContent(issuer.kept(claims), self._clock.now().timestamp() + SESSION_SECONDS)
        text = sealed(self._people[issuer.name][1], msgspec.json.encode(content), issuer.name, self._random)
        token = f"{issuer.name}{_NAME_END}{text}"
        if len(token) > _MOST_CHARACTERS:
            raise UnauthenticatedError(_TOO_MUCH)
        principal = await self._authenticator.principal_of(_person(issuer, content))
        record = self._begun(derived_id("rec", "sign-in", sign_in), principal, {"issuer": issuer.name})
        return token if await self._is_first(record) else None

    async def key_of(self, token: str) -> Credential | None:
        """Return the key, or the person, that a session stands for, None if it is over or none of ours; raises StoreUnavailableError.

        Whether that is valid still is for the Authenticator to say.
        """
        digest = hashlib.sha256(token.encode()).digest()
        session = self._opened.get(digest)
        if session is None:
            session = await self._session(token)
            if session is None:
                return None
            self._opened[digest] = session
            while len(self._opened) > _REMEMBERED:
                self._opened.popitem(last=False)
        return session.credential if self._clock.now().timestamp() < session.until else None

    async def _session(self, token: str) -> _Session | None:
        name, end, text = token.partition(_NAME_END)
        if not end:
            content = await self._opened_as("session", token)
            return None if content is None else _Session(content.key, content.until)
        if name not in self._people:
            return None
        issuer, key = self._people[name]
        found = opened(key, text, name)
        if found is None:
            return None
        person = _person(issuer, msgspec.json.decode(found, type=_PersonContent))
        return _Session(person, person.until)

    async def _checked(self, key: str) -> tuple[Principal, AccessKey]:
        read = read_key(key)
        if read is None:
            raise UnauthenticatedError(_NO_KEY)
        principal = await self._authenticator.principal_of(key)
        stored = await self._store.read(KeyById(read[0]))
        if stored is None:
            raise UnauthenticatedError(_NO_KEY)
        return principal, stored

    def _begun(self, record_id: str, principal: Principal, how: Mapping[str, str]) -> LedgerRecord:
        """Return the record of a session; `session` tells those apart that want the same id."""
        data = {**how, "by": str(principal), "session": self._random(8).hex()}
        return access_record(record_id, principal.tenant, "session_begun", self._clock.now(), data)

    async def _tell(self, record: LedgerRecord) -> None:
        await self._store.apply([AppendLedger((record,))])

    async def _is_first(self, record: LedgerRecord) -> bool:
        """Tell the ledger, and return whether it has this record, and not an earlier one of its id."""
        await self._tell(record)
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
        content = _Content(key, self._clock.now().timestamp() + seconds, number)
        made = sealed(_of_key(use, stored.secret_hash), msgspec.json.encode(content), stored.key_id, self._random)
        return f"{stored.key_id}.{made}"

    async def _opened_as(self, use: str, token: str) -> _Content | None:
        key_id, _, text = token.partition(".")
        stored = await self._store.read(KeyById(KeyId(key_id))) if text else None
        for secret_hash in () if stored is None else filter(None, (stored.secret_hash, stored.previous_hash)):
            found = opened(_of_key(use, secret_hash), text, key_id)
            if found is not None:
                content = msgspec.json.decode(found, type=_Content)
                return content if self._clock.now().timestamp() < content.until else None
        return None


def _of_key(use: str, secret_hash: str) -> bytes:
    return derived_key(bytes.fromhex(secret_hash), f"owlclaw console {use}")


def _person(issuer: Issuer, content: _PersonContent) -> PersonSession:
    return PersonSession(issuer.issuer, msgspec.json.encode(content.claims), content.until)
