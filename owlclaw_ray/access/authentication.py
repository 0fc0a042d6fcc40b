"""Whom a request acts for: known by its key, which is looked up every few seconds while it is used, by a token of an issuer, or by a
session that began there.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeAlias

from msgspec import Struct

from owlclaw_ray.access.tokens import IssuerTokens, VerifiedToken, is_token
from owlclaw_ray.domain.access_key import AccessKey, read_key
from owlclaw_ray.domain.issuer import Credential, PersonSession, TokenRefusedError
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import access_record
from owlclaw_ray.domain.principal import LOCAL, Principal
from owlclaw_ray.domain.tenant import TenantStatus
from owlclaw_ray.errors import OwlClawError, UnauthenticatedError
from owlclaw_ray.ids import DEFAULT_TENANT, IdSource, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import AppendLedger, NoteKeyUse
from owlclaw_ray.store.queries import IsAccessControlled, KeyById, TenantById

FRESH_SECONDS = 3.0
"""For how long the answer about a key is used. A key that is revoked is refused everywhere within 5 seconds."""
UNVOUCHED_SECONDS = 60.0
"""After so long without an answer about it from the store or the issuer, what is open by a key, token or session ends."""
_LOOK_SECONDS = 1.0
_KEYS_AT_ONCE, _TOKENS_AT_ONCE = 16, 500
"""How many are looked up at the same time: keys ask the store each, tokens of an issuer wait for one answer of it."""
_USE_NOTED = timedelta(minutes=1)
_REMEMBERED = 10_000
_NO_KEY = "this server needs a key: send the header Authorization: Bearer owl_…"
_REFUSED = "the key is not valid: it is unknown, revoked, rotated or expired, or its tenant is suspended"
_NEITHER = "this server needs a key or a token: send the header Authorization: Bearer …"
_NOT_BELIEVED = "the token is not valid: it is expired, not for this server, not signed by a known issuer, or its tenant is not active"
_OVER = "the session is over, or its tenant is not active: sign in again"
_TOLD_SECONDS = 60.0
_RECOGNISED_SECONDS = 1.0
"""For how long it may take to find out to whom more is told than to others."""

logger = logging.getLogger(__name__)


_Held: TypeAlias = bytes | PersonSession
"""A credential as it is remembered: texts as their hashes, which are equal to no session whatever they say."""


def _held(key: Credential) -> _Held:
    return key if isinstance(key, PersonSession) else hashlib.sha256(key.encode()).digest()


class _Answer(Struct, frozen=True):
    """What is known of a key or token, until a moment of the monotonic clock. None: it is refused."""

    principal: Principal | None
    until: float


class Authenticator:
    """Tells principals by their keys, by tokens of issuers, and by having neither while nobody has one and there is no issuer.

    With `keys_required` nobody is let in without one, even while there are none: others than this machine reach the server.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdSource,
        tokens: IssuerTokens | None = None,
        *,
        keys_required: bool = False,
    ) -> None:
        self._store, self._clock, self._ids, self._tokens = store, clock, ids, tokens
        self._keys_required = keys_required
        self._answers: OrderedDict[_Held, _Answer] = OrderedDict()
        self._refusals: OrderedDict[_Held, _Answer] = OrderedDict()
        """Beside the answers: made-up keys do not take the places of real ones."""
        self._asked: dict[_Held, asyncio.Task[_Answer]] = {}
        self._open_since: float | None = None
        self._controlled = tokens is not None
        self._opening: asyncio.Task[bool] | None = None
        self._told: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._watched: dict[Credential | None, set[asyncio.Event]] = {}
        self._vouched: dict[Credential | None, float] = {}
        """When it was last known that what is watched is good."""
        self._watching: asyncio.Task[None] | None = None
        self._behind: set[asyncio.Task[Any]] = set()

    async def principal_of(self, key: Credential | None, *, local: bool = True) -> Principal:
        """Return who has the key, token or session, or LOCAL for nobody's as long as there are none, if the request is `local`: of this
        machine alone.

        Raises UnauthenticatedError, and StoreUnavailableError or IssuerUnavailableError when nobody knows.
        """
        known = self.remembered(key, local=local)
        if known is not None:
            return known
        if key is None:
            if local and not self._keys_required and await self._is_open():
                return LOCAL
            raise UnauthenticatedError(_NO_KEY if self._tokens is None else _NEITHER)
        held = _held(key)
        answer = self._refusals.get(held)
        if answer is None or self._clock.monotonic() >= answer.until:
            answer = await self._ask(held, key)
        if answer.principal is None:
            if isinstance(key, PersonSession):
                raise UnauthenticatedError(_OVER)
            raise UnauthenticatedError(_REFUSED if self._tokens is None or not is_token(key) else _NOT_BELIEVED)
        return answer.principal

    def remembered(self, key: Credential | None, *, local: bool = True) -> Principal | None:
        """Return what `principal_of` does, if nobody has to be asked for it; None: somebody has, or the key is refused."""
        if key is None:
            since = self._open_since
            if since is None or not local or self._keys_required or self._controlled:
                return None
            return LOCAL if self._clock.monotonic() - since < FRESH_SECONDS else None
        answer = self._answers.get(_held(key))
        return None if answer is None or self._clock.monotonic() >= answer.until else answer.principal

    async def recognised(self, key: str | None, *, local: bool = True) -> Principal | None:
        """Return as `principal_of`; None for whoever is refused. Who was known a moment ago is known while nobody can be asked."""
        try:
            async with deadline(self._clock, _RECOGNISED_SECONDS):
                return await self.principal_of(key, local=local)
        except UnauthenticatedError:
            return None
        except (OwlClawError, TimeoutError):
            return self.known_before(key, local=local)

    def known_before(self, key: Credential | None, *, local: bool = True) -> Principal | None:
        """Return who it was when it was last looked up, None for nobody: for words alone, while nobody can be asked."""
        if key is None:
            was_open = not self._keys_required and not self._controlled and self._open_since is not None
            return LOCAL if local and was_open else None
        known = self._answers.get(_held(key))
        return None if known is None else known.principal

    def close(self) -> None:
        """Let nobody in without a key from now on: there is one, or a tenant."""
        self._controlled = True

    @contextmanager
    def watching(self, key: Credential | None) -> Iterator[asyncio.Event]:
        """Look the key up again and again during the block; the event is set when it is refused."""
        refused = asyncio.Event()
        self._watched.setdefault(key, set()).add(refused)
        self._vouched.setdefault(key, self._clock.monotonic())
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="watch-keys")
        try:
            yield refused
        finally:
            events = self._watched[key]
            events.discard(refused)
            if not events:
                del self._watched[key], self._vouched[key]
            if not self._watched and self._watching is not None:
                self._watching.cancel()
                self._watching = None

    async def _watch(self) -> None:
        """Look keys up, and beside them what issuers have to say: one that hangs delays no key."""
        await asyncio.gather(
            self._watch_those(_KEYS_AT_ONCE, ours=True), self._watch_those(_TOKENS_AT_ONCE, ours=False)
        )

    async def _watch_those(self, at_once: int, *, ours: bool) -> None:
        places = asyncio.Semaphore(at_once)

        async def look(key: Credential | None) -> None:
            async with places:
                await self._look_again(key)

        while True:
            await self._clock.sleep(FRESH_SECONDS / 2)
            keys = [
                key for key in self._watched if ours is (key is None or (isinstance(key, str) and not is_token(key)))
            ]
            await asyncio.gather(*map(look, keys))

    async def _look_again(self, key: Credential | None) -> None:
        """Tell those who watch the key if it is refused, or if nobody has known for too long."""
        asked_at = self._clock.monotonic()
        try:
            async with deadline(self._clock, _LOOK_SECONDS):
                await self.principal_of(key)
        except UnauthenticatedError:
            self._end(key)
        except Exception as error:  # whatever it is, the others are still to be watched
            known = isinstance(error, OwlClawError | TimeoutError)
            logger.warning("a key in use could not be looked up: %s", error or "no answer", exc_info=not known)
            if self._clock.monotonic() - self._vouched.get(key, asked_at) >= UNVOUCHED_SECONDS:
                self._end(key)
        else:
            if key in self._vouched:
                self._vouched[key] = asked_at

    def _end(self, key: Credential | None) -> None:
        for event in self._watched.get(key, ()):
            event.set()

    async def _is_open(self) -> bool:
        """Return whether no key and no tenant was ever made, once for all who ask at the same time. Once one was, nobody is asked again."""
        if self._controlled:
            return False
        if self._opening is None:
            self._opening = asyncio.create_task(self._look_for_keys())
        return await asyncio.shield(self._opening)

    async def _look_for_keys(self) -> bool:
        try:
            now = self._clock.monotonic()
            controlled = await self._store.read(IsAccessControlled())
            self._controlled = self._controlled or controlled
            self._open_since = now
            return not self._controlled
        finally:
            self._opening = None

    async def _ask(self, held: _Held, key: Credential) -> _Answer:
        """Look the key up, once for all who ask at the same time."""
        task = self._asked.get(held)
        if task is None:
            task = self._asked[held] = asyncio.create_task(self._look_up(held, key))
            task.add_done_callback(lambda _: self._asked.pop(held, None))
        return await asyncio.shield(task)

    async def _look_up(self, held: _Held, key: Credential) -> _Answer:
        tokens = self._tokens
        if isinstance(key, PersonSession):
            answer = await self._by_session(tokens, key)
        elif tokens is None or not is_token(key):
            answer = await self._by_key(key)
        else:
            answer = await self._by_token(tokens, key)
        known, others = (self._answers, self._refusals) if answer.principal else (self._refusals, self._answers)
        others.pop(held, None)
        known[held] = answer
        known.move_to_end(held)
        while len(known) > _REMEMBERED:
            known.popitem(last=False)
        return answer

    async def _by_key(self, key: str) -> _Answer:
        until, principal, read = self._clock.monotonic() + FRESH_SECONDS, None, read_key(key)
        if read is not None:
            key_id, secret_hash = read
            stored = await self._store.read(KeyById(key_id))
            if stored is not None:
                now = self._clock.now()
                why = stored.refusal(secret_hash, now)
                if not why and await self._is_suspended(stored.tenant):
                    why = "suspended"
                if why:
                    self._tell_refused(stored, why)
                else:
                    principal = stored.principal
                    if stored.last_used_at is None or now - stored.last_used_at >= _USE_NOTED:
                        data = {"key_id": key_id, "by": str(principal)}
                        record = access_record(f"first_{key_id}", stored.tenant, "key_first_used", now, data)
                        self._do_behind(self._store.apply([NoteKeyUse(key_id, now, (record,))]))
        return _Answer(principal, until)

    async def _by_token(self, tokens: IssuerTokens, token: str) -> _Answer:
        asked_at = self._clock.monotonic()
        try:
            found = await tokens.verified(token)
        except TokenRefusedError:
            return _Answer(None, asked_at + FRESH_SECONDS)
        return await self._admitted(found, asked_at)

    async def _by_session(self, tokens: IssuerTokens | None, session: PersonSession) -> _Answer:
        asked_at = self._clock.monotonic()
        try:
            found = None if tokens is None else tokens.recalled(session)
        except TokenRefusedError as error:
            logger.info("a session was refused: %s", error)
            found = None
        return _Answer(None, asked_at + FRESH_SECONDS) if found is None else await self._admitted(found, asked_at)

    async def _admitted(self, found: VerifiedToken, asked_at: float) -> _Answer:
        """Return the answer about who has proved who they are, if their tenant is active."""
        principal = found.principal
        lasts = min(FRESH_SECONDS, found.expires_at - self._clock.now().timestamp())
        if principal.tenant != DEFAULT_TENANT:
            tenant = await self._store.read(TenantById(principal.tenant))
            if tenant is None:
                return _Answer(None, asked_at + FRESH_SECONDS)
            if tenant.status is not TenantStatus.ACTIVE:
                self._tell(
                    principal.tenant, "token_refused", str(principal), {"by": str(principal), "why": "suspended"}
                )
                return _Answer(None, asked_at + FRESH_SECONDS)
        return _Answer(principal, asked_at + lasts)

    async def _is_suspended(self, tenant: TenantId) -> bool:
        found = await self._store.read(TenantById(tenant))
        return found is not None and found.status is not TenantStatus.ACTIVE

    def _tell_refused(self, key: AccessKey, why: str) -> None:
        data = {"key_id": key.key_id, "why": "wrong secret" if why == "unknown" else why}
        self._tell(key.tenant, "key_refused", key.key_id, data)

    def _tell(self, tenant: TenantId, what: str, who: str, data: JsonObject) -> None:
        """Tell the ledger of the tenant, once a minute for each reason."""
        now, about = self._clock.monotonic(), (who, data["why"])
        told = self._told.get(about)
        if told is not None and now - told < _TOLD_SECONDS:
            return
        self._told[about] = now
        self._told.move_to_end(about)
        while len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        record = access_record(self._ids.make("rec"), tenant, what, self._clock.now(), data)
        self._do_behind(self._store.apply([AppendLedger((record,))]))

    def _do_behind(self, work: Coroutine[Any, Any, object]) -> None:
        """Do it without the request waiting for it. What is lost with the store is a note about use, not a right."""

        async def done() -> None:
            try:
                await work
            except OwlClawError as error:
                logger.warning("the use of a key could not be noted: %s", error)

        task = asyncio.create_task(done())
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
