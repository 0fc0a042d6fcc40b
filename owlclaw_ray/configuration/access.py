"""The section `access` of owlclaw.yaml: whose tokens are let in, and where people sign in."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from msgspec import structs
from pydantic import BeforeValidator, Field, field_validator, model_validator

from owlclaw_ray.configuration.placeholders import filled_or_none, names_in
from owlclaw_ray.configuration.section import CONFIDENTIAL, NonEmpty, Secret, Section
from owlclaw_ray.domain.issuer import ALGORITHMS, USUAL_ALGORITHMS, Issuer, SignInClient, SignInOptions
from owlclaw_ray.domain.principal import OF_OPERATORS, PrincipalKind, check_name, parse_scopes, parse_tenant
from owlclaw_ray.errors import InvalidAccessError, Problem
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId

_LEAST_CACHE_SECONDS = 30.0
_IN_ADDRESSES = re.compile(r"(?!codes$|\.{1,2}$)[A-Za-z0-9._-]+")
_SCOPE = r"^[\x21\x23-\x5b\x5d-\x7e]+$"
MIN_SECRET = 32
"""Characters of the secret that sessions are sealed with: who has a session could try all of a short one."""
_TOO_SHORT = f"has less than {MIN_SECRET} characters"
_HOW_TO_MAKE = "make one with: openssl rand -base64 32"


def _tenant(given: str) -> TenantId:
    try:
        return parse_tenant(given)
    except InvalidAccessError as error:
        raise ValueError(f"is {given!r}, which is no tenant", error.fix) from error


def _scopes(given: Iterable[str]) -> frozenset[str]:
    try:
        return parse_scopes([*given])
    except InvalidAccessError as error:
        raise ValueError(error.problem, error.fix) from error


def _listed(given: object) -> object:
    return (given,) if isinstance(given, str) else given


def _check_address(url: str) -> None:
    """Raise ValueError unless nobody on the way can put other keys into the answer."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme != "http" or not parts.hostname or not _is_here(parts.hostname):
        raise ValueError(f"is {url!r}, and keys must come over https", "use https, or jwks_file")


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class SignInClientFile(Section):
    """What an issuer knows the console as."""

    client_id: NonEmpty
    client_secret: Secret
    scopes: tuple[Annotated[str, Field(pattern=_SCOPE)], ...] = ("profile",)
    """Asked for beside `openid`."""


class IssuerFile(Section):
    """An issuer of tokens."""

    issuer: NonEmpty
    audience: Annotated[tuple[NonEmpty, ...], Field(min_length=1), BeforeValidator(_listed)]
    name: NonEmpty | None = None
    """What stands before the subjects in the ids of its principals; None: the host of `issuer`."""
    jwks_url: NonEmpty | None = None
    jwks_file: Path | None = None
    algorithms: Annotated[tuple[str, ...], Field(min_length=1)] = USUAL_ALGORITHMS
    tenant: NonEmpty | None = None
    tenant_claim: NonEmpty | None = None
    tenants: dict[NonEmpty, NonEmpty] = Field(default_factory=dict)
    scopes: tuple[NonEmpty, ...] = ()
    scopes_claim: NonEmpty | None = None
    roles: dict[NonEmpty, tuple[NonEmpty, ...]] = Field(default_factory=dict)
    agents_claim: NonEmpty | None = None
    kind: Literal["person", "system"]
    sign_in: SignInClientFile | None = None
    """None: nobody signs in to the console there."""
    name_claim: NonEmpty = "name"
    cache_seconds: Annotated[float, Field(ge=_LEAST_CACHE_SECONDS, le=86_400)] = 300.0
    stale_seconds: Annotated[float, Field(ge=_LEAST_CACHE_SECONDS, le=7 * 86_400)] = 3_600.0

    @field_validator("algorithms")
    @classmethod
    def _known(cls, algorithms: tuple[str, ...]) -> tuple[str, ...]:
        for each in algorithms:
            if each not in ALGORITHMS:
                raise ValueError(
                    f"has {each!r}, which tokens must not be signed by", f"choose of {', '.join(ALGORITHMS)}"
                )
        return algorithms

    @field_validator("jwks_url")
    @classmethod
    def _address(cls, url: str | None) -> str | None:
        if url is not None:
            _check_address(url)
        return url

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.jwks_url is not None and self.jwks_file is not None:
            raise ValueError("has jwks_url and jwks_file: remove one of them")
        if self.jwks_url is None and self.jwks_file is None:
            _check_address(self.issuer)
        if (self.tenant is None) == (self.tenant_claim is None):
            raise ValueError("must have either tenant or tenant_claim")
        if self.tenants and self.tenant_claim is None:
            raise ValueError("has tenants without tenant_claim, whose values they are mapped from")
        if bool(self.scopes) == bool(self.scopes_claim):
            raise ValueError("must have either scopes or scopes_claim")
        if bool(self.roles) != bool(self.scopes_claim):
            raise ValueError("must have scopes_claim and roles, or neither: roles says what values of the claim may do")
        if self.stale_seconds < self.cache_seconds:
            raise ValueError(
                f"stale_seconds is {self.stale_seconds:g}, less than cache_seconds, {self.cache_seconds:g}"
            )
        if self.sign_in is not None:
            self._check_sign_in()
        try:
            check_name(self.shown_name)
        except InvalidAccessError as error:
            raise ValueError(f"has the name {self.shown_name!r}", error.fix) from error
        made = self.made()
        granted = made.scopes.union(*made.roles.values())
        beyond = sorted(each for each in granted if each.partition(":")[0] in OF_OPERATORS)
        if beyond and made.tenant not in {None, DEFAULT_TENANT}:
            raise ValueError(f"gives {', '.join(beyond)} to tenant {made.tenant}, and these are for no tenant")
        return self

    def _check_sign_in(self) -> None:
        if self.kind != "person":
            raise ValueError("has sign_in, which is for people, and another kind than person")
        if not _IN_ADDRESSES.fullmatch(self.shown_name):
            right = "set name to some of A-Z, a-z, 0-9, '.', '_' and '-': it is in the address of its sign-in; codes is taken"
            raise ValueError(f"has sign_in, and the name {self.shown_name!r}", right)
        _check_address(self.issuer)

    @property
    def shown_name(self) -> str:
        """What stands before the subjects."""
        return self.name or urlsplit(self.issuer).hostname or self.issuer

    def made(self, folder: Path | None = None) -> Issuer:
        """Return what is written here, for the engine; paths start at the folder."""
        jwks_file = "" if self.jwks_file is None else str((folder or Path()) / self.jwks_file.expanduser())
        return Issuer(
            name=self.shown_name,
            issuer=self.issuer,
            audiences=self.audience,
            kind=PrincipalKind(self.kind),
            jwks_url=self.jwks_url or "",
            jwks_file=jwks_file,
            algorithms=self.algorithms,
            tenant=None if self.tenant is None else _tenant(self.tenant),
            tenant_claim=self.tenant_claim or "",
            tenants={value: _tenant(tenant) for value, tenant in self.tenants.items()},
            scopes=_scopes(self.scopes) if self.scopes else frozenset(),
            scopes_claim=self.scopes_claim or "",
            roles={value: _scopes(scopes) for value, scopes in self.roles.items()},
            agents_claim=self.agents_claim or "",
            name_claim=self.name_claim,
            cache=self.cache_seconds,
            stale=self.stale_seconds,
            client=None
            if self.sign_in is None
            else SignInClient(self.sign_in.client_id, self.sign_in.client_secret, self.sign_in.scopes),
        )


class SignInSettings(Section):
    """What signing in to the console needs, whichever the issuer."""

    public_url: NonEmpty | None = None
    session_secret: Annotated[Secret | None, CONFIDENTIAL] = None

    @field_validator("public_url")
    @classmethod
    def _origin(cls, url: str | None) -> str | None:
        if url is None:
            return None
        _check_address(url)
        parts = urlsplit(url)
        if parts.path not in {"", "/"} or parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError(f"is {url!r}, which has more than an origin", "write https://agents.example.com")
        return f"{parts.scheme}://{parts.netloc}"


class AccessSettings(Section):
    """Who is let in beside who has a key."""

    issuers: tuple[IssuerFile, ...] = ()
    """Of tokens. With one, whoever has neither a token nor a key is refused."""
    sign_in: SignInSettings = Field(default_factory=SignInSettings)
    """Needed if an issuer has `sign_in`."""

    @field_validator("issuers")
    @classmethod
    def _apart(cls, issuers: tuple[IssuerFile, ...]) -> tuple[IssuerFile, ...]:
        for what, values in (
            ("issuer", [each.issuer for each in issuers]),
            ("name", [each.shown_name for each in issuers]),
        ):
            twice = next((each for each in values if values.count(each) > 1), None)
            if twice is not None:
                raise ValueError(f"has two issuers with the {what} {twice!r}", f"give one of them another {what}")
        return issuers

    @model_validator(mode="after")
    def _sign_in_is_whole(self) -> Self:
        if self.sign_in_options is None and any(each.sign_in is not None for each in self.issuers):
            right = "set access.sign_in.public_url and access.sign_in.session_secret"
            raise ValueError("has an issuer with sign_in, and no address or secret to sign in with", right)
        return self

    @property
    def sign_in_options(self) -> SignInOptions | None:
        """How people sign in, with the placeholder of the secret; None: at no issuer."""
        url, secret = self.sign_in.public_url, self.sign_in.session_secret
        return None if url is None or secret is None else SignInOptions(url, secret)

    def weak_secret(self, environ: Mapping[str, str]) -> tuple[str, str]:
        """Return what is wrong with the secret of sessions, if it is set, and what would be right; nothing if nothing is."""
        written = self.sign_in.session_secret
        secret = None if written is None else filled_or_none(written, environ)
        return (_TOO_SHORT, _HOW_TO_MAKE) if secret is not None and len(secret) < MIN_SECRET else ("", "")

    def variables(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the variables that hold secrets, each with the place below this section that names it."""
        yield from ((("sign_in", "session_secret"), each) for each in names_in(self.sign_in.session_secret or ""))
        for number, issuer in enumerate(self.issuers):
            if issuer.sign_in is not None:
                place = ("issuers", number, "sign_in", "client_secret")
                yield from ((place, each) for each in names_in(issuer.sign_in.client_secret))


def filled_sign_in(
    issuers: Sequence[Issuer], options: SignInOptions | None, environ: Mapping[str, str]
) -> tuple[tuple[Issuer, ...], SignInOptions | None, tuple[Problem, ...]]:
    """Return issuers and options with the secrets themselves, and what is wrong with secrets that are not set or too short.

    Nobody signs in at an issuer that lacks its secret, and at none without that of sessions. Their tokens are let in all the same.
    """
    problems = list[Problem]()
    if options is not None:
        secret = filled_or_none(options.session_secret, environ)
        if secret is None or len(secret) < MIN_SECRET:
            what = f"{options.session_secret} is not set, or {_TOO_SHORT}"
            problems.append(Problem("access.sign_in.session_secret", what, _HOW_TO_MAKE))
            options = None
        else:
            options = replace(options, session_secret=secret)
    found = list[Issuer]()
    for each in issuers:
        client = None if options is None else each.client
        secret = None if client is None else filled_or_none(client.secret, environ)
        if client is not None and not secret:
            what = f"the secret of its client, {client.secret}, is not set"
            problems.append(Problem(f"access.issuers, {each.name}", what, "set it where the runtime is started"))
        found.append(structs.replace(each, client=replace(client, secret=secret) if client and secret else None))
    return tuple(found), options, tuple(problems)
