"""From litellm's exceptions to the two that the engine knows: try again later, or do not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

import orjson

from owlclaw_ray.errors import (
    ContextWindowExceededError,
    ModelOverloadedError,
    ModelRefusedError,
    ModelTimeoutError,
    ModelUnavailableError,
)

_CLASS_NAMES = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Exception|Timeout)\s*(?::|-)\s*)+")
_TLS_OBJECT = re.compile(r" ssl:(?:<[^<>]*>|\w+)(?= \[)")
"""What aiohttp says of TLS beside an address that it cannot reach, plain HTTP included."""
_NO_KEY = ("Missing credentials", "api_key client option", "api_key must be set")
_TOO_LONG = "ContextWindowExceededError"
_TOO_LONG_SIGNS = ("maximum context length", "exceeds the available context size", "prompt is too long")
"""What OpenAI and vLLM, llama.cpp, and Anthropic say where litellm makes another error of it."""
_RETRYABLE_REQUEST_STATUSES = frozenset({408, 409, 425, 429})
_UNAVAILABLE: Mapping[int, type[ModelUnavailableError]] = {
    408: ModelTimeoutError,
    429: ModelOverloadedError,
    503: ModelOverloadedError,
    529: ModelOverloadedError,
}
"""What a status says beyond that a retry may help; 529 is Anthropic's "overloaded"."""
_DETAIL_LIMIT = 500
_KEY_NAMES = {
    "bedrock": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "together_ai": "TOGETHERAI_API_KEY",
    "vertex_ai": "GOOGLE_APPLICATION_CREDENTIALS",
}
"""Where the variable's name does not follow from the provider's."""


def missing_key_error(names: str, secret: str = "") -> ModelRefusedError:
    """Return the error for a call that cannot be made for want of these environment variables, or of the tenant's secret."""
    instead = f"set the tenant's secret {secret}, or " if secret else ""
    return ModelRefusedError(
        f"no key for this model: {instead}set {names} in the environment of the runtime and start it again"
    )


def translate(
    error: Exception, *, provider: str, timeout: float, key: str = ""
) -> ModelUnavailableError | ModelRefusedError:
    """Return what the engine should raise for an error of litellm, with the provider's own words in its message.

    `provider` is litellm's name for it; empty when litellm found none for the model. `key`: where the key is, if not in the provider's
    variable.
    """
    status = getattr(error, "status_code", None)
    detail = _detail(error)
    if any(sign in detail for sign in _NO_KEY):
        return missing_key_error(_key_name(provider))
    if not provider:
        return ModelRefusedError("litellm knows no provider for it; write provider/model, such as openai/gpt-4o")
    if type(error).__name__ == _TOO_LONG or any(sign in detail for sign in _TOO_LONG_SIGNS):
        return ContextWindowExceededError(f"the prompt is longer than the model takes: {detail}")
    if isinstance(status, int) and 400 <= status < 500 and status not in _RETRYABLE_REQUEST_STATUSES:
        match status:
            case 401 | 403:
                why = f"the provider refused the key ({status}): {detail}; check {key or _key_name(provider)}"
            case 404:
                why = f"the provider has no such model (404): {detail}; check its name in agent.yaml"
            case _:
                why = f"the provider rejected the request ({status}): {detail}"
        return ModelRefusedError(why)
    kind = _UNAVAILABLE.get(status, ModelUnavailableError) if isinstance(status, int) else ModelUnavailableError
    return kind(_unavailable(error, status, detail, timeout), _retry_after(error))


def _unavailable(error: Exception, status: int | None, detail: str, timeout: float) -> str:
    if status == 408:
        return f"did not answer within {timeout:g} s: {detail}"
    if status == 429:
        return f"rate limited by the provider (429): {detail}"
    if status == 200 or _headers(error) is None:
        return f"no usable answer from the provider: {detail}"
    return f"the provider failed ({status}): {detail}"


def _key_name(provider: str) -> str:
    return _KEY_NAMES.get(provider, f"{provider.upper().replace('-', '_')}_API_KEY")


def _detail(error: Exception) -> str:
    """Return the provider's words; of a whole answer of the form `{"error": {"message": …}}` the message."""
    words = _TLS_OBJECT.sub("", " ".join(str(error).split()))
    text = _CLASS_NAMES.sub("", words.partition(" Original exception: ")[0])
    with suppress(orjson.JSONDecodeError, KeyError, TypeError):
        message = orjson.loads(text)["error"]["message"]
        text = " ".join(message.split()) if isinstance(message, str) and message else text
    return text if len(text) <= _DETAIL_LIMIT else text[: _DETAIL_LIMIT - 1] + "…"


def _headers(error: Exception) -> Mapping[str, str] | None:
    headers: Mapping[str, str] | None = getattr(error, "litellm_response_headers", None)
    return headers


def _retry_after(error: Exception) -> float | None:
    headers = _headers(error) or {}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    return None
