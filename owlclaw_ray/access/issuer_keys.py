"""The keys of an issuer: where they come from, and for how long they are believed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct

from owlclaw_ray.access.issuer_requests import (
    FETCH_SECONDS,
    MAX_BYTES,
    Metadata,
    decoded,
    discovered,
    download,
    is_as_safe,
    limited,
)
from owlclaw_ray.domain.issuer import ALGORITHMS, Issuer
from owlclaw_ray.errors import IssuerUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, OKPKey, RSAKey

RETRY_SECONDS = 10.0
"""An issuer is not asked more often, whatever keys tokens name."""
_MAX_KEYS = 100
_RSA_CHARACTERS = 342
"""Of a modulus of 2048 bits in base64."""

logger = logging.getLogger(__name__)


class VerifyingKey(Struct, frozen=True):
    """A key that signatures are verified by."""

    key: RSAKey | ECKey | OKPKey
    key_type: str
    curve: str
    key_id: str | None = None
    algorithm: str | None = None
    """The only one that it is for."""

    def fits(self, algorithm: str) -> bool:
        """Return whether it verifies signatures of the algorithm."""
        key_type, curves = ALGORITHMS[algorithm]
        return (
            self.key_type == key_type and (not curves or self.curve in curves) and self.algorithm in {None, algorithm}
        )


Fetch: TypeAlias = Callable[[Issuer, Clock], Awaitable[Sequence[VerifyingKey]]]
"""Gets the keys of an issuer; raises IssuerUnavailableError."""


class IssuerKeys:
    """The keys of an issuer, fetched when they are needed and refreshed behind the requests that need them."""

    def __init__(self, issuer: Issuer, clock: Clock, fetch: Fetch) -> None:
        self._issuer, self._clock, self._fetch = issuer, clock, fetch
        self._keys: Sequence[VerifyingKey] = ()
        self._since: float | None = None
        self._tried_at: float | None = None
        self._failing = False
        self._fetching: asyncio.Task[None] | None = None

    async def of(self, key_id: str | None, algorithm: str) -> Sequence[VerifyingKey]:
        """Return the keys of that id that verify the algorithm, without an id the only key there is; none if there are none.

        Raises IssuerUnavailableError when nobody knows.
        """
        await self._refreshed()
        if key_id is not None and all(each.key_id != key_id for each in self._keys):
            task = self._refresh()
            if task is not None:
                await asyncio.shield(task)
        named = [each for each in self._keys if key_id is None or each.key_id == key_id]
        if key_id is None and len(named) > 1:
            return []
        return [each for each in named if each.fits(algorithm)]

    async def _refreshed(self) -> None:
        """Have keys that are not too old. Only without such a request waits for the issuer."""
        if self._age() < self._issuer.cache / 2:
            return
        task = self._refresh()
        if self._age() < (self._issuer.stale if self._failing else self._issuer.cache):
            return
        if task is not None:
            await asyncio.shield(task)
        if self._age() >= self._issuer.stale:
            raise IssuerUnavailableError(f"the keys of issuer {self._issuer.issuer} cannot be had")

    def _age(self) -> float:
        return float("inf") if self._since is None else self._clock.monotonic() - self._since

    def _refresh(self) -> asyncio.Task[None] | None:
        """Ask the issuer unless it was just asked; return the task that does."""
        now = self._clock.monotonic()
        if self._fetching is None and (self._tried_at is None or now - self._tried_at >= RETRY_SECONDS):
            self._tried_at = now
            self._fetching = asyncio.create_task(self._fetched(now), name=f"fetch-keys-{self._issuer.name}")
        return self._fetching

    async def _fetched(self, now: float) -> None:
        try:
            self._keys = await self._fetch(self._issuer, self._clock)
            self._since, self._failing = now, False
        except IssuerUnavailableError as error:
            if not self._failing:
                logger.warning("%s; those from before are used for %g s", error, self._issuer.stale)
            self._failing = True
        finally:
            self._fetching = None


async def fetch_keys(issuer: Issuer, clock: Clock) -> Sequence[VerifyingKey]:
    """Return the keys that the issuer has now; raises IssuerUnavailableError."""
    try:
        async with deadline(clock, FETCH_SECONDS):
            if issuer.jwks_file:
                return verifying_keys(await asyncio.to_thread(_read, Path(issuer.jwks_file)))
            return verifying_keys(await download(issuer.jwks_url or await _key_address(issuer.issuer)))
    except TimeoutError as error:
        raise _unavailable(issuer, f"no answer within {FETCH_SECONDS:g} s") from error
    except (OSError, ValueError) as error:
        raise _unavailable(issuer, str(error) or type(error).__name__) from error


def _unavailable(issuer: Issuer, why: str) -> IssuerUnavailableError:
    return IssuerUnavailableError(f"the keys of issuer {issuer.issuer} cannot be had: {why}")


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return limited(file.read(MAX_BYTES + 1))


class _KeyPlace(Metadata, frozen=True):
    jwks_uri: str


async def _key_address(issuer: str) -> str:
    """Return where the issuer says that its keys are; raises ValueError."""
    url = (await discovered(issuer, _KeyPlace)).jwks_uri
    if not is_as_safe(url, issuer):
        raise ValueError("its OpenID configuration has keys that do not come over https")
    return url


class _KeySet(Struct, frozen=True):
    keys: list[dict[str, Any]]


class _About(Struct, frozen=True):
    """What is read of a key beside what it is."""

    kty: str
    crv: str = ""
    kid: str | None = None
    alg: str | None = None
    use: str | None = None
    key_ops: list[str] | None = None
    n: str = ""

    @property
    def verifies(self) -> bool:
        """Whether signatures may be verified by it."""
        known = any(self.kty == kind and (not curves or self.crv in curves) for kind, curves in ALGORITHMS.values())
        long_enough = self.kty != "RSA" or len(self.n.rstrip("=")) >= _RSA_CHARACTERS
        meant = self.use in {None, "sig"} and (self.key_ops is None or "verify" in self.key_ops)
        return known and long_enough and meant


def verifying_keys(content: bytes) -> Sequence[VerifyingKey]:
    """Return the keys of a JWKS that signatures can be verified by, without the others; raises ValueError if it is none."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    found = []
    for each in decoded(content, _KeySet).keys[:_MAX_KEYS]:
        try:
            about = msgspec.convert(each, _About)
            if about.verifies:
                public: dict[str, str | list[str]] = {
                    name: each[name] for name in ("kty", "crv", "n", "e", "x", "y") if name in each
                }
                key: Any = import_key(public)
                found.append(VerifyingKey(key, about.kty, about.crv, about.kid, about.alg))
        except (JoseError, ValueError, TypeError, KeyError, UnsupportedAlgorithm) as error:
            logger.warning("a key of a JWKS cannot be used: %s", type(error).__name__)
    return found
