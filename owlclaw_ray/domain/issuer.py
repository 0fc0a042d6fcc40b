"""Issuers of tokens (OIDC): whom their JWTs are believed about, and what these may do here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec import Struct
from msgspec import field as struct_field

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.principal import MAX_NAME, Principal, PrincipalKind, check_name, parse_patterns, parse_tenant
from owlclaw_ray.errors import InvalidAccessError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId

ALGORITHMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "RS256": ("RSA", ()),
    "RS384": ("RSA", ()),
    "RS512": ("RSA", ()),
    "PS256": ("RSA", ()),
    "PS384": ("RSA", ()),
    "PS512": ("RSA", ()),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
    "Ed25519": ("OKP", ("Ed25519",)),
}
"""How tokens may be signed, with the type of key and its curves. Only algorithms whose keys to verify are no keys to sign."""
USUAL_ALGORITHMS = ("RS256", "ES256", "EdDSA")
_SUBJECT = re.compile(r"[\x21-\x7e]{1,255}")


class TokenRefusedError(Exception):
    """A token is not believed. Its text is the reason, for logs: it is not for who has the token, and has nothing of it."""


@dataclass(frozen=True)
class SignInClient:
    """As what people of an issuer are signed in to the console."""

    client_id: str
    secret: str = field(repr=False)
    """Shared with the issuer; in a plan, the placeholder of its variable."""
    scopes: tuple[str, ...] = ("profile",)
    """What the issuer is asked for, beside `openid`."""


@dataclass(frozen=True)
class SignInOptions:
    """How people sign in, whichever the issuer."""

    public_url: str
    """The origin by which browsers reach the console."""
    session_secret: str = field(repr=False)
    """What sessions are sealed with; in a plan, the placeholder of its variable."""


class PersonSession(Struct, frozen=True):
    """That somebody signed in at an issuer: what it said of them then, until some hours later."""

    issuer: str
    """The claim `iss`."""
    claims: bytes
    """In JSON, those that the issuer's settings read."""
    until: float
    """In seconds since 1970."""


Credential: TypeAlias = str | PersonSession
"""What a request acts by: a key or a token as text, which anybody can send, or a session, which only we open."""


class Issuer(Struct, frozen=True):
    """An issuer of tokens."""

    name: str
    """What stands before the subjects of its tokens, as principals: two issuers may have the same subjects."""
    issuer: str
    """The claim `iss`."""
    audiences: tuple[str, ...]
    """One of these must be in the claim `aud`."""
    kind: PrincipalKind
    jwks_url: str = ""
    jwks_file: str = ""
    """Where its keys are; both empty: where its OpenID configuration says."""
    algorithms: tuple[str, ...] = USUAL_ALGORITHMS
    tenant: TenantId | None = None
    """Of all its tokens; None: the one that `tenant_claim` names."""
    tenant_claim: str = ""
    tenants: Mapping[str, TenantId] = struct_field(default_factory=dict)
    """Tenants by values of the claim; empty: the values are tenants, but for the default one."""
    scopes: frozenset[str] = frozenset()
    """Of all its tokens."""
    scopes_claim: str = ""
    roles: Mapping[str, frozenset[str]] = struct_field(default_factory=dict)
    """Scopes by values of the claim; other values mean nothing here."""
    agents_claim: str = ""
    """The claim with the patterns of agents that its tokens are narrowed to; empty: they are not."""
    name_claim: str = "name"
    cache: float = 300.0
    """Seconds after which a key that the issuer has withdrawn is refused."""
    stale: float = 3_600.0
    """Seconds for which keys are used while the issuer cannot be reached."""
    client: SignInClient | None = None
    """None: nobody signs in there."""

    def principal(self, claims: JsonObject) -> Principal:
        """Return who a token with these claims is for; raises TokenRefusedError."""
        subject = claims.get("sub")
        if not isinstance(subject, str) or not _SUBJECT.fullmatch(subject):
            raise TokenRefusedError("sub is not 1 to 255 characters of ASCII without blanks")
        scopes = self.scopes
        if self.scopes_claim:
            for each in _texts(claim_of(claims, self.scopes_claim)):
                scopes |= self.roles.get(each, frozenset())
        tenant = self._tenant(claims)
        return Principal(tenant, self.kind, f"{self.name}/{subject}", self._name(claims), scopes, self._agents(claims))

    def kept(self, claims: JsonObject) -> JsonObject:
        """Return of the claims what `principal` reads of them, and no more of it than means something here."""
        read: dict[str, JsonValue] = {"sub": claims.get("sub")}
        for name in filter(None, (self.tenant_claim, self.agents_claim)):
            read[name] = claim_of(claims, name)
        if self.scopes_claim:
            roles = [each for each in _texts(claim_of(claims, self.scopes_claim)) if each in self.roles]
            read.setdefault(self.scopes_claim, roles)
        read.setdefault(self.name_claim, self._name(claims))
        return read

    def _tenant(self, claims: JsonObject) -> TenantId:
        if self.tenant is not None:
            return self.tenant
        value = claim_of(claims, self.tenant_claim)
        if not isinstance(value, str):
            raise TokenRefusedError(f"{self.tenant_claim} names no tenant")
        if self.tenants:
            if value not in self.tenants:
                raise TokenRefusedError(f"{self.tenant_claim} is none of the values that are mapped to a tenant")
            return self.tenants[value]
        try:
            tenant = parse_tenant(value)
        except InvalidAccessError as error:
            raise TokenRefusedError(f"{self.tenant_claim} is no id of a tenant") from error
        if tenant == DEFAULT_TENANT:
            raise TokenRefusedError(f"{self.tenant_claim} is the default tenant, which only a mapping leads to")
        return tenant

    def _agents(self, claims: JsonObject) -> tuple[str, ...]:
        if not self.agents_claim:
            return ()
        value = claim_of(claims, self.agents_claim)
        patterns = [*_texts(value)]
        if not patterns or (isinstance(value, list) and len(patterns) != len(value)):
            raise TokenRefusedError(f"{self.agents_claim} is no list of patterns")
        try:
            return parse_patterns(patterns, ())
        except InvalidAccessError as error:
            raise TokenRefusedError(f"{self.agents_claim} has what is no pattern") from error

    def _name(self, claims: JsonObject) -> str:
        name = claim_of(claims, self.name_claim)
        if not isinstance(name, str):
            return ""
        try:
            check_name(name[:MAX_NAME].strip())
        except InvalidAccessError:
            return ""
        return name[:MAX_NAME].strip()


def claim_of(claims: JsonObject, name: str) -> JsonValue:
    """Return the claim of that name, or else the one that its parts lead to, as `realm_access.roles`; None if there is none."""
    if name in claims:
        return claims[name]
    found: JsonValue = claims
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    return found


def _texts(value: JsonValue) -> Iterator[str]:
    """Yield the texts of a list, or the words of a text."""
    if isinstance(value, str):
        yield from value.split()
    elif isinstance(value, list):
        yield from (each for each in value if isinstance(each, str))
