"""ArtifactTools: an agent reads on in a result that was too large for it (T9)."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import Field

from owlclaw_ray.domain.artifact import JSON, TEXT
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool import Effect, Permission, ToolClass, ToolDefinition
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import ArtifactId
from owlclaw_ray.tools.artifact_home import ArtifactHome, ArtifactReader
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.internal.parts import PART_BYTES, Part
from owlclaw_ray.tools.large_output import INLINE_LIMIT
from owlclaw_ray.tools.signature import arguments_of_model

READ_ARTIFACT = "internal.read_artifact"
_CHARACTER_BYTES = 4
"""Of UTF-8, at most."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""A byte that is no part of a character."""


class ReadArtifact(Part):
    """Arguments of internal.read_artifact."""

    artifact_id: Annotated[str, Field(max_length=64, description="The artifact_id of an artifact_ref in a result.")]
    offset: Annotated[
        int, Field(ge=0, description="Where to begin: 0, the next_offset of a part that was read, or any byte.")
    ] = 0


class ArtifactTools:
    """Implements ToolAdapter. Reads the artifacts of the calling agent; those of others do not exist for it."""

    source: ClassVar[str] = "the artifact tools"

    def __init__(self, artifacts: ArtifactHome) -> None:
        self._artifacts = artifacts

    @staticmethod
    def definitions() -> tuple[ToolDefinition, ...]:
        """See ToolSource.definitions."""
        return (
            ToolDefinition(
                READ_ARTIFACT,
                "Read a part of one of your results that was too large, by the artifact_id of its artifact_ref. "
                "Goes on at next_offset.",
                arguments_of_model(ReadArtifact, READ_ARTIFACT).schema,
                Permission.READONLY,
                Effect.PURE,
                ToolClass.QUICK,
                tags=frozenset({"internal", "readonly"}),
                metadata={INLINE_LIMIT: PART_BYTES},
            ),
        )

    def run(self, invocation: ToolInvocation) -> JsonObject:
        """See ToolAdapter.run."""
        (asked,) = arguments_of_model(ReadArtifact, READ_ARTIFACT).read(READ_ARTIFACT, invocation.arguments).positional
        assert isinstance(asked, ReadArtifact)
        try:
            found = self._artifacts.open(invocation.agent, ArtifactId(asked.artifact_id))
            return _part(found, asked)
        except NotFoundError as error:
            what = f"you have no artifact {asked.artifact_id!r}: it may be too old, or the id is not one of an artifact_ref"
            raise ToolFailureError("not_found", what) from error


def _part(found: ArtifactReader, asked: ReadArtifact) -> JsonObject:
    """Return the part, of which no more is read than it may have, however long the artifact is."""
    if found.media_type not in {TEXT, JSON}:
        what = f"{found.artifact_id} is {found.media_type}, {found.size_bytes} bytes long, and no text"
        raise ToolFailureError("binary_artifact", what)
    first = max(asked.offset - _CHARACTER_BYTES + 1, 0)
    read = found.read(first, asked.offset + _CHARACTER_BYTES * asked.limit)
    begin = asked.offset - first
    # An offset within a character, which is none that was given, is that of the character.
    while 0 < begin < len(read) and read[begin] & 0xC0 == 0x80:
        begin -= 1
    text = read[begin:].decode("utf-8", "surrogateescape")[: asked.limit]
    end = first + begin + len(text.encode("utf-8", "surrogateescape"))
    return {
        "artifact_id": found.artifact_id,
        "media_type": found.media_type,
        "text": _SURROGATE.sub("\ufffd", text),
        "total_bytes": found.size_bytes,
        "next_offset": end if text and end < found.size_bytes else None,
    }
