"""Every provider that litellm knows."""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import os
import warnings
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from msgspec import Struct, field

from owlclaw_ray.configuration.placeholders import filled, names_in
from owlclaw_ray.domain.embedding import EmbeddingReply, EmbeddingRequest
from owlclaw_ray.domain.endpoint import KEYLESS, Endpoint, endpoint_of
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.model import ContextWindow, ModelReply, ModelRequest, Price
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.errors import ModelRefusedError, ModelUnavailableError, OwlClawError
from owlclaw_ray.models.litellm_errors import missing_key_error, translate
from owlclaw_ray.models.litellm_prices import price_in
from owlclaw_ray.models.openai_form import decode_tools, messages, unique_calls
from owlclaw_ray.models.tenant_keys import TenantKeys
from owlclaw_ray.models.tokens import estimate_tokens

logger = logging.getLogger(__name__)

_OWN_ADDRESSES = (*KEYLESS, "azure")
"""Providers that have an address for each customer anyway: what their variables say is meant for it."""
_NO_KEY = "none"
"""What servers get that want none: clients send no request without a key."""

_ONE_ATTEMPT = {"num_retries": 0, "max_retries": 0, "drop_params": True}
"""The gateway retries, not litellm."""
_OWN_HTTP_CLIENT = "EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER"
_CONNECTIONS = {"AIOHTTP_CONNECTOR_LIMIT": "100000", "AIOHTTP_CONNECTOR_LIMIT_PER_HOST": "0"}
"""No bound of litellm's own: a call that waits for a connection there spends its own time."""
_OPENAI_CLIENT_ONLY = ("OPENAI_ORGANIZATION", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
"""What OpenAI's client sends with each call, and litellm's own HTTP client does not."""

Call: TypeAlias = tuple[str | None, str, str]
"""Id (None or empty if the provider gave none), name, arguments."""


class BrokenStreamError(Exception):
    """The stream ended before the model did; what came of it must not pass for a reply."""


class ReplyParts(Struct):
    """The parts of a reply that matter, `usage` in litellm's own form."""

    text: str = ""
    calls: list[Call] = field(default_factory=list)
    usage: Any = None
    model: str = ""
    """As the provider calls it."""


class LiteLLMClient:
    """Asks any model whose name is not `scripted:…`; keys and addresses come from the request's endpoints, else from variables.

    Where an endpoint names a secret and the request's tenant has it, that is the key. It is taken out of replies and errors.

    litellm takes seconds to import: that happens in a thread, in `load` or with the first call. One event loop per client.
    """

    def serves(self, model: str) -> bool:
        """Return whether the name is a litellm model name."""
        return not model.startswith("scripted:")

    def __init__(self, keys: TenantKeys | None = None) -> None:
        self._keys = keys
        self._litellm: Any = None
        self._loading = asyncio.Lock()

    async def load(self) -> None:
        """See ModelClient.load."""
        if self._litellm is not None:
            return
        async with self._loading:
            if self._litellm is None:
                try:
                    self._litellm = await asyncio.to_thread(_warmed_up)
                except ImportError as error:
                    raise ModelRefusedError(f"litellm cannot be imported: {error}") from error

    def missing_key(self, model: str, endpoint: Endpoint | None = None) -> str | None:
        """Return the environment variables that the model lacks (`GOOGLE_API_KEY or GEMINI_API_KEY`), or None.

        Looks at the environment only. None is no proof: the key may be wrong, and machine identities are not looked at.
        Imports litellm if that has not happened yet.
        """
        return _missing_key(load_litellm(), model, endpoint)

    async def complete(self, request: ModelRequest, model: str) -> ModelReply:
        """Ask the model once; see ModelClient for the errors. Cancelling closes the connection to the provider."""
        await self.load()
        litellm = self._litellm
        endpoint = endpoint_of(model, request.model.endpoints)
        own = "" if self._keys is None else await self._keys.key(request.tenant, endpoint)
        missing = _missing_key(litellm, model, endpoint, own)
        if missing is not None:
            raise missing_key_error(missing, "" if endpoint is None else endpoint.key_secret)
        _choose_http_client(litellm, model)
        try:
            parts = await _collected(await litellm.acompletion(**_arguments(request, model), **_at(endpoint, own)))
        except Exception as error:
            told = self._told(error, model, request.timeout, endpoint, own)
            if own:
                raise told from None
            raise told from error
        if own and self._keys is not None:
            parts.text = self._keys.read.hidden(parts.text)
            parts.calls = [(call_id, name, self._keys.read.hidden(said)) for call_id, name, said in parts.calls]
        return ModelReply(parts.text, unique_calls(request, parts.calls), model, _usage(litellm, parts, model))

    async def embed(self, request: EmbeddingRequest) -> EmbeddingReply:
        """Ask an embedding model once; see EmbeddingClient for the errors."""
        await self.load()
        litellm = self._litellm
        endpoint = request.endpoint
        own = "" if self._keys is None else await self._keys.key(request.tenant, endpoint)
        missing = _missing_key(litellm, request.model, endpoint, own)
        if missing is not None:
            raise missing_key_error(missing, "" if endpoint is None else endpoint.key_secret)
        try:
            response = await litellm.aembedding(
                model=request.model,
                input=list(request.texts),
                encoding_format="float",
                timeout=request.timeout,
                **_ONE_ATTEMPT,
                **_at(endpoint, own),
            )
        except Exception as error:
            told = self._told(error, request.model, request.timeout, endpoint, own)
            if own:
                raise told from None
            raise told from error
        vectors = _vectors(response, len(request.texts))
        try:
            cost = float(litellm.completion_cost(response, model=request.model, call_type="aembedding"))
        except Exception:  # noqa: BLE001 - as for completions: the price is unknown
            cost = 0.0
        tokens = getattr(getattr(response, "usage", None), "prompt_tokens", None) or 0
        return EmbeddingReply(vectors, Usage(prompt_tokens=tokens, cost=cost))

    def _told(self, error: Exception, model: str, timeout: float, endpoint: Endpoint | None, own: str) -> OwlClawError:
        """Return what became of a call, without the tenant's own key."""
        name = f"the tenant's secret {endpoint.key_secret}" if own and endpoint is not None else ""
        told = translate(error, provider=_provider(self._litellm, model), timeout=timeout, key=name)
        if own and self._keys is not None:
            told.args = (self._keys.read.hidden(str(told)),)
        return told

    async def count_tokens(self, model: str, texts: Sequence[str]) -> Sequence[int]:
        """See TokenCounter: litellm's tokenizer for the model, of those that come with it. No network is used."""
        try:
            await self.load()
            return [int(self._litellm.token_counter(model=model, text=text)) for text in texts]
        except Exception as error:  # noqa: BLE001 - a tokenizer that fails is none; a run goes on without
            logger.warning("tokens for %s are estimated: its tokenizer failed: %s", model, error)
            return [estimate_tokens(text) for text in texts]

    async def context_window(self, model: str) -> ContextWindow | None:
        """See TokenCounter: what litellm's table says. No network is used."""
        await self.load()
        table: Mapping[str, JsonObject] = self._litellm.model_cost
        found = table.get(model) or table.get(model.partition("/")[2]) or {}
        tokens = found.get("max_input_tokens")
        return ContextWindow(int(tokens), found.get("max_output_tokens")) if tokens else None

    async def price(self, model: str) -> Price | None:
        """See TokenCounter: what litellm's table says. No network is used."""
        await self.load()
        return price_in(self._litellm.model_cost, model)

    async def close(self) -> None:
        """Close the connections that litellm keeps open, those of other clients in this process too."""
        if self._litellm is not None:
            await self._litellm.close_litellm_async_clients()
            self._litellm.in_memory_llm_clients_cache.flush_cache()


def load_litellm() -> Any:
    """Return litellm, imported under the settings that it reads only then: a plain import before this one has others."""
    # setdefault: without the local price list litellm fetches one over the network while it is imported
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # noqa: TID251 (litellm has no other switch for it)
    if not any(os.environ.get(name) for name in _OPENAI_CLIENT_ONLY):  # noqa: TID251
        # litellm's own HTTP client instead of OpenAI's, which takes as much CPU again to copy messages and tools
        os.environ.setdefault(_OWN_HTTP_CLIENT, "True")  # noqa: TID251 (no other switch)
    for name, value in _CONNECTIONS.items():
        os.environ.setdefault(name, value)  # noqa: TID251 (read when it is imported)
    litellm: Any = importlib.import_module("litellm")
    if not litellm.suppress_debug_info:
        litellm.suppress_debug_info = True
        litellm.disable_hf_tokenizer_download = True
        litellm.DEFAULT_MAX_RETRIES = 0  # its embeddings take max_retries=0 for no wish, and retry beside the gateway
        # after each answer of Ollama's it asks that server again, in a call that blocks the event loop, for prices that are zero
        importlib.import_module("litellm.llms.ollama.common_utils").OllamaModelInfo.get_model_info = lambda *_, **__: (
            None
        )
        litellm.success_callback, litellm.failure_callback, litellm.callbacks = [], [], []
        logging.getLogger("LiteLLM").setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", "Item 'summary' on TypedDict", UserWarning)
    return litellm


def _warmed_up() -> Any:
    """Return litellm after a call that reaches no network: it and the OpenAI client load much of themselves only then."""
    litellm = load_litellm()
    importlib.import_module("openai.resources")
    tool = {"type": "function", "function": {"name": "none", "description": "", "parameters": {"type": "object"}}}
    question = {"role": "user", "content": ""}
    litellm.completion(model="openai/gpt-4o", messages=[question], tools=[tool], mock_response="ok")
    return litellm


def _missing_key(litellm: Any, model: str, endpoint: Endpoint | None, own: str = "") -> str | None:
    if endpoint is not None:
        texts = ("" if own else endpoint.api_key, *(value for _, value in endpoint.headers))
        variables = dict.fromkeys(name for text in texts for name in names_in(text))
        unset = [name for name in variables if not os.environ.get(name)]  # noqa: TID251 (keys are nowhere else)
        if unset or own or endpoint.api_key or (endpoint.api_base and not endpoint.provider.startswith(_OWN_ADDRESSES)):
            return " and ".join(unset) or None
    names: list[str] = litellm.validate_environment(model)["missing_keys"]
    if endpoint is not None:
        said = (("_API_BASE", endpoint.api_base), ("_API_VERSION", endpoint.api_version))
        names = [each for each in names if not any(value and each.endswith(ending) for ending, value in said)]
        names = [each for each in names if not os.environ.get(each)]  # noqa: TID251 (litellm names all if one is missing)
    keys = [name for name in names if name.endswith("_API_KEY")]
    if not keys or model.startswith(KEYLESS):
        return None
    alternatives = keys == names and len(keys) > 1
    return (" or " if alternatives else " and ").join(names)


def _at(endpoint: Endpoint | None, own: str = "") -> JsonObject:
    """Return the arguments for the endpoint. An address gets only the key that is configured with it, those of customers aside.

    `own` is the tenant's, and goes before that of the runtime.
    """
    if endpoint is None:
        return {}
    environ = os.environ  # noqa: TID251 (keys are nowhere else)
    key = own or filled(endpoint.api_key, environ)
    if endpoint.api_base and not endpoint.provider.startswith(_OWN_ADDRESSES):
        key = key or _NO_KEY
    said: JsonObject = {
        "api_base": endpoint.api_base,
        "api_key": key,
        "api_version": endpoint.api_version,
        "extra_headers": {name: filled(value, environ) for name, value in endpoint.headers},
    }
    return {name: value for name, value in said.items() if value}


@functools.cache
def _choose_http_client(litellm: Any, model: str) -> None:
    """Have OpenAI's client ask from now on if the model's provider is one of those that merely speak OpenAI's protocol.

    litellm's own client cannot ask all of these.
    """
    provider = _provider(litellm, model)
    config = None
    if provider == "openai" or provider not in litellm.openai_compatible_providers:
        with suppress(ValueError):
            known = litellm.LlmProviders(provider)
            config = litellm.ProviderConfigManager.get_provider_chat_config(model=model, provider=known)
    if config is None:
        os.environ[_OWN_HTTP_CLIENT] = "False"  # noqa: TID251 (no other switch; it is read with each call)


def _provider(litellm: Any, model: str) -> str:
    try:
        return str(litellm.get_llm_provider(model)[1])
    except litellm.BadRequestError:
        return ""


def _arguments(request: ModelRequest, model: str) -> JsonObject:
    arguments: JsonObject = {
        "model": model,
        "messages": messages(request),
        "timeout": request.timeout,
        **_ONE_ATTEMPT,
    }
    if tools := decode_tools(request.tools):
        arguments["tools"] = tools
    if request.model.temperature is not None:
        arguments["temperature"] = request.model.temperature
    if request.model.max_tokens is not None:
        arguments["max_tokens"] = request.model.max_tokens
    if request.model.stream:
        arguments |= {"stream": True, "stream_options": {"include_usage": True}}
    return arguments


async def _collected(response: Any) -> ReplyParts:
    """Return the parts of a whole response, or of a stream after reading it to its end. Raises BrokenStreamError."""
    if hasattr(response, "choices"):
        message = response.choices[0].message
        calls = [
            (each.id, each.function.name or "", each.function.arguments or "") for each in message.tool_calls or ()
        ]
        return ReplyParts(message.content or "", calls, getattr(response, "usage", None), response.model or "")
    parts = ReplyParts()
    texts: list[str] = []
    begun: list[tuple[str | None, str, list[str]]] = []
    arguments: dict[int, list[str]] = {}
    async for chunk in response:
        parts.usage = getattr(chunk, "usage", None) or parts.usage
        parts.model = chunk.model or parts.model
        for choice in chunk.choices:
            texts.append(choice.delta.content or "")
            for delta in choice.delta.tool_calls or ():
                index, name = delta.index or 0, delta.function.name
                # a second name at an index begins another call, as some servers send it
                if name or index not in arguments:
                    arguments[index] = []
                    begun.append((delta.id, name or "", arguments[index]))
                arguments[index].append(delta.function.arguments or "")
    if getattr(response, "received_finish_reason", "unknown") is None:
        raise BrokenStreamError("the stream ended in the middle of the reply")
    parts.text = "".join(texts)
    parts.calls = [(call_id, name, "".join(pieces)) for call_id, name, pieces in begun]
    return parts


def _vectors(response: Any, texts: int) -> tuple[Sequence[float], ...]:
    """Return the vectors in the order of the texts; raises ModelUnavailableError unless there is one a text, all of one length."""
    try:
        by_index = {int(each["index"]): array("f", each["embedding"]) for each in response.data}
        vectors = tuple(by_index[index] for index in range(texts))
    except (KeyError, TypeError, ValueError) as error:
        raise ModelUnavailableError(f"the answer is not one vector a text: {type(error).__name__}: {error}") from error
    if len({len(vector) for vector in vectors}) > 1 or not all(vectors):
        raise ModelUnavailableError("the answer has vectors of different lengths, or empty ones")
    return vectors


def _usage(litellm: Any, parts: ReplyParts, model: str) -> Usage:
    usage = parts.usage
    if usage is None:
        return Usage()
    priced: Any = litellm.ModelResponse(model=parts.model or model, usage=usage)
    try:
        cost = float(litellm.completion_cost(priced, model=model))
    except Exception:  # noqa: BLE001 (an unlisted model raises a plain Exception; its price is unknown, not an error)
        listed = price_in(litellm.model_cost, model)
        cost = 0.0 if listed is None else listed.cost(usage.prompt_tokens, usage.completion_tokens)
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None) or 0
    return Usage(usage.prompt_tokens, usage.completion_tokens, cached, cost)
