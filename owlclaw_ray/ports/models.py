"""Models, as the engine asks them."""

from __future__ import annotations

from typing import Protocol

from owlclaw_ray.domain.model import ModelReply, ModelRequest


class Models(Protocol):
    """The gateway to all models, as a run sees it."""

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return a reply from the first model of the request's chain that gives one.

        Retries retryable errors with exponential backoff and jitter, then falls back along the chain. Each attempt has
        `request.timeout` seconds. Raises ModelRefusedError or ModelUnavailableError (the last error, its message naming
        every model tried) when the chain is exhausted. Cancelling the awaiting task stops the call at the provider's
        connection.
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

        Raises ModelUnavailableError for what a retry may mend (429, 5xx, network, time-out; `retry_after` if the
        provider said so) and ModelRefusedError for what it does not (bad key, unknown model, invalid request). A reply
        with malformed tool-call arguments is a reply: the arguments are passed on as text.
        """
        ...
