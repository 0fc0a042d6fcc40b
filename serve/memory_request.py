"""The bodies of requests about memories, checked by hand so that everything wrong is said at once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from msgspec import Struct

from owlclaw_ray.errors import Problem
from owlclaw_ray.ids import MemoryId
from serve.errors import InvalidRequestError
from serve.json_body import read_json
from serve.shapes import ID, NOT_BLANK, Text

CONTENT = Text(2_000, 1, NOT_BLANK)
MAX_TAGS = 10
_UNSEEN = (
    r"\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000"
    r"\ue000-\uf8ff\ufeff\ufff9-\ufffb"
)
"""Controls, blanks of other kinds, and what has no look or an agreed one only."""
_WORD = f"[^ ,{_UNSEEN}]+"
TAG = Text(64, 1, f"^{_WORD}( +{_WORD})*$")
MAX_ARCHIVED = 1_000
"""Memories that one request archives."""


class NewMemory(Struct, frozen=True):
    """What is to be remembered."""

    content: str
    tags: tuple[str, ...]


class MemoryEdit(Struct, frozen=True):
    """What is to be another; None stays as it is."""

    content: str | None
    tags: tuple[str, ...] | None
    old_content: str | None
    """What it has to be still, if this is given."""
    old_tags: tuple[str, ...] | None


def parse_memory(body: bytes) -> NewMemory:
    """Return what a body wants remembered; raises MalformedJsonError, or InvalidRequestError with every field that is wrong."""
    parsed = _object(body, ("content", "tags"), '{"content": "The machine is busiest at nine."}')
    problems = [*_content_problems(parsed, needed=True), *_tag_problems(parsed)]
    if problems:
        raise InvalidRequestError(problems)
    return NewMemory(parsed["content"], tuple(dict.fromkeys(parsed.get("tags", ()))))


def parse_change(body: bytes) -> MemoryEdit:
    """Return what a body wants changed; raises as `parse_memory`."""
    parsed = _object(body, ("content", "tags", "old_content", "old_tags"), '{"tags": ["load"]}')
    problems = [*_content_problems(parsed, needed=False), *_tag_problems(parsed), *_old_problems(parsed)]
    if not problems and not parsed.keys() & {"content", "tags"}:
        problems = [Problem("body", "changes nothing", "give content, tags, or both")]
    if problems:
        raise InvalidRequestError(problems)
    tags, old_tags = parsed.get("tags"), parsed.get("old_tags")
    return MemoryEdit(
        parsed.get("content"),
        None if tags is None else tuple(dict.fromkeys(tags)),
        parsed.get("old_content"),
        None if old_tags is None else tuple(old_tags),
    )


def parse_archiving(body: bytes) -> tuple[MemoryId, ...]:
    """Return which memories a body wants archived; raises as `parse_memory`."""
    parsed = _object(body, ("memory_ids",), '{"memory_ids": ["mem_4f1c"]}')
    ids = parsed.get("memory_ids")
    if not isinstance(ids, list) or not 1 <= len(ids) <= MAX_ARCHIVED or not all(map(ID.fits, ids)):
        fix = f"a list of 1 to {MAX_ARCHIVED} ids of memories"
        raise InvalidRequestError([Problem("body.memory_ids", "is no list of ids", fix)])
    return tuple(MemoryId(each) for each in ids)


def _object(body: bytes, fields: Collection[str], example: str) -> dict[str, Any]:
    parsed = read_json(body or b"{}")
    if not isinstance(parsed, dict):
        raise InvalidRequestError([Problem("body", "must be a JSON object", f"such as {example}")])
    known = f"known fields: {', '.join(fields)}"
    unknown = [Problem(f"body.{name}", "unknown field", known) for name in parsed if name not in fields]
    if unknown:
        raise InvalidRequestError(unknown)
    return parsed


def _content_problems(parsed: dict[str, Any], *, needed: bool) -> list[Problem]:
    if "content" not in parsed and not needed:
        return []
    fix = f"a text of 1 to {CONTENT.most} characters, not blank, without NUL"
    return [] if CONTENT.fits(parsed.get("content")) else [Problem("body.content", "cannot be remembered", fix)]


def _tag_problems(parsed: dict[str, Any]) -> list[Problem]:
    tags = parsed.get("tags", [])
    fits = isinstance(tags, list) and len(tags) <= MAX_TAGS and all(map(TAG.fits, tags))
    fix = f"up to {MAX_TAGS} texts of 1 to {TAG.most} characters in one line, without a comma"
    return [] if fits else [Problem("body.tags", "are no tags", fix)]


def _old_problems(parsed: dict[str, Any]) -> list[Problem]:
    """What is there may be anything that a person wrote into the file, but it is a text, and tags are texts."""
    content, tags = parsed.get("old_content", ""), parsed.get("old_tags", [])
    problems = []
    if not isinstance(content, str):
        problems.append(Problem("body.old_content", "is no text", "the content as it was read"))
    if not isinstance(tags, list) or not all(isinstance(each, str) for each in tags):
        problems.append(Problem("body.old_tags", "are no tags", "the tags as they were read"))
    return problems
