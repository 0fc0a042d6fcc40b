"""What owlclaw.yaml and agent.yaml say of models: where and how they are called, limits, prices, and routes (G2, G6)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from owlclaw_ray.configuration.limits import Count
from owlclaw_ray.configuration.placeholders import PLACEHOLDER, names_in
from owlclaw_ray.configuration.section import Headers, NonEmpty, Section
from owlclaw_ray.domain.endpoint import Endpoint
from owlclaw_ray.domain.model import Price
from owlclaw_ray.domain.provider import ProviderLimits
from owlclaw_ray.domain.secret import SECRET_NAME
from owlclaw_ray.domain.trigger import MAX_TASK_TYPE

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_Dollars: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Model: TypeAlias = Annotated[str, Field(min_length=1, pattern=r"^\S+$")]


def _chain(written: Any) -> Any:
    return [written] if isinstance(written, str) else written


TaskType: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_TASK_TYPE)]
Chain: TypeAlias = Annotated[tuple[_Model, ...], BeforeValidator(_chain), Field(min_length=1)]
"""A model, or a list of one and its fallbacks."""
Routes: TypeAlias = dict[TaskType, Chain]


class EndpointFile(Section):
    """An entry of `models.providers`, and what agent.yaml may say of its model's provider."""

    api_base: str | None = None
    """None: the provider's own address."""
    api_key: str | None = None
    """`${NAME}`, a variable of the runtime."""
    api_key_env: str | None = None
    """The same, as the variable's name."""
    api_version: NonEmpty | None = None
    extra_headers: Headers = Field(default_factory=dict)
    key_secret: str | None = None
    """The name of the tenants' secret that is used before this key where a tenant has it."""

    @field_validator("api_base")
    @classmethod
    def _address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.username or parts.password or parts.query:
            raise ValueError(
                "has more than an address: write the key as api_key_env, and what else is secret in extra_headers"
            )
        if parts.scheme not in {"http", "https"} or not parts.netloc or "${" in url:
            shown = f"{parts.scheme}://…" if parts.scheme in {"http", "https"} else repr(url)
            raise ValueError(f"is {shown}: write it as http://host:port/v1, or https://host/path")
        return url

    @field_validator("api_key")
    @classmethod
    def _placeholder(cls, key: str | None) -> str | None:
        if key is not None and not PLACEHOLDER.fullmatch(key):
            raise ValueError(
                "is not of the form ${NAME}: a key belongs in a variable, not in a file; an address that needs none gets none"
            )
        return key

    @field_validator("api_key_env")
    @classmethod
    def _variable(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name is not None and not _VARIABLE.fullmatch(name):
            raise ValueError("is no name of a variable: name the one that has the key, such as VLLM_API_KEY")
        if name is not None and info.data.get("api_key") is not None:
            raise ValueError("is set together with api_key, which means the same: remove one of them")
        return name

    @field_validator("key_secret")
    @classmethod
    def _secret(cls, name: str | None) -> str | None:
        if name is not None and not SECRET_NAME.fullmatch(name):
            raise ValueError("is no name of a secret: name the one that tenants set, such as OPENAI_API_KEY")
        return name

    def endpoint(self, provider: str) -> Endpoint:
        """Return the domain's struct."""
        key = f"${{{self.api_key_env}}}" if self.api_key_env else self.api_key or ""
        headers = tuple(self.extra_headers.items())
        return Endpoint(
            provider, self.api_base or "", key, self.api_version or "", headers, key_secret=self.key_secret or ""
        )

    def variables(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the variables of the runtime that it needs, each with the place below this section that names it."""
        if self.api_key_env:
            yield ("api_key_env",), self.api_key_env
        yield from ((("api_key",), variable) for variable in names_in(self.api_key or ""))
        for name, value in self.extra_headers.items():
            yield from ((("extra_headers", name), variable) for variable in names_in(value))


class ProviderLimitsFile(Section):
    """An entry of `models.limits`: it holds for its models in the place of what is known of them."""

    models: Annotated[tuple[NonEmpty, ...], Field(min_length=1)]
    """Patterns of model names."""
    tools: Annotated[int, Field(ge=0)] | None = None
    name_characters: Count | None = None
    description_characters: Count | None = None
    property_names: NonEmpty | None = None
    """A regular expression that the names of parameters match as a whole."""
    refused: tuple[NonEmpty, ...] = ()
    """Keywords of schemas."""
    typed: bool = False
    """Whether an `enum` needs a `type` beside it."""

    @field_validator("property_names")
    @classmethod
    def _expression(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"is {pattern!r}, which is no regular expression: {error}") from error
        return pattern

    def limits(self) -> ProviderLimits:
        """Return the domain's struct."""
        return ProviderLimits(**{**self.model_dump(), "property_names": self.property_names or ""})


class PriceFile(Section):
    """An entry of `models.prices`, in US dollars for a million tokens."""

    prompt: _Dollars
    completion: _Dollars
    cached: _Dollars | None = None
    """Of a prompt, those that the provider had in its cache; none: as all others."""

    def price(self) -> Price:
        """Return the domain's struct."""
        return Price(**self.model_dump())
