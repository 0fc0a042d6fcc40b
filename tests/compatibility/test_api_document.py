"""The HTTP API is what it was: `openapi.json` here is the document that clients were generated from, without its prose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.runtime.api import Runtime
from serve.api import build_api
from tests.serve.double import MemoryRuntime

PINNED = Path(__file__).with_name("openapi.json")
PROSE = {"description", "summary", "title"}
NAMED = {"properties", "schemas", "examples"}
"""Objects whose keys are names of the API, so that a field called `title` is no prose."""


def without_prose(node: object, under: str = "") -> object:
    """Leave out what only people read; of examples, the text of an error."""
    if isinstance(node, list):
        return [without_prose(each, under) for each in node]
    if not isinstance(node, dict):
        return node
    if under == "example":
        return {
            key: without_prose(value, under) for key, value in node.items() if key != "detail" or "type" not in node
        }
    inner = {"example": "example", "value": "example"}
    return {
        key: without_prose(value, inner.get(key, key))
        for key, value in node.items()
        if under in NAMED or key not in PROSE
    }


def leaves(node: object, place: str = "") -> dict[str, object]:
    """Return each value by its place in the document, so that a difference is one line."""
    if isinstance(node, dict) and node:
        return {at: leaf for key in node for at, leaf in leaves(node[key], f"{place}/{key}").items()}
    if isinstance(node, list) and node:
        return {at: leaf for index, each in enumerate(node) for at, leaf in leaves(each, f"{place}/{index}").items()}
    return {place: node}


def test_the_document_differs_from_the_pinned_one_in_prose_alone():
    clock = SystemClock()
    api = build_api(cast("Runtime", MemoryRuntime(clock)), clock=clock, body_limit_bytes=10_000)

    pinned, present = leaves(json.loads(PINNED.read_text())), leaves(without_prose(api.openapi()))

    assert {place: leaf for place, leaf in pinned.items() if present.get(place, "missing") != leaf} == {}
    assert sorted(present.keys() - pinned.keys()) == []
