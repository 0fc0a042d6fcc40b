"""The account that calls for vectors are on: known wherever a provider is called, however deep below the caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct, field

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.embedding import EmbeddedCall, EmbeddingPurpose
from owlclaw_ray.domain.quota import KeyQuota
from owlclaw_ray.ids import RunId


class EmbeddingAccount(Struct):
    """The agent that calls for vectors, and the calls that were made."""

    agent: AgentRef
    purpose: EmbeddingPurpose
    run_id: RunId = RunId("")
    """The run that asks, or whose memories are indexed; empty if that is none, or several."""
    call: str = ""
    """The idempotency key of the run's tool call that waits for them, if one does."""
    refusal: str = ""
    """Why the run must not have any made; empty if it may."""
    key_quotas: tuple[KeyQuota, ...] = ()
    """Of the keys that the run counts for."""
    calls: list[EmbeddedCall] = field(default_factory=list)
    """The calls that were answered, in order."""


_PRESENT: ContextVar[EmbeddingAccount | None] = ContextVar("owlclaw_embedding_account", default=None)


@contextmanager
def on_account(account: EmbeddingAccount) -> Iterator[EmbeddingAccount]:
    """Book calls for vectors inside the block on this account."""
    token = _PRESENT.set(account)
    try:
        yield account
    finally:
        _PRESENT.reset(token)


def present_account() -> EmbeddingAccount | None:
    """Return the account of the present block; None outside of one."""
    return _PRESENT.get()
