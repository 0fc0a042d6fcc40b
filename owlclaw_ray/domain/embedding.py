"""Vectors of texts, as a provider's embedding model is asked for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import Enum

from msgspec import Struct, field

from owlclaw_ray.domain.endpoint import Endpoint
from owlclaw_ray.domain.model import FailedAttempt
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.ids import DEFAULT_TENANT, AgentId, TenantId


class EmbeddingCalls(Struct, frozen=True):
    """How a provider's embedding model is asked. Times in seconds."""

    batch: int = 64
    """Texts in one call."""
    timeout: float = 10.0
    """Of one attempt; a question waits no longer in all."""
    patience: float = 120.0
    """Of all attempts at a batch of documents."""
    endpoints: tuple[Endpoint, ...] = ()
    """Of the providers that are asked in another way than their variables say."""


class EmbeddingRequest(Struct, frozen=True):
    """One call of an embedding model, with all its texts."""

    model: str
    """A litellm name, such as `openai/text-embedding-3-small`."""
    texts: tuple[str, ...]
    timeout: float
    """Seconds for each attempt."""
    patience: float
    """Seconds for all attempts and the waits between them."""
    endpoint: Endpoint | None = None
    """How the model's provider is asked; None: as its variables say."""
    tenant: TenantId = DEFAULT_TENANT
    agent_id: AgentId = AgentId("")
    """Whose texts these are, all of them."""


class EmbeddingReply(Struct, frozen=True):
    """What the model answered."""

    vectors: tuple[Sequence[float], ...]
    """One a text, in their order, all of one length."""
    usage: Usage = field(default_factory=Usage)
    failed_attempts: tuple[FailedAttempt, ...] = ()


class EmbeddingPurpose(Enum):
    """What vectors are for."""

    RECALL = "recall"
    """A question."""
    INDEX = "index"
    """Memories."""


class EmbeddedCall(Struct, frozen=True, omit_defaults=True):
    """A call of a provider's embedding model that was answered."""

    model: str
    usage: Usage
    at: datetime
    """When the answer was there."""
    duration_ms: int
    """With the attempts that failed before."""
    failed_attempts: tuple[FailedAttempt, ...] = ()


def used_by(calls: Iterable[EmbeddedCall]) -> Usage:
    """Return what the calls used together."""
    return sum((call.usage for call in calls), Usage())
