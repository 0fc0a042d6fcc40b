"""The client of `scripted:` models."""

from __future__ import annotations

from collections import OrderedDict

from owlclaw_ray.domain.model import ModelReply, ModelRequest
from owlclaw_ray.domain.tool import ToolCall
from owlclaw_ray.errors import ConfigurationError, ModelRefusedError, ModelUnavailableError
from owlclaw_ray.ids import ToolCallId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.models.scripted.library import PREFIX, ScriptLibrary
from owlclaw_ray.models.scripted.script import ScriptedRequest, ScriptError
from owlclaw_ray.models.scripted.templates import as_json

_REMEMBERED_FAILURES = 10_000


class ScriptedClient:
    """Answers from scripts. The same request gets the same reply, tool call ids included; only errors are counted.

    Replies say `scripted=True` and carry the full `scripted:…` name, so that nothing passes for a model that is none.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._library = ScriptLibrary()
        self._failures: OrderedDict[tuple[str, str, int], int] = OrderedDict()

    def serves(self, model: str) -> bool:
        """Return whether the name is `scripted:…`."""
        return model.startswith(PREFIX)

    async def load(self) -> None:
        """Nothing to load."""

    def check(self, model: str, base_dir: str) -> None:
        """Load the script, or raise ConfigurationError with everything that is wrong with it."""
        self._library.script(model, base_dir)

    async def complete(self, request: ModelRequest, model: str) -> ModelReply:
        """Answer after the script's latency. A script that is missing, malformed or has no answer is a refusal."""
        asked = ScriptedRequest(request)
        key = (model, request.run_id, asked.turn)
        if key in self._failures:
            asked = ScriptedRequest(request, attempt=1 + self._failures[key])
        try:
            reply = await self._library.script(model, request.base_dir).reply(asked)
        except (ConfigurationError, ScriptError) as error:
            raise ModelRefusedError(f"the script cannot answer: {error}") from error
        if reply.latency > 0:
            await self._clock.sleep(reply.latency)
        if reply.error is not None:
            self._failures[key] = self._failures.pop(key, 0) + 1
            if len(self._failures) > _REMEMBERED_FAILURES:
                self._failures.popitem(last=False)
            if reply.error.retryable:
                raise ModelUnavailableError(reply.error.message, reply.error.retry_after)
            raise ModelRefusedError(reply.error.message)
        self._failures.pop(key, None)
        calls = tuple(
            ToolCall(
                ToolCallId(derived_id("call", request.run_id, str(asked.turn), str(index))),
                call.name.replace(".", "__"),
                call.arguments if isinstance(call.arguments, str) else as_json(call.arguments),
            )
            for index, call in enumerate(reply.tool_calls)
        )
        return ModelReply(reply.text, calls, model, reply.usage, scripted=True)
