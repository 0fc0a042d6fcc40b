"""What a model was shown before it said what it said: each part of the prompt, where it comes from, and how much room it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import orjson
from msgspec import Struct, to_builtins
from starlette.requests import Request
from starlette.responses import Response

from console.entries import was_asked
from console.pages import Pages, page
from console.runs import run_of
from console.text import brief, bytes_of, json_text, pretty
from console.withheld import withheld_from
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.models.tokens import estimate_tokens
from owlclaw_ray.runs.prompt_view import PromptPart, PromptView, prompt_view
from serve.parameters import principal_of

_WIDTH = 1_000.0
_WHOLE_JOURNAL = 1_000_000
_MESSAGES = 40
"""How many of the last messages are shown."""
_MOST_TOOL = 600


class BarSegment(Struct, frozen=True):
    """A part of a prompt in a picture of all of it."""

    part: PromptPart
    x: float
    width: float
    percent: float


class OfferedTool(Struct, frozen=True):
    """A tool as a model was told of it."""

    name: str
    description: str
    tokens: int


def segments(parts: Iterable[PromptPart]) -> list[BarSegment]:
    """Return the parts beside each other, as wide as their tokens."""
    told = [each for each in parts if each.tokens]
    total, place, found = sum(each.tokens for each in told), 0, list[BarSegment]()
    for each in told:
        width = _WIDTH * each.tokens / total
        found.append(BarSegment(each, round(_WIDTH * place / total, 2), round(width, 2), 100 * each.tokens / total))
        place += each.tokens
    return found


class PromptPages(Pages):
    """`/console/runs/{run_id}/entries/{seq}/prompt`."""

    place: ClassVar[str] = "runs"

    @page("GET /console/runs/{run_id}/entries/{seq}/prompt", "runs:read", "plain")
    async def console_prompt(self, request: Request) -> Response:
        """Show what the model was shown of which an entry is the answer, or says that there is none.

        It has the agent's own texts, so whoever sees it may read agents.
        """
        run = await run_of(self._runtime, request, request.path_params["run_id"])
        principal_of(request).require("agents:read")
        text = request.path_params["seq"]
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise NotFoundError("entry", text)
        tenant, seq = run.agent.tenant, int(text)
        entries = await self._runtime.journal(tenant, run.run_id, seq + 1, _WHOLE_JOURNAL)
        reply = next((each for each in entries[-1:] if each.seq == seq and was_asked(each)), None)
        if reply is None:
            raise NotFoundError("reply", text)
        view = prompt_view(entries, await self._runtime.prompt_texts(tenant, run.run_id), seq)
        if view is None:
            raise NotFoundError("prompt of the reply", text)
        if request.query_params.get("plain"):
            return Response(bytes_of(pretty(_plain(view))), media_type="text/plain; charset=utf-8")
        schemas = next((each.text for each in view.parts if each.kind.value == "tools"), "")
        return await self.shown(
            request,
            "prompt.html",
            run=run,
            reply=reply,
            model=str(reply.data.get("model") or _last_asked(entries) or view.built.data.get("model", "")),
            error=_error_of(reply),
            view=view,
            bar=segments(view.parts),
            counted=(reply.data.get("usage") or {}).get("prompt_tokens", 0),
            cached=(reply.data.get("usage") or {}).get("cached_tokens", 0),
            tools=shown_tools(schemas),
            failed=_failed_before(entries[:-1]),
            messages=view.messages[-_MESSAGES:],
            left_out=max(0, len(view.messages) - _MESSAGES),
            withheld=await withheld_from(self._runtime, principal_of(request), run),
        )


def _plain(view: PromptView) -> JsonObject:
    """Return all of it."""
    return {
        "parts": [{"title": each.title, "tokens": each.tokens, "text": each.text} for each in view.parts],
        "messages": to_builtins(view.messages),
    }


def shown_tools(schemas: str) -> list[OfferedTool]:
    """Return the tools of these schemas, the longest first."""
    try:
        told: list[JsonObject] = orjson.loads(schemas or "[]")
    except orjson.JSONDecodeError:
        return []
    functions = [(each.get("function") or each, json_text(each)) for each in told]
    found = [
        OfferedTool(
            str(each.get("name", "")), brief(str(each.get("description", "")), _MOST_TOOL), estimate_tokens(text)
        )
        for each, text in functions
    ]
    return sorted(found, key=lambda each: (-each.tokens, each.name))


def _last_asked(entries: Sequence[JournalEntry]) -> str:
    """Return the model that was to be asked next after the last attempt that failed, empty if none did."""
    failed = _failed_before(entries)
    return str(failed[-1].get("next_model", "")) if failed else ""


def _error_of(reply: JournalEntry) -> str:
    """Return why nothing came of asking, empty if something did."""
    error = reply.data.get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else str(error or "")


def _failed_before(entries: Sequence[JournalEntry]) -> list[JsonObject]:
    """Return the attempts that failed after the last reply, in their order."""
    failed: list[JsonObject] = []
    for each in reversed(entries):
        if each.kind is EntryKind.MODEL_REPLIED:
            break
        if each.kind is EntryKind.MODEL_ATTEMPT_FAILED:
            failed.append(each.data)
    return failed[::-1]
