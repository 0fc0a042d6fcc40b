"""Where and how the models of a provider are asked, if not as the provider's own variables say."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

_BARE = {"openai": ("gpt-*", "chatgpt-*", "o[134]", "o[134]-*", "text-embedding-*"), "anthropic": ("claude-*",)}
"""Whose the names are that litellm takes without a provider in front."""


KEYLESS = ("bedrock", "sagemaker", "vertex_ai")
"""Providers whose credentials are more than a key, and may come from a machine's identity."""


class Endpoint(Struct, frozen=True):
    """How the models of one provider are asked; what is empty is as the provider's variables say.

    `${NAME}` in the key and in headers is a variable of the runtime, which only the call itself looks up.
    """

    provider: str
    """What stands before the slash in the names of its models."""
    api_base: str = ""
    api_key: str = ""
    api_version: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    """What requests have beside their usual headers."""
    key_secret: str = ""
    """The name of the secret of a tenant that goes before `api_key` for its agents, if the tenant has it."""

    @property
    def place(self) -> str:
        """Who answers: the provider, or the address that is asked instead of it."""
        parts = urlsplit(self.api_base)
        return f"{self.provider} at {parts.netloc}{parts.path.rstrip('/')}" if self.api_base else self.provider

    def over(self, other: Endpoint) -> Endpoint:
        """Return this with the rest as in the other, unless this has an address: keys are for the address beside which they stand."""
        if self.api_base:
            return self
        return replace(
            self,
            api_base=other.api_base,
            api_key=self.api_key or other.api_key,
            key_secret=self.key_secret or ("" if self.api_key else other.key_secret),
            api_version=self.api_version or other.api_version,
            headers=tuple({**dict(other.headers), **dict(self.headers)}.items()),
        )


class RealModel(Struct, frozen=True):
    """A model that is no script, and how it is asked; None: as its provider's variables say."""

    model: str
    endpoint: Endpoint | None


def provider_of(model: str) -> str:
    """Return who is asked for a model: `openai` for openai/gpt-4o. A scripted model is a provider of its own."""
    if model.startswith("scripted:"):
        return model
    if "/" in model:
        return model.partition("/")[0]
    known = (name for name, patterns in _BARE.items() if any(fnmatchcase(model, pattern) for pattern in patterns))
    return next(known, model)


def endpoint_of(model: str, endpoints: Iterable[Endpoint]) -> Endpoint | None:
    """Return which of the endpoints is asked for a model; None: its provider's own."""
    provider = provider_of(model)
    return next((each for each in endpoints if each.provider == provider), None)
