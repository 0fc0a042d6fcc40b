"""The types of JSON, for the edges where data has no better shape."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonValue: TypeAlias = Any
"""None, bool, int, float, str, list of JsonValue, or dict of str to JsonValue (mypy has no use for the recursive form here)."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object."""
