"""Signing in at an issuer: OpenID Connect's authorization code flow, as a confidential client with PKCE, state, nonce and RFC 9207.

What a sign-in has to remember until the browser is back (state, nonce, verifier of PKCE) is in a cookie of that browser, sealed for this
issuer. So every replica can finish what another one began, a browser can finish only what it began itself, and an answer of one issuer is
none of another. Neither the code nor the ID token is kept.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec
from msgspec import Struct

from owlclaw_ray.access.issuer_requests import FETCH_SECONDS, Metadata, ask, decoded, discovered, is_as_safe
from owlclaw_ray.access.seals import derived_key, opened, sealed
from owlclaw_ray.access.sessions import Sessions
from owlclaw_ray.access.tokens import IssuerTokens, SignInTerms
from owlclaw_ray.domain.issuer import Issuer, SignInClient, SignInOptions, TokenRefusedError
from owlclaw_ray.errors import IssuerUnavailableError, NotFoundError, UnauthenticatedError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline

FLOW_SECONDS = 600.0
"""For how long somebody may be at the issuer."""
_RETRY_SECONDS = 10.0
"""An issuer that did not say where its parts are is not asked again before."""
_RANDOM_BYTES = 32
_ERROR = re.compile(r"[a-z_]{1,64}")
_OK, _SERVER_ERROR = 200, 500
_BEGIN_AGAIN = "this sign-in was begun in another browser, is finished, or took over 10 minutes: begin again"
_NOT_PROVED = "the issuer's answer does not prove who you are: begin again; the server's log says what is wrong with it"

logger = logging.getLogger(__name__)


class ProviderMetadata(Metadata, frozen=True):
    """Where people sign in at an issuer, and how its answers look."""

    authorization_endpoint: str
    token_endpoint: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False
    """Whether its answers to browsers name it (RFC 9207)."""


class Departure(Struct, frozen=True):
    """Where a browser is led to sign in, and what it must keep until it is back."""

    url: str
    flow: str


class Arrival(Struct, frozen=True):
    """The session of somebody who has signed in, and where they wanted to go."""

    session: str
    following: str


class _Flow(Struct, frozen=True):
    """What a sign-in has to remember."""

    state: str
    nonce: str
    verifier: str
    following: str
    until: float
    """In seconds since 1970."""


class BegunSignIn(Struct, frozen=True):
    """A sign-in that is under way."""

    state: str
    """What its answer has to have."""
    following: str
    """The page to go on with."""


class _Tokens(Struct, frozen=True):
    id_token: str


class _Refusal(Struct, frozen=True):
    error: str = ""


async def fetch_metadata(issuer: Issuer, clock: Clock) -> ProviderMetadata:
    """Return what the issuer says of where people sign in; raises IssuerUnavailableError."""
    async with _asking(issuer, clock):
        found = await discovered(issuer.issuer, ProviderMetadata)
        for url in (found.authorization_endpoint, found.token_endpoint):
            if not is_as_safe(url, issuer.issuer) or urlsplit(url).fragment:
                raise ValueError(f"{url!r} is no address to sign in at")
        return found


@asynccontextmanager
async def _asking(issuer: Issuer, clock: Clock) -> AsyncIterator[None]:
    """Ask the issuer in the block, for FETCH_SECONDS at most; what it raises as ValueError, it raises as IssuerUnavailableError."""
    try:
        async with deadline(clock, FETCH_SECONDS):
            yield
    except TimeoutError as error:
        raise _unavailable(issuer, f"no answer within {FETCH_SECONDS:g} s") from error
    except ValueError as error:
        raise _unavailable(issuer, str(error) or type(error).__name__) from error


def _unavailable(issuer: Issuer, why: str) -> IssuerUnavailableError:
    return IssuerUnavailableError(f"nobody can sign in at issuer {issuer.issuer} at the moment: {why}")


class _Provider:
    """An issuer at which people sign in. What it says of itself is used as long as its keys are."""

    def __init__(self, issuer: Issuer, client: SignInClient, key: bytes, clock: Clock) -> None:
        self.issuer, self.client, self.key = issuer, client, key
        self._clock = clock
        self._found: ProviderMetadata | IssuerUnavailableError | None = None
        self._until = 0.0
        self._asking = asyncio.Lock()

    async def metadata(self) -> ProviderMetadata:
        """Return what it says of itself; raises IssuerUnavailableError."""
        async with self._asking:
            if self._found is None or self._clock.monotonic() >= self._until:
                try:
                    self._found = await fetch_metadata(self.issuer, self._clock)
                except IssuerUnavailableError as error:
                    self._found = _untold(self.issuer, error)
                lasts = self.issuer.cache if isinstance(self._found, ProviderMetadata) else _RETRY_SECONDS
                self._until = self._clock.monotonic() + lasts
            found = self._found
        if isinstance(found, IssuerUnavailableError):
            raise IssuerUnavailableError(str(found))
        return found


class SignIns:
    """Signs people in at the issuers that have a client. `random` returns so many random bytes."""

    def __init__(
        self,
        issuers: Sequence[Issuer],
        options: SignInOptions | None,
        *,
        tokens: IssuerTokens | None,
        sessions: Sessions,
        clock: Clock,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._tokens, self._sessions, self._clock, self._random = tokens, sessions, clock, random
        self.public_url = "" if options is None else options.public_url
        """The origin by which browsers reach the console."""
        self._providers = {
            each.name: _Provider(each, each.client, _flow_key(options, each), clock)
            for each in issuers
            if options is not None and each.client is not None
        }

    @property
    def names(self) -> Sequence[str]:
        """The names of the issuers."""
        return [*self._providers]

    async def begin(self, name: str, following: str) -> Departure:
        """Return where a browser goes to sign in at the issuer; raises NotFoundError, IssuerUnavailableError.

        `following`: where it goes on afterwards.
        """
        provider = self._provider(name)
        metadata = await provider.metadata()
        state, nonce, verifier = (_text(self._random(_RANDOM_BYTES)) for _ in range(3))
        flow = _Flow(state, nonce, verifier, following, self._clock.now().timestamp() + FLOW_SECONDS)
        asked = {
            "response_type": "code",
            "client_id": provider.client.client_id,
            "redirect_uri": self._redirect_url(name),
            "scope": " ".join(dict.fromkeys(("openid", *provider.client.scopes))),
            "state": state,
            "nonce": nonce,
            "code_challenge": _text(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        url = metadata.authorization_endpoint
        kept = sealed(provider.key, msgspec.json.encode(flow), name, self._random)
        return Departure(f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(asked)}", kept)

    async def finish(self, name: str, answer: Mapping[str, str], kept: str) -> Arrival:
        """Return the session of whom the issuer sends back with this answer, in the browser that has kept this.

        Raises UnauthenticatedError, in words for who signs in; NotFoundError, IssuerUnavailableError, StoreUnavailableError.
        """
        provider = self._provider(name)
        flow = self._flow(provider, answer.get("state", ""), kept)
        metadata = await provider.metadata()
        if answer.get("iss", provider.issuer.issuer) != provider.issuer.issuer or (
            metadata.authorization_response_iss_parameter_supported and "iss" not in answer
        ):
            raise _refused(provider, "the answer is of another issuer, or of nobody")
        if "error" in answer or "code" not in answer:
            error = answer.get("error", "")
            said = error if _ERROR.fullmatch(error) else "no code"
            logger.info("nobody was signed in at %s: it answered %s", provider.issuer.name, said)
            raise UnauthenticatedError(f"{provider.issuer.name} has not signed you in: {said}")
        token = await self._exchanged(provider, metadata, answer["code"], flow.verifier)
        terms = SignInTerms(provider.issuer.issuer, provider.client.client_id, flow.nonce)
        if self._tokens is None:
            raise NotFoundError("issuer", name)
        try:
            claims = (await self._tokens.verified(token, terms)).claims
        except TokenRefusedError as error:
            raise _refused(provider, str(error)) from error
        session = await self._sessions.admit(provider.issuer, claims, flow.state)
        if session is None:
            raise _refused(provider, "this sign-in has begun a session already", _BEGIN_AGAIN)
        return Arrival(session, flow.following)

    def _provider(self, name: str) -> _Provider:
        if name not in self._providers:
            raise NotFoundError("issuer", name)
        return self._providers[name]

    def _redirect_url(self, name: str) -> str:
        return f"{self.public_url}/console/sign-in/{name}/callback"

    def begun(self, name: str, kept: str) -> BegunSignIn | None:
        """Return the sign-in that the browser which has kept this has begun last, None if it has begun none; raises NotFoundError."""
        flow = self._begun(self._provider(name), kept)
        return None if flow is None else BegunSignIn(flow.state, flow.following)

    @staticmethod
    def _begun(provider: _Provider, kept: str) -> _Flow | None:
        found = opened(provider.key, kept, provider.issuer.name)
        return None if found is None else msgspec.json.decode(found, type=_Flow)

    def _flow(self, provider: _Provider, state: str, kept: str) -> _Flow:
        """Return the sign-in that the browser has begun and whose answer this is."""
        flow = self._begun(provider, kept)
        if (
            flow is None
            or not hmac.compare_digest(flow.state.encode(), state.encode())
            or self._clock.now().timestamp() >= flow.until
        ):
            raise _refused(provider, "the browser has not begun this sign-in, or too long ago", _BEGIN_AGAIN)
        return flow

    async def _exchanged(self, provider: _Provider, metadata: ProviderMetadata, code: str, verifier: str) -> str:
        """Return the ID token that the issuer gives for the code."""
        client, issuer = provider.client, provider.issuer
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_url(issuer.name),
            "code_verifier": verifier,
        }
        methods, basic = metadata.token_endpoint_auth_methods_supported, None
        if "client_secret_post" in methods and "client_secret_basic" not in methods:
            form |= {"client_id": client.client_id, "client_secret": client.secret}
        else:
            basic = (quote_plus(client.client_id), quote_plus(client.secret))
        try:
            return await self._token(provider, metadata.token_endpoint, form, basic)
        except IssuerUnavailableError as error:
            raise _untold(issuer, error) from error

    async def _token(
        self, provider: _Provider, endpoint: str, form: Mapping[str, str], basic: tuple[str, str] | None
    ) -> str:
        issuer = provider.issuer
        async with _asking(issuer, self._clock):
            status, content = await ask(endpoint, form, basic)
            if status == _OK:
                return decoded(content, _Tokens).id_token
            if status >= _SERVER_ERROR:
                raise ValueError(f"its token_endpoint answered {status}")
            error = decoded(content, _Refusal).error
        said = error if _ERROR.fullmatch(error) else f"status {status}"
        logger.warning("issuer %s gives nothing for a code: %s", issuer.name, said)
        raise UnauthenticatedError(f"{issuer.name} has not signed you in: {said}")


def _untold(issuer: Issuer, error: IssuerUnavailableError) -> IssuerUnavailableError:
    """Log what is wrong with the issuer; return what anybody may be told of it."""
    logger.warning("%s", error)
    return IssuerUnavailableError(f"nobody can sign in at {issuer.name} at the moment: the server's log says why")


def _refused(provider: _Provider, why: str, said: str = _NOT_PROVED) -> UnauthenticatedError:
    logger.info("nobody was signed in at %s: %s", provider.issuer.name, why)
    return UnauthenticatedError(said)


def _flow_key(options: SignInOptions, issuer: Issuer) -> bytes:
    return derived_key(options.session_secret.encode(), f"owlclaw console sign-in {issuer.issuer}")


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
