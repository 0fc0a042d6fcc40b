"""The section `webhooks` of owlclaw.yaml: the sources of webhooks, and how callbacks are sent (S5, H2)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from owlclaw_ray.configuration.limits import Count, Seconds
from owlclaw_ray.configuration.placeholders import filled, names_in
from owlclaw_ray.configuration.section import NonEmpty, Secret, Section
from owlclaw_ray.domain.callback import network_problem
from owlclaw_ray.domain.json import JsonValue, texts_in
from owlclaw_ray.domain.principal import TENANT_ID
from owlclaw_ray.domain.secret import SECRET_NAME
from owlclaw_ray.domain.trigger import HIGHEST_PRIORITY, LOWEST_PRIORITY, MAX_DEADLINE_SECONDS, Admission, BusyPolicy
from owlclaw_ray.domain.webhook import (
    PLACE,
    SIGNED_PART,
    BodyForm,
    DeliverTo,
    SecretForm,
    SignatureForm,
    WebhookSource,
)
from owlclaw_ray.domain.webhook import Mapping as WebhookMapping
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId

MIN_KEY_CHARACTERS = 24
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_HEADER = re.compile(r"[A-Za-z0-9_-]+")
_BRACES = re.compile(r"\{[A-Za-z_][^{}]*\}")
_HOW_TO_MAKE = "make one with: openssl rand -base64 32"


def _template(text: str) -> str:
    wrong = [found[0] for found in _BRACES.finditer(text) if not PLACE.fullmatch(found[0])]
    if wrong:
        raise ValueError(f"has {wrong[0]}: write {{body}}, {{body.path.to.it}} or {{header.Name}}")
    return text


class SignatureFile(Section):
    """How a source signs."""

    header: str = SignatureForm().header
    algorithm: Literal["sha256", "sha384", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: str = ""
    digest_key: str = ""
    timestamp_key: str = ""
    timestamp_header: str = ""
    signed: str = SignatureForm().signed
    tolerance_seconds: Seconds = SignatureForm().tolerance

    @field_validator("header", "timestamp_header")
    @classmethod
    def _is_header(cls, name: str) -> str:
        if name and not _HEADER.fullmatch(name):
            raise ValueError(f"is {name!r}, which is no name of a header")
        return name

    @field_validator("signed")
    @classmethod
    def _covers_body(cls, signed: str) -> str:
        wrong = [found[0] for found in _BRACES.finditer(signed) if not SIGNED_PART.fullmatch(found[0])]
        if wrong:
            raise ValueError(f"has {wrong[0]}: write {{body}}, {{timestamp}} or {{header.Name}}")
        if "{body}" not in signed:
            raise ValueError("does not have {body} in it: anybody could put another body under a signature")
        return signed

    @model_validator(mode="after")
    def _time_is_signed(self) -> Self:
        if self.timestamp_key and self.timestamp_header:
            raise ValueError("has timestamp_key and timestamp_header: the time comes from one of them")
        if self.timestamp_key and not self.digest_key:
            raise ValueError("has timestamp_key without digest_key: both are keys of the pairs in the header")
        if ("{timestamp}" in self.signed) != bool(self.timestamp_key or self.timestamp_header):
            raise ValueError("has a time that is not in `signed`, or {timestamp} in it and no place that it comes from")
        return self

    def form(self) -> SignatureForm:
        """Return it as the domain's struct."""
        fields = self.model_dump(exclude={"tolerance_seconds"})
        return SignatureForm(**fields, tolerance=self.tolerance_seconds)


class SourceFile(Section):
    """A sender of webhooks, and what its webhooks become."""

    tenant: str = DEFAULT_TENANT
    secret: Secret | None = None
    previous_secret: Secret | None = None
    """Also good, while the source changes over to `secret`."""
    tenant_secrets: tuple[str, ...] = ()
    """In the place of both: names of secrets of the tenant, any of which may have signed."""
    secret_encoding: Literal["text", "base64"] = "text"  # noqa: S105 - the name of a form
    signature: SignatureFile = Field(default_factory=SignatureFile)
    body: Literal["json", "form", "text"] = "json"
    agent: NonEmpty
    deliver: DeliverTo = DeliverTo.RUN
    payload: JsonValue = "{body}"
    focus: str = ""
    session: str = ""
    user: str = ""
    task_type: str = ""
    when: dict[NonEmpty, tuple[str, ...]] = Field(default_factory=dict)
    dedupe: str = ""
    busy: BusyPolicy = BusyPolicy.ENQUEUE
    priority: Annotated[int, Field(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)] = 0
    deadline_seconds: Annotated[float, Field(gt=0, le=MAX_DEADLINE_SECONDS)] | None = None
    callback_url: str = ""

    @field_validator("tenant")
    @classmethod
    def _is_tenant(cls, tenant: str) -> str:
        if not re.fullmatch(TENANT_ID, tenant):
            raise ValueError(
                f"is {tenant!r}, which is no id of a tenant: 1 to 63 of a-z, 0-9 and '-', not '-' at its ends"
            )
        return tenant

    @field_validator("tenant_secrets")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [name for name in names if not SECRET_NAME.fullmatch(name)]
        if wrong:
            raise ValueError(f"has {wrong[0]!r}, which is no name of a secret: name one that the tenant sets")
        return names

    @model_validator(mode="after")
    def _is_signed_in_one_way(self) -> Self:
        if self.tenant_secrets and (self.secret or self.previous_secret):
            raise ValueError("has tenant_secrets and a secret of the runtime: it is signed with one or the other")
        if self.secret is None and not self.tenant_secrets:
            raise ValueError("needs secret, the variable that holds it, or tenant_secrets")
        return self

    _are_texts = field_validator("agent", "focus", "session", "user", "task_type", "dedupe")(_template)

    @field_validator("payload")
    @classmethod
    def _are_templates(cls, payload: JsonValue) -> JsonValue:
        for text in texts_in(payload):
            _template(text)
        return payload

    @field_validator("when")
    @classmethod
    def _are_conditions(cls, when: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for template in when:
            if not PLACE.search(_template(template)):
                raise ValueError(
                    f"has {template!r}, which is always the same: write what to look at, such as {{body.type}}"
                )
        return when

    @model_validator(mode="after")
    def _heartbeats_are_no_runs_of_its_own(self) -> Self:
        if self.deliver is DeliverTo.HEARTBEAT:
            default = SourceFile.model_fields
            of_runs = ("task_type", "busy", "priority", "deadline_seconds", "callback_url")
            said = [name for name in of_runs if getattr(self, name) != default[name].default]
            if said:
                raise ValueError(
                    f"has {' and '.join(said)}, of runs that webhooks trigger, and deliver: heartbeat, which triggers none"
                )
        return self

    def source(self, name: str) -> WebhookSource:
        """Return it as the domain's struct, with placeholders for secrets."""
        mapping = WebhookMapping(
            agent=self.agent,
            payload=self.payload,
            focus=self.focus,
            session=self.session,
            user=self.user,
            task_type=self.task_type,
            when=tuple(self.when.items()),
            dedupe=self.dedupe,
            admission=Admission(self.busy, self.priority, self.deadline_seconds, self.callback_url),
            deliver=self.deliver,
        )
        secrets = tuple(filter(None, (self.secret, self.previous_secret)))
        form, body = SecretForm(self.secret_encoding), BodyForm(self.body)
        return WebhookSource(
            name,
            secrets,
            mapping,
            self.signature.form(),
            form,
            body,
            tenant=TenantId(self.tenant),
            tenant_secrets=self.tenant_secrets,
        )


class CallbackSettings(Section):
    """How callbacks are sent when runs end."""

    secret: Secret | None = None
    """What the secrets of all tenants are derived from. Without one there are no callbacks."""
    previous_secret: Secret | None = None
    """Callbacks are signed with what is derived from it, too, while receivers change over."""
    attempts: Count = 10
    backoff_seconds: Seconds = 10.0
    """The longest wait before the second attempt; it doubles, with jitter, up to the next setting."""
    backoff_limit_seconds: Seconds = 3_600.0
    timeout_seconds: Annotated[float, Field(gt=0, le=30)] = 10.0
    allowed_networks: tuple[str, ...] = ()
    """Beside public addresses, in the form 10.1.0.0/16; for tenants that have none of their own."""

    @field_validator("allowed_networks")
    @classmethod
    def _are_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        if problem := network_problem(networks):
            raise ValueError(problem)
        return networks

    @model_validator(mode="after")
    def _secret_before_previous(self) -> Self:
        if self.secret is None and self.previous_secret is not None:
            raise ValueError("has previous_secret without secret")
        return self

    @property
    def secrets(self) -> tuple[str, ...]:
        """The placeholders of the secrets."""
        return tuple(filter(None, (self.secret, self.previous_secret)))


class WebhookSettings(Section):
    """Webhooks in and out."""

    sources: dict[str, SourceFile] = Field(default_factory=dict)
    """By the last part of their path: /v1/webhooks/<name>."""
    callbacks: CallbackSettings = Field(default_factory=CallbackSettings)
    retention_days: Annotated[float, Field(ge=0, le=36_500)] = 0.0
    """How long deliveries and callbacks are kept; 0: for ever."""

    @field_validator("sources")
    @classmethod
    def _names(cls, sources: dict[str, SourceFile]) -> dict[str, SourceFile]:
        for name in sources:
            if not _NAME.fullmatch(name):
                raise ValueError(f"has {name!r}: a source's name has at most 32 small letters, digits, '-' and '_'")
        return sources

    @model_validator(mode="after")
    def _callbacks_are_signed(self) -> Self:
        for name, source in self.sources.items():
            if source.callback_url and self.callbacks.secret is None:
                raise ValueError(f"has a callback_url in sources.{name} and no callbacks.secret to sign with")
        return self

    def variables(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the variables that hold secrets, each with the place below this section that names it."""
        for name, source in self.sources.items():
            yield from ((("sources", name, *path), variable) for path, variable in _secrets_of(source))
        yield from ((("callbacks", *path), variable) for path, variable in _secrets_of(self.callbacks))


def filled_sources(
    sources: Iterable[WebhookSource], environ: Mapping[str, str]
) -> tuple[tuple[WebhookSource, ...], tuple[Problem, ...]]:
    """Return the sources with the secrets themselves, and what is wrong with secrets that are not set or not of their form.

    A source that has such a secret has none.
    """
    filled_in: list[WebhookSource] = []
    problems: list[Problem] = []
    for each in sources:
        place, secrets = f"webhooks.sources.{each.name}", tuple[str, ...]()
        try:
            secrets = _filled(each.secrets, environ, place)
        except ConfigurationError as error:
            problems += error.problems
        wrong = [
            name
            for secret, name in zip(secrets, each.secrets, strict=False)
            if not secret or (each.secret_form is SecretForm.BASE64 and not _decoded(secret))
        ]
        if wrong:
            what = f"{wrong[0]} is empty, or not of the form that secret_encoding says"
            problems.append(Problem(place, what))
        filled_in.append(replace(each, secrets=() if wrong else secrets))
    return tuple(filled_in), tuple(problems)


def filled_keys(secrets: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets of callbacks themselves; raises ConfigurationError for what is not set, no base64 or too short."""
    place = "webhooks.callbacks"
    found = _filled(secrets, environ, place)
    for secret, name in zip(found, secrets, strict=True):
        if len(_decoded(secret) or b"") < MIN_KEY_CHARACTERS:
            what = f"{name} must be at least {MIN_KEY_CHARACTERS} bytes in base64, with or without whsec_ before them"
            raise ConfigurationError([Problem(place, what, _HOW_TO_MAKE)])
    return found


def _filled(secrets: Sequence[str], environ: Mapping[str, str], place: str) -> tuple[str, ...]:
    try:
        return tuple(filled(each, environ) for each in secrets)
    except KeyError as error:
        what = f"the variable {error.args[0]} is not set"
        raise ConfigurationError([Problem(place, what, "set it where the runtime is started")]) from None


def _decoded(secret: str) -> bytes | None:
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        return None


def _secrets_of(section: SourceFile | CallbackSettings) -> Iterator[tuple[tuple[str], str]]:
    for key in ("secret", "previous_secret"):
        yield from (((key,), variable) for variable in names_in(getattr(section, key) or ""))
