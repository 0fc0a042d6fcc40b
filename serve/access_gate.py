"""The gate: every request has a principal before anything of it is read, and the scope that its operation needs.

A key comes in the header `Authorization: Bearer owl_…`, and nowhere else: what is in a URL is in every log on its way. Only a surface for
people knows them by something else, and only below its own path: browsers send cookies whoever made them ask.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from owlclaw_ray.access.authentication import Authenticator
from owlclaw_ray.domain.issuer import Credential
from owlclaw_ray.domain.principal import Principal, PrincipalKind
from owlclaw_ray.errors import OwlClawError, StoreUnavailableError, UnauthenticatedError
from owlclaw_ray.ids import DEFAULT_TENANT
from serve.origin_check import FOREIGN
from serve.parameters import PRINCIPAL
from serve.problems import problem_of
from serve.resource import PUBLIC
from serve.route_check import OPERATIONS, PathOperations
from serve.surfaces import Surface, surface_at

logger = logging.getLogger(__name__)

ANYBODY = Principal(DEFAULT_TENANT, PrincipalKind.SYSTEM, "public")
"""For whom public operations are done: it has no scopes."""
_BEARER = b"bearer "
_BODILESS = frozenset({"GET", "HEAD"})


class AccessGate:
    """ASGI middleware: finds out who a request acts for, and refuses it with 401 or 403.

    A key holds until the body is whole: one that is refused before is answered 401, and nothing is done. Responses that are still being
    sent when their key is refused, as event streams are, end then.
    """

    def __init__(
        self, app: ASGIApp, paths: PathOperations, authenticator: Authenticator, surfaces: Collection[Surface] = ()
    ) -> None:
        self._app, self._paths, self._authenticator, self._surfaces = app, paths, authenticator, surfaces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its principal, or refuse it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[OPERATIONS] = operations = self._paths.of(scope["path"])
        operation = operations.get(scope["method"])
        if not operations:  # the router may read a path otherwise than we do: what we do not know does not reach it
            path = scope["path"]
            await problem_of(HTTPException(HTTPStatus.NOT_FOUND), path).response(path)(scope, receive, send)
            return
        if operation is None or operation.scope == PUBLIC:
            scope[PRINCIPAL] = ANYBODY
            await self._app(scope, receive, send)
            return
        if operation.optional:
            scope[PRINCIPAL] = await self._recognised(scope)
            await self._app(scope, receive, send)
            return
        key: Credential | None = None
        try:
            key = _key_of(scope)
            if key is None and (surface := surface_at(self._surfaces, scope["path"])) is not None:
                key = await surface.key_of(scope)
            local = FOREIGN not in scope
            principal = self._authenticator.remembered(key, local=local) or await self._authenticator.principal_of(
                key, local=local
            )
            principal.require(operation.scope)
        except OwlClawError as error:
            if self._authenticator.known_before(key, local=FOREIGN not in scope) is None:
                error = _for_strangers(error)
            path = scope["path"]
            await problem_of(error, path).response(path)(scope, receive, send)
            return
        scope[PRINCIPAL] = principal
        receiver = _Receiver(receive, key, self._authenticator, local=local, read=scope["method"] in _BODILESS)
        await self._app(scope, receiver, send)

    async def _recognised(self, scope: Scope) -> Principal:
        """Return who the request acts for, ANYBODY if that is nobody who can be told."""
        try:
            key = _key_of(scope)
        except UnauthenticatedError:
            return ANYBODY
        return await self._authenticator.recognised(key, local=FOREIGN not in scope) or ANYBODY


def _for_strangers(error: OwlClawError) -> OwlClawError:
    """Return the error in words for who is not known: why the store is away has names of files, machines and users."""
    if not isinstance(error, StoreUnavailableError):
        return error
    logger.info("a key cannot be checked: %s", error)
    return StoreUnavailableError("keys cannot be checked just now")


def _key_of(scope: Scope) -> str | None:
    """Return the key of the request, None without one; raises UnauthenticatedError for what is sent instead of a key."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if not given:
        return None
    if len(given) > 1 or given[0][: len(_BEARER)].lower() != _BEARER:
        raise UnauthenticatedError("the header Authorization must be there once, and be: Bearer owl_…")
    return str(given[0][len(_BEARER) :].strip(), "latin-1")


class _Receiver:
    """Receives for a request. A key that is refused while the body comes is an UnauthenticatedError in the handler that reads; behind the
    body only the client's going is awaited: when the key is refused, it has gone.

    `read`: nothing is to come but that, as a GET has no body.
    """

    def __init__(
        self, receive: Receive, key: Credential | None, authenticator: Authenticator, *, local: bool, read: bool
    ) -> None:
        self._receive, self._key, self._authenticator = receive, key, authenticator
        self._local, self._read, self._begun = local, read, read

    async def __call__(self) -> Message:
        """Return the next message of the client; raises UnauthenticatedError, StoreUnavailableError or IssuerUnavailableError."""
        if self._read:
            return await self._next_while_good() or {"type": "http.disconnect"}
        # Most bodies are one message that is there already, and need no watch. One that comes in drops has none for long enough.
        message = await (self._next_while_good() if self._begun else self._receive())
        if self._authenticator.remembered(self._key, local=self._local) is None:
            await self._authenticator.principal_of(self._key, local=self._local)
        self._begun = True
        self._read = message is None or (message["type"] == "http.request" and not message.get("more_body", False))
        return message or {"type": "http.disconnect"}

    async def _next_while_good(self) -> Message | None:
        """Return the next message, None if the key is refused before it comes."""
        with self._authenticator.watching(self._key) as refused:
            gone, end = asyncio.ensure_future(self._receive()), asyncio.create_task(refused.wait())
            try:
                await asyncio.wait({gone, end}, return_when=asyncio.FIRST_COMPLETED)
                return gone.result() if gone.done() else None
            finally:
                gone.cancel()
                end.cancel()
