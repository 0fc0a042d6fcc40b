"""Models, as the engine asks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from owlclaw_ray.domain.embedding import EmbeddingReply, EmbeddingRequest
from owlclaw_ray.domain.model import ContextWindow, ModelReply, ModelRequest, NextAttempt, Price

Waiting: TypeAlias = Callable[[bool], None]
"""Called with True when a call begins to wait for a slot of its provider, and with False when the wait ends, however it ends."""
News: TypeAlias = bool | NextAttempt
Listener: TypeAlias = Callable[[News], None]
"""Called with news of a call under way: what a Waiting is called with, and each failed attempt that is followed by another."""


def ignore_news(news: News) -> None:
    """Do nothing with it."""


class Models(Protocol):
    """The gateway to all models, as a run sees it."""

    async def complete(self, request: ModelRequest, listener: Listener = ignore_news) -> ModelReply:
        """Return a reply from the first model of the request's chain that gives one.

        Retries retryable errors with exponential backoff and jitter, then falls back along the chain. Each attempt has
        `request.timeout` seconds, from when it has a slot of its provider. Raises ModelRefusedError or
        ModelUnavailableError (the last error, its message naming every model tried) when the chain is exhausted.
        Cancelling the awaiting task stops the call at the provider's connection.
        """
        ...


class ModelClient(Protocol):
    """One kind of model access: one attempt at one model."""

    def serves(self, model: str) -> bool:
        """Return whether this client is the one for the model of that name."""
        ...

    async def load(self) -> None:
        """Return once the client can make calls, which may take seconds the first time; time limits start after it.

        Raises ModelRefusedError if it cannot.
        """
        ...

    async def complete(self, request: ModelRequest, model: str) -> ModelReply:
        """Ask `model` once.

        Raises ModelUnavailableError for what a retry may mend (5xx, network; `retry_after` if the provider said so; as
        ModelOverloadedError for 429 and its like, as ModelTimeoutError for a time-out) and ModelRefusedError for what it
        does not (bad key, unknown model, invalid request). A reply
        with malformed tool-call arguments is a reply: the arguments are passed on as text.
        """
        ...


class EmbeddingClient(Protocol):
    """Access to embedding models: one attempt at one model."""

    async def load(self) -> None:
        """See ModelClient.load."""
        ...

    async def embed(self, request: EmbeddingRequest) -> EmbeddingReply:
        """Ask the model once; raises as ModelClient.complete does, also when the answer is not one vector a text."""
        ...


class TokenCounter(Protocol):
    """Knows how many tokens texts are for a model, how many it takes, and what they cost."""

    async def count_tokens(self, model: str, texts: Sequence[str]) -> Sequence[int]:
        """Return the number of tokens of each text: the tokenizer's, or an estimate where there is none. Never raises."""
        ...

    async def context_window(self, model: str) -> ContextWindow | None:
        """Return what the model takes, or None if it is not known.

        Raises OwlClawError or TimeoutError while the process that knows it cannot be reached.
        """
        ...

    async def price(self, model: str) -> Price | None:
        """Return what a call of the model may cost at most, or None if it is not known. Raises as `context_window` does."""
        ...
