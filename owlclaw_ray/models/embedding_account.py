"""For whom vectors are asked: known wherever a provider is asked for some, through whatever asks in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct, field

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.embedding import EmbeddedCall, EmbeddingPurpose
from owlclaw_ray.ids import RunId


class EmbeddingAccount(Struct):
    """Who has vectors made, and what that took."""

    agent: AgentRef
    purpose: EmbeddingPurpose
    run_id: RunId = RunId("")
    """The run that asks, or whose memories are indexed; empty if that is none, or several."""
    call: str = ""
    """The idempotency key of the run's tool call that waits for them, if one does."""
    refusal: str = ""
    """Why the run must not have any made; empty if it may."""
    calls: list[EmbeddedCall] = field(default_factory=list)
    """The calls that were answered, in order."""


_PRESENT: ContextVar[EmbeddingAccount | None] = ContextVar("owlclaw_embedding_account", default=None)


@contextmanager
def on_account(account: EmbeddingAccount) -> Iterator[EmbeddingAccount]:
    """Have vectors that are asked for inside the block be for this account."""
    token = _PRESENT.set(account)
    try:
        yield account
    finally:
        _PRESENT.reset(token)


def present_account() -> EmbeddingAccount | None:
    """Return for whom vectors are asked now; None outside such a block."""
    return _PRESENT.get()
