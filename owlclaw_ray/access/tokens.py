"""Tokens of issuers: JWTs, verified by the keys of the issuer that they name; and what remains of one when somebody has signed in by it.

What a token says of where its key is (`jku`, `jwk`, `x5u`, `x5c`) is not looked at.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType
from typing_extensions import override

from owlclaw_ray.access.issuer_keys import Fetch, IssuerKeys, VerifyingKey, fetch_keys
from owlclaw_ray.domain.issuer import Issuer, PersonSession, TokenRefusedError
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.principal import Principal
from owlclaw_ray.kernel.clock import Clock

if TYPE_CHECKING:
    from joserfc.jws import JWSRegistry

MAX_CHARACTERS = 16_384
"""Of a token."""
LEEWAY_SECONDS = 30.0
"""By how much the clocks of an issuer and of this machine may differ."""
_PARTS = 3
_TYPES = {"jwt", "at+jwt", "application/jwt", "application/at+jwt"}
_TOLD_SECONDS = 60.0

logger = logging.getLogger(__name__)
_T = TypeVar("_T")


class VerifiedToken(Struct, frozen=True):
    """What a token proves."""

    principal: Principal
    expires_at: float
    """In seconds since 1970, the leeway included."""
    claims: JsonObject
    """All of them."""


class SignInTerms(Struct, frozen=True):
    """What an ID token must be, to be the answer to one sign-in."""

    issuer: str
    client_id: str
    nonce: str


class _Header(Struct, frozen=True):
    alg: str
    kid: str | None = None
    typ: str | None = None
    crit: msgspec.Raw | UnsetType = UNSET


class _Claims(Struct, frozen=True):
    iss: str
    sub: str
    aud: str | list[str]
    exp: float
    nbf: float | None = None
    iat: float | None = None


class _IdClaims(_Claims, frozen=True):
    nonce: str = ""
    azp: str | None = None


def is_token(text: str) -> bool:
    """Return whether a bearer has the form of a JWT, which no key has."""
    return text.count(".") == _PARTS - 1


class IssuerTokens:
    """Verifies tokens of issuers."""

    def __init__(self, issuers: Sequence[Issuer], clock: Clock, fetch: Fetch = fetch_keys) -> None:
        self._clock = clock
        self._issuers = {each.issuer: (each, IssuerKeys(each, clock, fetch)) for each in issuers}
        self._told: dict[tuple[str, str], float] = {}

    async def verified(self, token: str, terms: SignInTerms | None = None) -> VerifiedToken:
        """Return whom the token is for, and until when. Whether its tenant exists is not asked.

        With terms it must be an ID token of that sign-in, instead of one for the issuer's audiences. Raises TokenRefusedError, and
        IssuerUnavailableError when nobody knows.
        """
        issuer = ""
        try:
            header, payload = _decoded(token)
            said = _read(payload, _Claims, "claims")
            by, keys = self._issuer(said.iss)
            issuer = by.issuer
            _check_header(header, by)
            _check_claims(said, by.audiences if terms is None else (terms.client_id,), self._clock.now().timestamp())
            if terms is not None:
                _check_terms(_read(payload, _IdClaims, "claims"), terms)
            _check_signature(token, header.alg, await keys.of(header.kid, header.alg))
            claims = _read(payload, dict, "claims")
            principal = by.principal(claims)
        except TokenRefusedError as error:
            self._tell(issuer, str(error))
            raise
        return VerifiedToken(principal, said.exp + LEEWAY_SECONDS, claims)

    def recalled(self, session: PersonSession) -> VerifiedToken:
        """Return whom a session is for, as the issuer's settings are now; raises TokenRefusedError if it is over, or they let nobody
        sign in any more.
        """
        by, _ = self._issuer(session.issuer)
        if by.client is None:
            raise TokenRefusedError("nobody signs in at its issuer")
        if self._clock.now().timestamp() >= session.until:
            raise TokenRefusedError("it is over")
        claims = msgspec.json.decode(session.claims)
        return VerifiedToken(by.principal(claims), session.until, claims)

    def _issuer(self, name: str) -> tuple[Issuer, IssuerKeys]:
        if name not in self._issuers:
            raise TokenRefusedError("its issuer is not configured")
        return self._issuers[name]

    def _tell(self, issuer: str, why: str) -> None:
        """Log why a token was refused, each reason once a minute."""
        now = self._clock.monotonic()
        told = self._told.get((issuer, why))
        if told is not None and now - told < _TOLD_SECONDS:
            return
        self._told[issuer, why] = now
        logger.info("a token%s was refused: %s", f" of {issuer}" if issuer else "", why)


def _decoded(token: str) -> tuple[_Header, bytes]:
    """Return the header and the bytes of the claims; nothing of it is believed yet."""
    if len(token) > MAX_CHARACTERS:
        raise TokenRefusedError(f"it has more than {MAX_CHARACTERS} characters")
    if not is_token(token):
        raise TokenRefusedError("it has not three parts")
    header, payload, _ = (_unwrapped(each) for each in token.split("."))
    return _read(header, _Header, "header"), payload


def _unwrapped(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise TokenRefusedError("it is not in base64") from error


def _read(content: bytes, form: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(content, type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TokenRefusedError(f"its {what} are not what they must be") from error


def _check_header(header: _Header, issuer: Issuer) -> None:
    if header.alg not in issuer.algorithms:
        raise TokenRefusedError("its algorithm is not allowed")
    if header.typ is not None and header.typ.lower() not in _TYPES:
        raise TokenRefusedError("its typ is another one than JWT")
    if header.crit is not UNSET:
        raise TokenRefusedError("it needs an extension that is not known here")


def _check_claims(said: _Claims, audiences: Collection[str], now: float) -> None:
    if not any(each in audiences for each in _audiences(said)):
        raise TokenRefusedError("its audience is another one")
    if now >= said.exp + LEEWAY_SECONDS:
        raise TokenRefusedError("it is expired")
    if any(each is not None and now < each - LEEWAY_SECONDS for each in (said.nbf, said.iat)):
        raise TokenRefusedError("it is not valid yet")


def _check_terms(said: _IdClaims, terms: SignInTerms) -> None:
    """Raise TokenRefusedError unless the token is the answer to this sign-in (OpenID Connect Core 1.0, 3.1.3.7)."""
    if said.iss != terms.issuer:
        raise TokenRefusedError("it is of another issuer than the one that was asked")
    if said.azp != terms.client_id and (said.azp is not None or len(_audiences(said)) > 1):
        raise TokenRefusedError("it was issued to another client")
    if not hmac.compare_digest(said.nonce.encode(), terms.nonce.encode()):
        raise TokenRefusedError("its nonce is not that of this sign-in")


def _audiences(said: _Claims) -> list[str]:
    return [said.aud] if isinstance(said.aud, str) else said.aud


def _check_signature(token: str, algorithm: str, keys: Sequence[VerifyingKey]) -> None:
    from joserfc.errors import JoseError
    from joserfc.jws import deserialize_compact

    for each in keys:
        with suppress(JoseError, ValueError):
            deserialize_compact(token, each.key, registry=_registry(algorithm))
            return
    raise TokenRefusedError("it is not signed by a key of its issuer")


@cache
def _registry(algorithm: str) -> JWSRegistry:
    """Return what joserfc takes: that algorithm alone, and headers with certificates, which are long.

    Of EdDSA it would warn with each token, because its curve is the key's and not the token's to say.
    """
    from joserfc.errors import UnsupportedAlgorithmError
    from joserfc.jws import JWSRegistry

    class OnlyOne(JWSRegistry):
        max_header_length = max_payload_length = max_signature_length = MAX_CHARACTERS

        @override
        def get_alg(self, name: str) -> Any:
            if name != algorithm:
                raise UnsupportedAlgorithmError
            return self.algorithms[name]

    return OnlyOne(strict_check_header=False)
