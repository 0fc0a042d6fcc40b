"""From what a server answers to what a model is given (T4)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import TypeAlias

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.tools.failure import ToolFailureError

_MESSAGE_CHARACTERS = 1_500

Keep: TypeAlias = Callable[[int, str, bytes], JsonObject | None]
"""Stores block number N, of that media type: its reference, or None if it cannot be stored."""


def content_of(tool: str, answer: JsonObject, keep: Keep) -> JsonValue:
    """Return the content of a result in the form of the protocol: a lone text as text, structured content as it is, and
    everything else as a list of blocks with a `type`. Bytes become references, or are described where they cannot be stored.

    Raises ToolFailureError for results that say that they are errors: the server's words are the message.
    """
    blocks = [_block(index, each, keep) for index, each in enumerate(answer.get("content") or ())]
    structured = answer.get("structuredContent")
    if answer.get("isError"):
        said = "\n".join(block["text"] for block in blocks if block["type"] == "text").strip()
        others = [block for block in blocks if block["type"] != "text"]
        details = structured if structured is not None else (others or None)
        raise ToolFailureError(
            "execution_failed", _shortened(said) or f"{tool} failed and did not say why", details=details
        )
    if structured is not None:
        others = [block for block in blocks if block["type"] != "text"]
        return {"structured": structured, "content": others} if others else structured
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        return blocks[0]["text"]
    return blocks or None


def _block(index: int, block: JsonObject, keep: Keep) -> JsonObject:
    match block.get("type"):
        case "text":
            return {"type": "text", "text": str(block.get("text", ""))}
        case "image" | "audio" as kind:
            return {"type": kind, **_bytes(index, block.get("mimeType"), block.get("data"), keep)}
        case "resource":
            return _resource(index, block.get("resource") or {}, keep)
        case "resource_link":
            known = ("uri", "name", "title", "description", "mimeType", "size")
            return {"type": "resource_link", **{key: block[key] for key in known if block.get(key) is not None}}
        case kind:
            return {"type": str(kind), "note": "this kind of content is not known here"}


def _resource(index: int, resource: JsonObject, keep: Keep) -> JsonObject:
    about: JsonObject = {"type": "resource", "uri": str(resource.get("uri", ""))}
    if "blob" in resource:
        return about | _bytes(index, resource.get("mimeType"), resource["blob"], keep)
    return about | {"media_type": resource.get("mimeType") or "text/plain", "text": str(resource.get("text", ""))}


def _bytes(index: int, media_type: JsonValue, data: JsonValue, keep: Keep) -> JsonObject:
    about: JsonObject = {"media_type": str(media_type or "application/octet-stream")}
    try:
        content = base64.b64decode(str(data), validate=True)
    except (binascii.Error, ValueError):
        return about | {"note": "it is not valid base64"}
    about["size_bytes"] = len(content)
    reference = keep(index, about["media_type"], content)
    return about | ({"note": "its bytes are not kept"} if reference is None else {"artifact_ref": reference})


def _shortened(text: str) -> str:
    return text if len(text) <= _MESSAGE_CHARACTERS else f"{text[:_MESSAGE_CHARACTERS]}…"
