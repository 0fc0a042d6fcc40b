"""Which models are for which types of tasks, as settings and definitions write it (G6)."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field

from owlclaw_ray.domain.trigger import MAX_TASK_TYPE

_Model: TypeAlias = Annotated[str, Field(min_length=1, pattern=r"^\S+$")]


def _chain(written: Any) -> Any:
    return [written] if isinstance(written, str) else written


TaskType: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_TASK_TYPE)]
Chain: TypeAlias = Annotated[tuple[_Model, ...], BeforeValidator(_chain), Field(min_length=1)]
"""A model, or a list of one and its fallbacks."""
Routes: TypeAlias = dict[TaskType, Chain]
