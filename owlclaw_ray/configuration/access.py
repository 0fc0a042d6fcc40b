"""The section `access` of owlclaw.yaml: whose tokens are let in."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from owlclaw_ray.configuration.section import NonEmpty, Section
from owlclaw_ray.domain.issuer import ALGORITHMS, USUAL_ALGORITHMS, Issuer
from owlclaw_ray.domain.principal import OF_OPERATORS, PrincipalKind, check_name, parse_scopes, parse_tenant
from owlclaw_ray.errors import InvalidAccessError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId

_LEAST_CACHE_SECONDS = 30.0


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
        )


class AccessSettings(Section):
    """Who is let in beside who has a key."""

    issuers: tuple[IssuerFile, ...] = ()
    """Of tokens. With one, whoever has neither a token nor a key is refused."""

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
