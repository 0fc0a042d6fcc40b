"""Large results become artifacts: the model gets a summary and a reference (T9)."""

from __future__ import annotations

import logging

import orjson
from msgspec.structs import replace

from owlclaw_ray.counting import counted
from owlclaw_ray.domain.artifact import JSON, TEXT, Artifact
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.tool import ToolResult
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.errors import ArtifactTooLargeError, QuotaReachedError, RetryableError
from owlclaw_ray.ids import ArtifactId, derived_id
from owlclaw_ray.tools.artifact_home import ArtifactHome
from owlclaw_ray.tools.bounded_text import BoundedText
from owlclaw_ray.tools.json_result import within_limit

INLINE_BYTES = 16 * 1024
"""How much of one result a model is given as it is, unless the tool's definition says otherwise."""
INLINE_LIMIT = "inline_limit_bytes"
"""The key of a definition's metadata with another limit, for tools that bound their results themselves."""
_SUMMARY_BYTES = 8 * 1024
_TEXT_BYTES = 1_024
_ITEMS = 20

_logger = logging.getLogger(__name__)


class LargeOutput:
    """Makes results fit. Without a store, and when it fails, they are cut instead."""

    def __init__(self, artifacts: ArtifactHome | None) -> None:
        self._artifacts = artifacts

    def fitted(self, invocation: ToolInvocation, result: ToolResult, limit: int) -> ToolResult:
        """Return the result with its content, and the details of its error, within `limit` bytes or a summary of them.

        Metadata beyond INLINE_BYTES is a summary too.
        """
        content, about_content = self._within(invocation, "content", result.content, limit)
        short = bounded(result.metadata)
        metadata = {**(short if isinstance(short, dict) else {"summary": short}), **about_content}
        error = result.error
        if error is not None and error.details is not None:
            details, about_details = self._within(invocation, "details", error.details, limit)
            error, metadata = replace(error, details=details), {**metadata, **about_details}
        return replace(result, content=content, error=error, metadata=metadata)

    def _within(
        self, invocation: ToolInvocation, part: str, value: JsonValue, limit: int
    ) -> tuple[JsonValue, JsonObject]:
        encoded = value.encode() if isinstance(value, str) else orjson.dumps(value)
        if len(encoded) <= limit:
            return value, {}
        if self._artifacts is None:
            return within_limit(value)
        artifact_id = ArtifactId(derived_id("art", invocation.idempotency_key, part))
        most = self._artifacts.most_bytes
        whole_json = not isinstance(value, str) and len(encoded) <= most
        artifact = Artifact(artifact_id, JSON if whole_json else TEXT, encoded[:most])
        try:
            self._artifacts.put(invocation.agent, artifact)
        except ArtifactTooLargeError as error:
            cut, about = within_limit(value)
            return cut, {**about, "not_stored": f"{error}; ask for less, or have somebody raise that setting"}
        except QuotaReachedError as error:
            cut, about = within_limit(value)
            return cut, {**about, "not_stored": f"{error}; ask for less"}
        except (OSError, RetryableError) as error:
            _logger.exception("the output of %s (run %s) cannot be stored", invocation.tool, invocation.run_id)
            cut, about = within_limit(value)
            why = str(error) if isinstance(error, RetryableError) else "there is no room, or no right to write there"
            return cut, {**about, "not_stored": f"{why}; ask for less, or for the same later"}
        reference = {"artifact_id": artifact_id, "size_bytes": len(encoded)}
        if len(encoded) > most:
            reference["stored_bytes"] = most
        about = {"truncated": True, "total_bytes": len(encoded), "artifact_id": artifact_id}
        return {"summary": summary(value), "artifact_ref": reference}, about


def summary(value: JsonValue) -> JsonValue:
    """Return what is small in a value, and beginning and end of what is not: a valid JSON value of a bounded size."""
    short = _shortened(value, _SUMMARY_BYTES if isinstance(value, str) else _TEXT_BYTES)
    encoded = orjson.dumps(short)
    return short if isinstance(value, str) or len(encoded) <= _SUMMARY_BYTES else _ends(encoded, _SUMMARY_BYTES)


def bounded(value: JsonValue) -> JsonValue:
    """Return a value of up to INLINE_BYTES as it is, and a summary of a larger one."""
    return value if len(orjson.dumps(value)) <= INLINE_BYTES else summary(value)


def _shortened(value: JsonValue, text_bytes: int) -> JsonValue:
    if isinstance(value, str):
        encoded = value.encode()
        return value if len(encoded) <= text_bytes else _ends(encoded, text_bytes)
    if isinstance(value, list):
        kept = [_shortened(each, text_bytes) for each in value[:_ITEMS]]
        return kept if len(value) <= _ITEMS else [*kept, f"…[{counted(len(value) - _ITEMS, 'more item')}]"]
    if isinstance(value, dict):
        items = list(value.items())
        kept_items = {key: _shortened(each, text_bytes) for key, each in items[:_ITEMS]}
        return kept_items if len(items) <= _ITEMS else {**kept_items, "…": f"[{len(items) - _ITEMS} more keys]"}
    return value


def _ends(encoded: bytes, limit: int) -> str:
    text = BoundedText(limit)
    text.add(encoded)
    return text.text()
