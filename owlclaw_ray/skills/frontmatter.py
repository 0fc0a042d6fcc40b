"""The frontmatter of a SKILL.md (agentskills.io) with the `owlclaw:` extension (R4)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from owlclaw_ray.domain.trigger import TriggerKind

NAME_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_as_list)]
Kinds = Annotated[tuple[TriggerKind, ...], BeforeValidator(_as_list)]


class Extension(BaseModel):
    """What OwlClaw adds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task_type: str = ""
    constraints: dict[str, Any] = Field(default_factory=dict)
    focus: Texts = ()
    trigger: Kinds = ()
    risk_level: Literal["low", "medium", "high", "critical"] = "low"
    requires_confirmation: bool = False
    prerequisites: Texts | dict[str, Any] = ()
    env: Texts | dict[str, Any] = ()


class Frontmatter(BaseModel):
    """All keys of the specification. Others are kept out with a warning, not refused: skills travel between products."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    name: Annotated[str, Field(min_length=1, max_length=64, pattern=NAME_PATTERN)]
    description: Annotated[str, Field(min_length=1, max_length=1024)]
    license: str = ""
    compatibility: Annotated[str, Field(max_length=500)] = ""
    metadata: dict[str, Any] = Field(default_factory=dict)
    allowed_tools: Annotated[str | tuple[str, ...], Field(alias="allowed-tools")] = ""
    owlclaw: Extension = Field(default_factory=Extension)
