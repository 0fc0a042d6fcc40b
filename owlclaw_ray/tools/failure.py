"""Failures of tools that the model can act on."""

from __future__ import annotations

from typing import Any

from owlclaw_ray.domain.json import JsonValue
from owlclaw_ray.errors import ToolExecutionError


class ToolFailureError(ToolExecutionError):
    """A tool could not do what it was asked. Becomes the error of the call's result: `type`, message and details as given."""

    def __init__(self, type_: str, message: str, *, retryable: bool = False, details: JsonValue = None) -> None:
        self.type, self.retryable, self.details = type_, retryable, details
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, (self.type, str(self), self.retryable, self.details))


def _restored(type_: str, message: str, retryable: bool, details: JsonValue) -> ToolFailureError:  # noqa: FBT001 (pickle passes by position)
    return ToolFailureError(type_, message, retryable=retryable, details=details)
