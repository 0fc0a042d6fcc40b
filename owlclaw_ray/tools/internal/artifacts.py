"""ArtifactTools: an agent reads on in a result that was too large for it (T9)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from owlclaw_ray.domain.artifact import JSON, TEXT
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool import Effect, Permission, ToolClass, ToolDefinition
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import ArtifactId
from owlclaw_ray.tools.artifact_home import ArtifactHome
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.internal.parts import PART_BYTES, Part
from owlclaw_ray.tools.large_output import INLINE_LIMIT
from owlclaw_ray.tools.signature import arguments_of_model

READ_ARTIFACT = "internal.read_artifact"


class ReadArtifact(Part):
    """Arguments of internal.read_artifact."""

    artifact_id: Annotated[str, Field(max_length=64, description="The artifact_id of an artifact_ref in a result.")]


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
            found = self._artifacts.get(invocation.agent, ArtifactId(asked.artifact_id))
        except NotFoundError as error:
            what = f"you have no artifact {asked.artifact_id!r}: it may be too old, or the id is not one of an artifact_ref"
            raise ToolFailureError("not_found", what) from error
        if found.media_type not in {TEXT, JSON}:
            what = f"{asked.artifact_id} is {found.media_type}, {len(found.content)} bytes long, and no text"
            raise ToolFailureError("binary_artifact", what)
        text = found.content.decode("utf-8", "replace")
        return {"artifact_id": found.artifact_id, "media_type": found.media_type, **asked.of(text)}
