"""The file of a declarative tool: its fields, and nothing else."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.tools.declarative.options import OUTPUT_BYTES

_NonEmpty = Annotated[str, Field(min_length=1)]
_Bytes = Annotated[int, Field(ge=1, le=10 * 1024 * 1024)]


class ToolFile(BaseModel):
    """What a file may say."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: _NonEmpty
    """Canonical, with a dot."""
    description: _NonEmpty
    input_schema: JsonObject
    permission: Literal["readonly", "write"]
    tags: list[_NonEmpty] = []
    command_type: Literal["exec"] = "exec"
    command: _NonEmpty
    """The program; with a slash in it, from the file's folder on. No shell reads it."""
    args: list[str] = []
    """May hold `{{field}}`."""
    working_dir: _NonEmpty | None = None
    env_allowlist: list[str] = []
    timeout_ms: Annotated[int, Field(ge=1)] | None = None
    stdout_limit_bytes: _Bytes = OUTPUT_BYTES
    stderr_limit_bytes: _Bytes = OUTPUT_BYTES


class WrittenError(BaseModel):
    """An error, as a program writes it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    type: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")] = "execution_failed"
    message: str
    retryable: bool = False
    details: object = None


class WrittenResult(BaseModel):
    """A result, as a program writes it to its stdout."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tool_call_id: str | None = None
    """Not needed: the result belongs to the call that the program was started for."""
    content: object = None
    is_error: bool = False
    error: WrittenError | None = None
    metadata: JsonObject = {}
